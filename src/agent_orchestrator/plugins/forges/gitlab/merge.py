"""How a merge request lands at GitLab: at once, by its merge train, or by itself when its checks have passed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.forges.gitlab.merge_request_reader import blocked, landed_as, mergeable
from agent_orchestrator.plugins.forges.shared.http import Answer, Http
from agent_orchestrator.plugins.forges.shared.refusals import told
from agent_orchestrator.protocols.forge import Merged, Merging, PullState, Unmergeable, Waiting

QUEUED = "it is on GitLab's merge train"
BY_ITSELF = "GitLab lands it when its checks have passed"
_REFUSED = (400, 401, 403, 405, 406, 409, 422)


async def land(http: Http, pull: PullState, how: Merging) -> Merged | Waiting | Unmergeable:
    """Land exactly `how.head`, or have GitLab do so; what has landed or waits already is found so."""
    project, _, number = pull.id.partition("!")
    path = f"projects/{project}/merge_requests/{number}"
    answer = await http.call("GET", path, safe=True, allow=(404,))
    if answer.status == 404:
        return Unmergeable(f"the merge request !{pull.number} is gone")
    now: Mapping[str, Any] = answer.data
    if now.get("state") == "merged":
        return Merged(landed_as(now))
    hindrance = _hindrance(now, how)
    if hindrance is not None:
        return hindrance
    settings = (await http.get(f"projects/{project}")).data
    body = _body(pull, how)
    if settings.get("merge_trains_enabled"):
        board = f"projects/{project}/merge_trains/merge_requests/{number}"
        wanted = {"sha": how.head, "squash": body["squash"], "auto_merge": True}
        return _refused(now, await http.call("POST", board, wanted, allow=_REFUSED)) or Waiting(QUEUED)
    if blocked(now):
        body |= {"auto_merge": True, "merge_when_pipeline_succeeds": True}
    answer = await http.call("PUT", f"{path}/merge", body, allow=_REFUSED)
    refused = _refused(now, answer)
    if refused is not None:
        return refused
    if answer.data.get("state") == "merged":
        return Merged(landed_as(answer.data))
    return Waiting(BY_ITSELF)


async def call_off(http: Http, pull: PullState) -> None:
    """Off the merge train, and by itself no more."""
    project, _, number = pull.id.partition("!")
    path = f"projects/{project}/merge_requests/{number}"
    await http.call("POST", f"{path}/cancel_merge_when_pipeline_succeeds", {}, allow=(405, 406, 409))
    now = (await http.get(path)).data
    if now.get("state") in ("opened", "locked") and now.get("merge_when_pipeline_succeeds"):
        raise Temporary(f"GitLab still lands !{pull.number} by itself", "it is tried again")


def _hindrance(now: Mapping[str, Any], how: Merging) -> Waiting | Unmergeable | None:
    """Why it is not to be asked for just now."""
    if now.get("state") not in ("opened", "locked"):
        return Unmergeable("it is closed")
    if now.get("sha") != how.head:
        return Unmergeable(f"its head is {str(now.get('sha'))[:9]}, not {how.head[:9]}", moved=True)
    if now.get("merge_when_pipeline_succeeds"):
        return Waiting(BY_ITSELF)
    if now.get("draft"):
        return Unmergeable("it is a draft")
    can = mergeable(now)
    if can == "unknown":
        raise Temporary(f"GitLab does not know yet whether !{now.get('iid')} can land", "it is tried again")
    if can == "no":
        return Unmergeable("it conflicts with its base")
    return Unmergeable(blocked(now)) if now.get("detailed_merge_status") == "need_rebase" else None


def _body(pull: PullState, how: Merging) -> dict[str, Any]:
    """What is asked for. Whether there is a merge commit is the project's own setting; squashing is asked for here."""
    words = f"{how.title}\n\n{how.body}".strip()
    body: dict[str, Any] = {"sha": how.head, "squash": how.strategy == "squash"}
    if how.strategy == "squash":
        body["squash_commit_message"] = words
    elif how.strategy == "merge":
        body["merge_commit_message"] = words
    return body | {"should_remove_source_branch": how.delete_branch and not pull.fork and pull.branch != pull.base}


def _refused(now: Mapping[str, Any], answer: Answer) -> Unmergeable | None:
    if answer.status < 300:
        return None
    said = told(answer.data)
    if answer.status == 409:
        return Unmergeable(said or "its head was moved", moved=True)
    if answer.status in (401, 403):
        return Unmergeable(
            "our account may not merge into its base: ask for the role of a maintainer, or let one merge it"
        )
    return Unmergeable(blocked(now) or said or "GitLab refuses to merge it")
