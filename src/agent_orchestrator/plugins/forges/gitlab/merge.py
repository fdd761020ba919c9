"""Merge a merge request at GitLab: at once, by its merge train, or automatically when its checks have passed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.forges.gitlab.merge_request_reader import blocking_reason, merge_commit_of, mergeability
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient, ForgeResponse
from agent_orchestrator.plugins.forges.shared.response_errors import error_message
from agent_orchestrator.protocols.forge import Merged, MergeOptions, MergeQueued, PullRequestState, Unmergeable

MERGE_TRAIN_REASON = "it is on GitLab's merge train"
"""The reason to wait while a merge request is on the merge train."""
AUTO_MERGE_REASON = "GitLab lands it when its checks have passed"
"""The reason to wait while auto-merge is on."""
_REFUSAL_STATUSES = (400, 401, 403, 405, 406, 409, 422)
"""Statuses by which GitLab refuses a merge."""


async def merge_or_enqueue(
    http: ForgeHttpClient, pull: PullRequestState, how: MergeOptions
) -> Merged | MergeQueued | Unmergeable:
    """Merge exactly `how.head`, or have GitLab merge it later. A merge request that is merged or waits already is reported as such."""
    project, _, number = pull.id.partition("!")
    path = f"projects/{project}/merge_requests/{number}"
    answer = await http.call("GET", path, safe=True, allow=(404,))
    if answer.status == 404:
        return Unmergeable(f"the merge request !{pull.number} is gone")
    current: Mapping[str, Any] = answer.data
    if current.get("state") == "merged":
        return Merged(merge_commit_of(current))
    blocker = _blocker(current, how)
    if blocker is not None:
        return blocker
    settings = (await http.get(f"projects/{project}")).data
    body = _merge_parameters(pull, how)
    if settings.get("merge_trains_enabled"):
        train = f"projects/{project}/merge_trains/merge_requests/{number}"
        train_request = {"sha": how.head, "squash": body["squash"], "auto_merge": True}
        return _refusal(current, await http.call("POST", train, train_request, allow=_REFUSAL_STATUSES)) or MergeQueued(
            MERGE_TRAIN_REASON
        )
    if blocking_reason(current):
        body |= {"auto_merge": True, "merge_when_pipeline_succeeds": True}
    answer = await http.call("PUT", f"{path}/merge", body, allow=_REFUSAL_STATUSES)
    refusal = _refusal(current, answer)
    if refusal is not None:
        return refusal
    if answer.data.get("state") == "merged":
        return Merged(merge_commit_of(answer.data))
    return MergeQueued(AUTO_MERGE_REASON)


async def cancel_auto_merge(http: ForgeHttpClient, pull: PullRequestState) -> None:
    """Take a merge request off the merge train and turn its auto-merge off. Raise `Temporary` if it is still on."""
    project, _, number = pull.id.partition("!")
    path = f"projects/{project}/merge_requests/{number}"
    await http.call("POST", f"{path}/cancel_merge_when_pipeline_succeeds", {}, allow=(405, 406, 409))
    current = (await http.get(path)).data
    if current.get("state") in ("opened", "locked") and current.get("merge_when_pipeline_succeeds"):
        raise Temporary(f"GitLab still lands !{pull.number} by itself", "it is tried again")


def _blocker(current: Mapping[str, Any], merging: MergeOptions) -> MergeQueued | Unmergeable | None:
    """Return why no merge is to be requested now, or None. Raise `Temporary` if GitLab has not decided yet whether there is a conflict."""
    if current.get("state") not in ("opened", "locked"):
        return Unmergeable("it is closed")
    if current.get("sha") != merging.head:
        return Unmergeable(f"its head is {str(current.get('sha'))[:9]}, not {merging.head[:9]}", moved=True)
    if current.get("merge_when_pipeline_succeeds"):
        return MergeQueued(AUTO_MERGE_REASON)
    if current.get("draft"):
        return Unmergeable("it is a draft")
    can_merge = mergeability(current)
    if can_merge == "unknown":
        raise Temporary(f"GitLab does not know yet whether !{current.get('iid')} can land", "it is tried again")
    if can_merge == "no":
        return Unmergeable("it conflicts with its base")
    return Unmergeable(blocking_reason(current)) if current.get("detailed_merge_status") == "need_rebase" else None


def _merge_parameters(pull: PullRequestState, merging: MergeOptions) -> dict[str, Any]:
    """Return the parameters of the request to merge.

    Whether there is a merge commit is the project's setting; squashing is chosen here.
    """
    message = f"{merging.title}\n\n{merging.body}".strip()
    body: dict[str, Any] = {"sha": merging.head, "squash": merging.strategy == "squash"}
    if merging.strategy == "squash":
        body["squash_commit_message"] = message
    elif merging.strategy == "merge":
        body["merge_commit_message"] = message
    return body | {"should_remove_source_branch": merging.delete_branch and not pull.fork and pull.branch != pull.base}


def _refusal(current: Mapping[str, Any], answer: ForgeResponse) -> Unmergeable | None:
    """Return why GitLab refuses to merge, or None if it does not."""
    if answer.status < 300:
        return None
    message = error_message(answer.data)
    if answer.status == 409:
        return Unmergeable(message or "its head was moved", moved=True)
    if answer.status in (401, 403):
        return Unmergeable(
            "our account may not merge into its base: ask for the role of a maintainer, or let one merge it"
        )
    return Unmergeable(blocking_reason(current) or message or "GitLab refuses to merge it")
