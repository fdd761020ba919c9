"""Merge a pull request at GitHub: at once, through its merge queue, or by auto-merge when its rules are met."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from agent_orchestrator.errors import AoError, Denied, Temporary, UsageError
from agent_orchestrator.plugins.forges.github import graphql_documents as documents
from agent_orchestrator.plugins.forges.github.host import GitHubHost
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient
from agent_orchestrator.plugins.forges.shared.response_errors import error_message
from agent_orchestrator.protocols.forge import Merged, MergeOptions, MergeQueued, PullRequestState, Unmergeable

MERGE_QUEUE_REASON = "it is in GitHub's merge queue"
"""The reason to wait while a pull request is in the merge queue."""
AUTO_MERGE_REASON = "GitHub lands it when its rules are met"
"""The reason to wait while auto-merge is on."""


async def merge_or_enqueue(
    at: GitHubHost, repo: str, pull: PullRequestState, how: MergeOptions
) -> Merged | MergeQueued | Unmergeable:
    """Merge exactly `how.head`, or enqueue it at GitHub. A pull request that is merged or waits already is reported as such."""
    data, _ = await at.graphql(documents.MERGE_STATE, {"id": pull.id})
    current = data.get("node")
    if not isinstance(current, Mapping) or not current:
        return Unmergeable(f"the pull request #{pull.number} is gone")
    if current.get("merged"):
        await _delete_merged_branch(await at.http(), repo, pull, how)
        return Merged(str((current.get("mergeCommit") or {}).get("oid") or ""))
    blocker = _blocker(current, how)
    if blocker is not None:
        return blocker
    if current.get("isMergeQueueEnabled"):
        return await _request_merge(at, documents.ENQUEUE, {"id": pull.id, "head": how.head}, MERGE_QUEUE_REASON)
    if current.get("mergeStateStatus") == "BLOCKED" and current.get("viewerCanEnableAutoMerge"):
        request = {"id": pull.id, "head": how.head, "method": how.strategy.upper()}
        return await _request_merge(
            at, documents.ENABLE_AUTO_MERGE, {**request, **_commit_message(how, "title", "body")}, AUTO_MERGE_REASON
        )
    return await merge_now(await at.http(), repo, pull, how, undecided=current.get("mergeable") == "UNKNOWN")


def _blocker(current: Mapping[str, Any], merging: MergeOptions) -> MergeQueued | Unmergeable | None:
    """Return why no merge is to be requested now, or None if it may be requested."""
    if current.get("state") != "OPEN":
        return Unmergeable("it is closed")
    if current.get("headRefOid") != merging.head:
        return Unmergeable(f"its head is {str(current.get('headRefOid'))[:9]}, not {merging.head[:9]}", moved=True)
    if current.get("isInMergeQueue"):
        return MergeQueued(MERGE_QUEUE_REASON)
    if current.get("autoMergeRequest"):
        return MergeQueued(AUTO_MERGE_REASON)
    if current.get("isDraft"):
        return Unmergeable("it is a draft")
    return Unmergeable("it conflicts with its base") if current.get("mergeable") == "CONFLICTING" else None


async def cancel_auto_merge(at: GitHubHost, pull: PullRequestState) -> None:
    """Take a pull request out of the merge queue and turn its auto-merge off.

    The state is read again afterwards, because GitHub keeps auto-merge on when a branch moves. Raise `Temporary` if it is still on.
    """
    for _ in range(3):
        data, _errors = await at.graphql(documents.MERGE_STATE, {"id": pull.id})
        current = data.get("node") or {}
        is_on_by_document = {
            documents.DEQUEUE: current.get("isInMergeQueue"),
            documents.DISABLE_AUTO_MERGE: current.get("autoMergeRequest"),
        }
        mutations = [document for document, is_active in is_on_by_document.items() if is_active]
        if current.get("state") != "OPEN" or not mutations:
            return
        for document in mutations:
            with contextlib.suppress(UsageError):  # it ended after the state was read
                await at.graphql(document, {"id": pull.id}, safe=False)
    raise Temporary(f"GitHub still lands #{pull.number} by itself", "it is tried again")


async def _request_merge(
    host: GitHubHost, document: str, variables: Mapping[str, Any], reason: str
) -> MergeQueued | Unmergeable:
    """Request a merge by a mutation. Return that it waits, or why GitHub refuses."""
    try:
        data, errors = await host.graphql(document, variables, safe=False)
    except (UsageError, Denied) as error:
        return Unmergeable(error.text, moved="head" in error.text.lower() and "modified" in error.text.lower())
    if errors and not any(data.values()):
        return Unmergeable(str(errors[0].get("message", "")))
    return MergeQueued(reason)


async def merge_now(
    http: ForgeHttpClient, repo: str, pull: PullRequestState, how: MergeOptions, *, undecided: bool = False
) -> Merged | Unmergeable:
    """Merge at once; GitHub refuses any other head.

    `undecided`: GitHub did not know yet whether there is a conflict, so a refusal raises `Temporary`.
    """
    body = {"sha": how.head, "merge_method": how.strategy, **_commit_message(how, "commit_title", "commit_message")}
    answer = await http.call("PUT", f"repos/{repo}/pulls/{pull.number}/merge", body, allow=(405, 409, 422))
    message = error_message(answer.data)
    if answer.status == 409:
        return Unmergeable(message or "its head was moved", moved=True)
    if answer.status == 405 and (undecided or "base branch was modified" in message.lower()):
        raise Temporary(f"GitHub cannot merge #{pull.number} yet: {message}", "it is tried again")
    if answer.status in (405, 422):
        return Unmergeable(message or "GitHub refuses to merge it")
    await _delete_merged_branch(http, repo, pull, how)
    return Merged(str((answer.data or {}).get("sha") or ""))


async def _delete_merged_branch(
    http: ForgeHttpClient, repo: str, pull: PullRequestState, merging: MergeOptions
) -> None:
    """Delete the branch of a merged pull request if that is configured."""
    if merging.delete_branch and not pull.fork and pull.branch != pull.base:
        await delete_branch(http, repo, pull.branch, merging.head)


async def delete_branch(http: ForgeHttpClient, repo: str, branch: str, head: str) -> None:
    """Delete a branch if it is still at `head`. A failure is ignored: it does not undo the merge."""
    name = quote(branch, safe="/")
    try:
        answer = await http.call("GET", f"repos/{repo}/git/ref/heads/{name}", safe=True, allow=(404, 409))
        if answer.status == 200 and (answer.data.get("object") or {}).get("sha") == head:
            await http.call("DELETE", f"repos/{repo}/git/refs/heads/{name}", allow=(403, 404, 409, 422))
    except (AoError, AttributeError):
        return


def _commit_message(merging: MergeOptions, title: str, body: str) -> dict[str, str]:
    """Return the title and body of the merge commit; none for a rebase, which creates no commit."""
    return {} if merging.strategy == "rebase" else {title: merging.title, body: merging.body}
