"""How a pull request lands at GitHub: at once, through its merge queue, or by itself when its rules are met."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from agent_orchestrator.errors import AoError, Denied, Temporary, UsageError
from agent_orchestrator.plugins.forges.github import graphql_documents as documents
from agent_orchestrator.plugins.forges.github.host import GitHubHost
from agent_orchestrator.plugins.forges.shared.http import Http
from agent_orchestrator.plugins.forges.shared.refusals import told
from agent_orchestrator.protocols.forge import Merged, Merging, PullState, Unmergeable, Waiting

QUEUED = "it is in GitHub's merge queue"
BY_ITSELF = "GitHub lands it when its rules are met"


async def land(at: GitHubHost, repo: str, pull: PullState, how: Merging) -> Merged | Waiting | Unmergeable:
    """Land exactly `how.head`, or have GitHub do so; what has landed or waits already is found so."""
    data, _ = await at.graphql(documents.LANDING, {"id": pull.id})
    now = data.get("node")
    if not isinstance(now, Mapping) or not now:
        return Unmergeable(f"the pull request #{pull.number} is gone")
    if now.get("merged"):
        await _clean_up(await at.http(), repo, pull, how)
        return Merged(str((now.get("mergeCommit") or {}).get("oid") or ""))
    hindrance = _hindrance(now, how)
    if hindrance is not None:
        return hindrance
    if now.get("isMergeQueueEnabled"):
        return await _asked(at, documents.ENQUEUE, {"id": pull.id, "head": how.head}, QUEUED)
    if now.get("mergeStateStatus") == "BLOCKED" and now.get("viewerCanEnableAutoMerge"):
        method = {"id": pull.id, "head": how.head, "method": how.strategy.upper()}
        return await _asked(at, documents.AUTO_MERGE, {**method, **_words(how, "title", "body")}, BY_ITSELF)
    return await merge_now(await at.http(), repo, pull, how, undecided=now.get("mergeable") == "UNKNOWN")


def _hindrance(now: Mapping[str, Any], how: Merging) -> Waiting | Unmergeable | None:
    """Why it is not to be asked for just now."""
    if now.get("state") != "OPEN":
        return Unmergeable("it is closed")
    if now.get("headRefOid") != how.head:
        return Unmergeable(f"its head is {str(now.get('headRefOid'))[:9]}, not {how.head[:9]}", moved=True)
    if now.get("isInMergeQueue"):
        return Waiting(QUEUED)
    if now.get("autoMergeRequest"):
        return Waiting(BY_ITSELF)
    if now.get("isDraft"):
        return Unmergeable("it is a draft")
    return Unmergeable("it conflicts with its base") if now.get("mergeable") == "CONFLICTING" else None


async def call_off(at: GitHubHost, pull: PullState) -> None:
    """Out of the merge queue, and by itself no more. Looks again afterwards: GitHub keeps auto-merge on when a branch moves."""
    for _ in range(3):
        data, _errors = await at.graphql(documents.LANDING, {"id": pull.id})
        now = data.get("node") or {}
        waits = {documents.DEQUEUE: now.get("isInMergeQueue"), documents.NO_AUTO_MERGE: now.get("autoMergeRequest")}
        wanted = [document for document, is_on in waits.items() if is_on]
        if now.get("state") != "OPEN" or not wanted:
            return
        for document in wanted:
            with contextlib.suppress(UsageError):  # it is over since we looked
                await at.graphql(document, {"id": pull.id}, safe=False)
    raise Temporary(f"GitHub still lands #{pull.number} by itself", "it is tried again")


async def _asked(at: GitHubHost, document: str, variables: Mapping[str, Any], reason: str) -> Waiting | Unmergeable:
    try:
        data, errors = await at.graphql(document, variables, safe=False)
    except (UsageError, Denied) as error:
        return Unmergeable(error.text, moved="head" in error.text.lower() and "modified" in error.text.lower())
    if errors and not any(data.values()):
        return Unmergeable(str(errors[0].get("message", "")))
    return Waiting(reason)


async def merge_now(
    http: Http, repo: str, pull: PullState, how: Merging, *, undecided: bool = False
) -> Merged | Unmergeable:
    """Merge it; GitHub itself refuses any other head. `undecided`: GitHub did not know yet whether it can be merged."""
    body = {"sha": how.head, "merge_method": how.strategy, **_words(how, "commit_title", "commit_message")}
    answer = await http.call("PUT", f"repos/{repo}/pulls/{pull.number}/merge", body, allow=(405, 409, 422))
    said = told(answer.data)
    if answer.status == 409:
        return Unmergeable(said or "its head was moved", moved=True)
    if answer.status == 405 and (undecided or "base branch was modified" in said.lower()):
        raise Temporary(f"GitHub cannot merge #{pull.number} yet: {said}", "it is tried again")
    if answer.status in (405, 422):
        return Unmergeable(said or "GitHub refuses to merge it")
    await _clean_up(http, repo, pull, how)
    return Merged(str((answer.data or {}).get("sha") or ""))


async def _clean_up(http: Http, repo: str, pull: PullState, how: Merging) -> None:
    if how.delete_branch and not pull.fork and pull.branch != pull.base:
        await delete_branch(http, repo, pull.branch, how.head)


async def delete_branch(http: Http, repo: str, branch: str, head: str) -> None:
    """Only where it has not moved on since; that it cannot be deleted does not undo the merge."""
    name = quote(branch, safe="/")
    try:
        answer = await http.call("GET", f"repos/{repo}/git/ref/heads/{name}", safe=True, allow=(404, 409))
        if answer.status == 200 and (answer.data.get("object") or {}).get("sha") == head:
            await http.call("DELETE", f"repos/{repo}/git/refs/heads/{name}", allow=(403, 404, 409, 422))
    except (AoError, AttributeError):
        return


def _words(how: Merging, title: str, body: str) -> dict[str, str]:
    """The commit's message, where one is made."""
    return {} if how.strategy == "rebase" else {title: how.title, body: how.body}
