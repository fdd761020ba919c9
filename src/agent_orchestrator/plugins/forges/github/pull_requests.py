"""Pull requests at GitHub: github.com and GitHub Enterprise (plugin slot `scm`).

Pull requests are read by GraphQL, many at a time, by their ids, which survive the renaming of a repository. They are watched by
conditional REST requests (`change_finder.py`), which cost nothing while nothing changes. Every action that may be repeated after a crash
first checks whether it was already done.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from agent_orchestrator.errors import AoError, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.github import graphql_documents as documents
from agent_orchestrator.plugins.forges.github.change_finder import GitHubChangeFinder
from agent_orchestrator.plugins.forges.github.host import GitHubHost
from agent_orchestrator.plugins.forges.github.issue_comments import find_own_comment
from agent_orchestrator.plugins.forges.github.merge import cancel_auto_merge, merge_or_enqueue
from agent_orchestrator.plugins.forges.github.permissions import RepositoryPermissions
from agent_orchestrator.plugins.forges.github.pull_request_reader import (
    MAX_PAGES,
    GraphQLNode,
    base_has_checks,
    parse_pull_request,
    people_of,
    read_missing_pages,
)
from agent_orchestrator.plugins.forges.github.token_access import PULL_REQUEST_PARTS, read_token_access
from agent_orchestrator.plugins.forges.shared.comment_marks import (
    MAX_TITLE_LENGTH,
    cut_to_limit,
    has_mark,
    is_same_login,
    with_mark,
)
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient, ForgeResponse, ResponseTooLarge
from agent_orchestrator.plugins.forges.shared.rate_limit_report import background_pause, rate_limit_lines
from agent_orchestrator.plugins.forges.shared.response_errors import error_message
from agent_orchestrator.plugins.forges.shared.tokens import require_vital_access
from agent_orchestrator.protocols.forge import (
    SCM,
    Access,
    Author,
    BaseChecks,
    Hint,
    KnownPullRequest,
    Merged,
    MergeOptions,
    MergeQueued,
    PullRequestSpec,
    PullRequestState,
    Unmergeable,
)
from agent_orchestrator.protocols.host import Host

BATCH_SIZE = 20
"""Pull requests per query."""
MAX_UNREADABLE = 2
"""Pull requests that GitHub may fail to read before the whole reading fails."""
WORKFLOWS_CACHE_SECONDS = 600.0
"""Seconds for which it is remembered whether the repository has workflows."""
_FAILED_CONCLUSIONS = ("failure", "timed_out", "cancelled", "startup_failure", "stale")
"""Conclusions of runs that may be repeated. Runs that wait for a maintainer's approval are not among them."""
_LINE_TIME = re.compile(rb"^\xef?\xbb?\xbf?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ", re.MULTILINE)
"""The time that GitHub puts before each line of a log, and a byte order mark."""


class GitHub(SCM):
    """The pull requests of one repository."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._github = GitHubHost(config, host, "scm", clock)
        self._repo = self._github.address.repo
        fork = str(config.get("fork") or "").strip()
        if fork and fork.count("/") != 1:
            raise UsageError(f"scm.fork: {fork!r} is no repository", "write fork: owner/name")
        self._fork = fork
        self._change_finder = GitHubChangeFinder(clock)
        self._permissions = RepositoryPermissions(clock)
        self._workflows: tuple[float, bool | None] = (0.0, None)

    @property
    def repo(self) -> str:
        """The repository's current name, `owner/name`."""
        return self._repo

    def pause(self) -> float:
        """Return how many seconds background reading should wait."""
        return background_pause(self._github.current_client)

    def budget(self) -> Sequence[str]:
        """Return one line per rate limit of the host."""
        return rate_limit_lines(self._github.current_client)

    async def configured(self) -> bool:
        """Return whether there is a token."""
        try:
            await self._github.http()
        except Denied:
            return False
        return True

    async def access(self) -> Access:
        """Return the token's account and what the token may not do."""
        return await read_token_access(self._github, self._repo, PULL_REQUEST_PARTS, self._fork)

    async def login(self) -> Author:
        """Return the token's account. Raise `Denied` if the token lacks something vital."""
        return require_vital_access(await self.access())

    def push_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL that Git pushes to, and its environment."""
        return self._github.git_remote(self._fork or self._repo)

    def fetch_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL that Git fetches base branches from, and its environment."""
        return self._github.git_remote(self._repo)

    async def find(self, branch: str) -> PullRequestState | None:
        """Return the open pull request of a branch, otherwise its newest one, or None."""
        summaries = await self._list_by_branch(branch)
        if not summaries:
            return None
        summary = next((pull for pull in summaries if pull["state"] == "open"), summaries[0])
        return next(iter(await self.read([summary["node_id"]])), None)

    async def _list_by_branch(self, branch: str) -> list[dict[str, str]]:
        """Return the id, state and branch of a branch's pull requests, newest first."""
        http = await self._github.http()
        head = quote(f"{(self._fork or self._repo).partition('/')[0]}:{branch}", safe=":/")
        path = f"repos/{self._repo}/pulls?head={head}&state=all&sort=created&direction=desc&per_page=30"
        answer = await http.get(path, keep=_branch_summaries)
        return [summary for summary in answer.data if summary["branch"] == branch]

    async def get(self, number: int) -> PullRequestState:
        """Return a pull request by its number. Raise `NotFound` if there is none."""
        owner, _, name = self._repo.partition("/")
        data, errors = await self._github.graphql(
            documents.READ_BY_NUMBER, {"owner": owner, "name": name, "number": number}
        )
        if data.get("repository") is None:
            await (await self._github.http()).get(f"repos/{self._repo}")  # raises the reason why it cannot be read
        node = (data.get("repository") or {}).get("pullRequest")
        if node is None:
            raise NotFound(
                f"there is no pull request #{number} in {self._repo}", "see gh pr list, or the forge's own page"
            )
        return await self._read_pull_request(node, _viewer_login(data), [_error_path(error)[2:] for error in errors])

    async def open(self, spec: PullRequestSpec) -> PullRequestState:
        """Open a pull request and return it. If the branch already has an open one, return that."""
        existing = await self._find_open(spec.branch)
        if existing is not None:
            return existing
        http = await self._github.http()
        head = f"{self._fork.partition('/')[0]}:{spec.branch}" if self._fork else spec.branch
        title, text = spec.title[:MAX_TITLE_LENGTH], cut_to_limit(spec.body)
        body = {"title": title, "body": text, "head": head, "base": spec.base, "draft": spec.draft}
        answer = await http.call("POST", f"repos/{self._repo}/pulls", body, allow=(422,))
        if answer.status == 422 and spec.draft and "draft" in error_message(answer.data).lower():
            answer = await http.call("POST", f"repos/{self._repo}/pulls", {**body, "draft": False}, allow=(422,))
        if answer.status == 422:
            existing = await self._find_open(spec.branch)
            if existing is None:
                raise _open_error(http, spec, answer)
            return existing
        pull_requests = await self.read([str(answer.data["node_id"])])
        if not pull_requests:
            raise Temporary(f"the pull request #{answer.data.get('number')} was opened, but cannot be read yet")
        return pull_requests[0]

    async def _find_open(self, branch: str) -> PullRequestState | None:
        """Return the open pull request of a branch, or None."""
        open_ids = [pull["node_id"] for pull in await self._list_by_branch(branch) if pull["state"] == "open"]
        return next(iter(await self.read(open_ids[:1])), None) if open_ids else None

    async def read(self, ids: Sequence[str]) -> list[PullRequestState]:
        """Return the pull requests with these ids, with all their pages.

        Those that GitHub fails to read are left out. Raise `Temporary` if it could read none.
        """
        pull_requests: list[PullRequestState] = []
        failed: list[str] = []
        for start in range(0, len(ids), BATCH_SIZE):
            pull_requests += await self._read_batch(ids[start : start + BATCH_SIZE], failed)
        if failed and not pull_requests:
            raise Temporary(f"GitHub could not tell of {len(failed)} pull requests of {self._repo}", "try again later")
        return pull_requests

    async def _read_batch(
        self, ids: Sequence[str], failed: list[str], without: frozenset[str] = frozenset(), *, paged: bool = False
    ) -> list[PullRequestState]:
        """Read pull requests by one query; in halves if that is too much for the host.

        If a part of some cannot be read, these are read once more without that part. `without`: the parts that are left out; `paged`: those
        parts are read page by page. A pull request that cannot be read at all is added to `failed` and does not affect the others.
        """
        try:
            variables = {"ids": list(ids), **dict.fromkeys(without, False)}
            data, errors = await self._github.graphql(documents.READ_BY_IDS, variables)
        except Temporary as error:
            if len(ids) == 1 and isinstance(error, ResponseTooLarge) and not without:
                return await self._read_batch(ids, failed, documents.PAGED_PARTS, paged=True)
            if len(ids) == 1 or error.until is not None:
                raise
            half = len(ids) // 2
            return [*await self._read_half(ids[:half], failed), *await self._read_half(ids[half:], failed)]
        pull_requests, retry_ids, left_out = [], [], set(without)
        error_paths = [(_error_path(error), str(error.get("type", ""))) for error in errors]
        for index, node in enumerate(data.get("nodes") or []):
            own_errors = [(path[2:], kind) for path, kind in error_paths if path[:2] == ("nodes", index)]
            if isinstance(node, dict) and node.get("__typename") == "PullRequest":
                node |= {part: _unread_connection() for part in without if paged}
                pull_requests.append(
                    await self._read_pull_request(node, _viewer_login(data), [path for path, _ in own_errors])
                )
            elif node is None and own_errors and not any(kind == "NOT_FOUND" for _, kind in own_errors):
                retry_ids.append(ids[index])
                left_out |= {path[0] for path, _ in own_errors if path and path[0] in documents.OPTIONAL_PARTS}
        if retry_ids and left_out > without:
            pull_requests += await self._read_batch(retry_ids, failed, frozenset(left_out))
        else:
            failed += retry_ids
        return pull_requests

    async def _read_half(self, ids: Sequence[str], failed: list[str]) -> list[PullRequestState]:
        """Read half of a batch; a single pull request that cannot be read is added to `failed`, unless too many failed already."""
        try:
            return await self._read_batch(ids, failed)
        except Temporary as error:
            if len(ids) > 1 or error.until is not None or len(failed) >= MAX_UNREADABLE:
                raise
            failed += ids
            return []

    async def _read_pull_request(
        self, node: GraphQLNode, our_login: str, failed: Sequence[tuple[Any, ...]]
    ) -> PullRequestState:
        """Read the missing pages and the authors' permissions of a pull request's node, and return its state."""
        await read_missing_pages(self._github.graphql, node)
        current_name = (node.get("repository") or {}).get("nameWithOwner")
        self._repo = str(current_name) if current_name else self._repo
        await self._permissions.read_permissions(await self._github.http(), self._repo, people_of(node))
        pull = parse_pull_request(node, our_login, failed, self._permissions.author)
        has_no_checks = not pull.checks and pull.checks_expected is None and "checks" not in pull.unread
        if has_no_checks and pull.state == "open" and node.get("baseRef") and not base_has_checks(node):
            pull = replace(pull, checks_expected=False if await self._has_workflows() is False else None)
        self._change_finder.record_read(pull, str(node.get("updatedAt") or ""))
        return pull

    async def _has_workflows(self) -> bool | None:
        """Return whether the repository has workflows, or None if that cannot be read."""
        until, has_workflows = self._workflows
        if self._clock() < until:
            return has_workflows
        try:
            answer = await (await self._github.http()).get(f"repos/{self._repo}/actions/workflows?per_page=1")
            has_workflows = int(answer.data["total_count"]) > 0
        except (AoError, KeyError, TypeError, ValueError):
            has_workflows = None
        self._workflows = (self._clock() + WORKFLOWS_CACHE_SECONDS, has_workflows)
        return has_workflows

    def bases(self) -> Mapping[str, BaseChecks]:
        """Return the checks of the base branches as of the last poll."""
        return self._change_finder.base_checks

    async def changed(self, pulls: Sequence[KnownPullRequest]) -> Hint:
        """Return what may have changed since the last call."""
        hint = await self._change_finder.find_changes(await self._github.http(), self._repo, pulls)
        self._repo = hint.repo
        return hint

    async def ready(self, pull: PullRequestState) -> None:
        """Turn a draft into a regular pull request."""
        http = await self._github.http()
        draft = await http.get(f"repos/{self._repo}/pulls/{pull.number}", keep=lambda data: bool(data.get("draft")))
        if draft.data:
            await self._github.graphql(documents.READY, {"id": pull.id}, safe=False)

    async def close(self, pull: PullRequestState) -> None:
        """Close a pull request without merging it."""
        http = await self._github.http()
        await http.call("PATCH", f"repos/{self._repo}/pulls/{pull.number}", {"state": "closed"}, safe=True)

    async def merge(self, pull: PullRequestState, how: MergeOptions) -> Merged | MergeQueued | Unmergeable:
        """Merge exactly `how.head`, or enqueue it at GitHub."""
        return await merge_or_enqueue(self._github, self._repo, pull, how)

    async def cancel_merge(self, pull: PullRequestState) -> None:
        """Cancel an automatic merge and leave the merge queue."""
        await cancel_auto_merge(self._github, pull)

    async def comment(self, pull: PullRequestState, text: str, key: str) -> str:
        """Comment on the pull request once and return the comment's id; if it was already posted, return that one's id."""
        http = await self._github.http()
        path = f"repos/{self._repo}/issues/{pull.number}/comments"
        our_login = await self._github.login()
        existing = await find_own_comment(http, path, key, our_login)
        if existing is not None:
            return existing
        answer = await http.call("POST", path, {"body": with_mark(text, key)})
        return str(answer.data["node_id"])

    async def reply(self, pull: PullRequestState, thread: str, text: str, key: str) -> str:
        """Reply in a discussion once and return the reply's id; if it was already posted, return that one's id."""
        existing = await self._find_reply(pull, thread, key)
        if existing is not None:
            return existing
        data, errors = await self._github.graphql(
            documents.REPLY, {"thread": thread, "body": with_mark(text, key)}, safe=False
        )
        reply = data.get("addPullRequestReviewThreadReply") or {}
        if not reply.get("comment"):
            raise Temporary(f"GitHub did not take the answer in #{pull.number}: {_first_message(errors)}")
        return str(reply["comment"]["id"])

    async def _find_reply(self, pull: PullRequestState, thread: str, key: str) -> str | None:
        """Return the id of our reply with this key in a discussion, or None."""
        our_login = await self._github.login()
        after: str | None = None
        for _ in range(MAX_PAGES):
            data, _ = await self._github.graphql(documents.MORE_PAGES["thread"], {"id": thread, "after": after})
            page = (data.get("node") or {}).get("page")
            if page is None:
                raise NotFound(f"the discussion is gone from #{pull.number}")
            for comment in filter(None, page.get("nodes") or []):
                if has_mark(str(comment.get("body")), key) and is_same_login(
                    our_login, str((comment.get("author") or {}).get("login"))
                ):
                    return str(comment["id"])
            if not page["pageInfo"]["hasNextPage"]:
                break
            after = page["pageInfo"]["endCursor"]
        return None

    async def resolve(self, thread: str) -> None:
        """Mark a discussion as resolved."""
        await self._github.graphql(documents.RESOLVE, {"id": thread})

    async def request_review(self, pull: PullRequestState, people: Sequence[str]) -> None:
        """Request reviews from people, or from teams (`org/team`)."""
        http = await self._github.http()
        body = {
            "reviewers": [name.removeprefix("@") for name in people if "/" not in name],
            "team_reviewers": [name.rpartition("/")[2] for name in people if "/" in name],
        }
        path = f"repos/{self._repo}/pulls/{pull.number}/requested_reviewers"
        answer = await http.call("POST", path, body, safe=True, allow=(422,))
        if answer.status == 422:
            raise UsageError(
                f"{http.host_text.name} does not ask {', '.join(people)} to look at #{pull.number}: {error_message(answer.data)}",
                "name collaborators by their logins, and not the author; a team as org/team",
            )

    async def rerun(self, pull: PullRequestState) -> int:
        """Rerun the failed checks of the head, and return how many runs were started."""
        http = await self._github.http()
        started, refused = 0, ""
        answer = await http.get(f"repos/{self._repo}/actions/runs?head_sha={pull.head}&per_page=100")
        for run in (answer.data or {}).get("workflow_runs") or []:
            if run.get("status") == "completed" and run.get("conclusion") in _FAILED_CONCLUSIONS:
                path = f"repos/{self._repo}/actions/runs/{run['id']}/rerun-failed-jobs"
                result = await http.call("POST", path, {}, allow=(403, 409, 422))
                started += result.status < 300
                refused = refused if result.status < 300 else error_message(result.data)
        for suite in await self._failed_suites(http, pull.head):
            result = await http.call(
                "POST", f"repos/{self._repo}/check-suites/{suite}/rerequest", {}, allow=(403, 404, 422)
            )
            started += result.status < 300
            refused = refused if result.status < 300 else error_message(result.data)
        if refused and not started:
            raise UsageError(f"GitHub does not run the checks of #{pull.number} again: {refused}")
        return started

    async def _failed_suites(self, http: ForgeHttpClient, head: str) -> list[int]:
        """Return the ids of failed check suites of apps other than GitHub Actions."""
        answer = await http.get(f"repos/{self._repo}/commits/{head}/check-suites?per_page=100")
        return [
            int(suite["id"])
            for suite in (answer.data or {}).get("check_suites") or []
            if suite.get("conclusion") in _FAILED_CONCLUSIONS
            and (suite.get("app") or {}).get("slug") != "github-actions"
        ]

    async def log(self, job: str, most: int) -> bytes:
        """Return the end of a job's log, without the time that GitHub puts before each line."""
        http = await self._github.http()
        return _LINE_TIME.sub(
            b"", await http.get_tail(f"repos/{self._repo}/actions/jobs/{quote(job, safe='')}/logs", most)
        )


def _unread_connection() -> GraphQLNode:
    """Return a connection of which all pages are still to be read."""
    return {"nodes": [], "pageInfo": {"hasNextPage": True, "endCursor": None}}


def _branch_summaries(pulls: Any) -> list[dict[str, str]]:
    """Return the id, state and branch of each pull request in a listing: the part that is cached."""
    listing = pulls if isinstance(pulls, list) else []
    return [
        {
            "node_id": str(pull_request["node_id"]),
            "state": str(pull_request["state"]),
            "branch": str((pull_request.get("head") or {}).get("ref")),
        }
        for pull_request in listing
    ]


def _open_error(http: ForgeHttpClient, spec: PullRequestSpec, answer: ForgeResponse) -> UsageError:
    """Return the error for a pull request that GitHub refused to open."""
    message = error_message(answer.data)
    remedy = "push the branch first" if "head" in message and "invalid" in message else ""
    if "No commits between" in message:
        remedy = "there is nothing to land yet"
    return UsageError(f"{http.host_text.name} opens no pull request for {spec.branch}: {message}", remedy)


def _viewer_login(data: Mapping[str, Any]) -> str:
    """Return the login of the token's account in a query's data."""
    return str((data.get("viewer") or {}).get("login") or "")


def _error_path(error: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the path of the field that a GraphQL error is about."""
    path = error.get("path")
    return tuple(path) if isinstance(path, list) else ()


def _first_message(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return the message of the first error."""
    return str(errors[0].get("message", "")) if errors else "no reason given"
