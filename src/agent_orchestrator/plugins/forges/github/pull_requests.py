"""Pull requests at GitHub: github.com and an enterprise's own hosts.

Read by GraphQL, many at a time, by their ids, which a renamed repository keeps; watched by conditional REST, which costs nothing while
nothing changes (`polls.py`). Whatever may be repeated after a crash looks first whether it was done.
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
from agent_orchestrator.plugins.forges.github.comment_marks import LONGEST_TITLE, already_said, bears, fitting, marked
from agent_orchestrator.plugins.forges.github.host import GitHubHost
from agent_orchestrator.plugins.forges.github.merge import call_off, land
from agent_orchestrator.plugins.forges.github.people import same
from agent_orchestrator.plugins.forges.github.permissions import Rights
from agent_orchestrator.plugins.forges.github.polls import Poll
from agent_orchestrator.plugins.forges.github.pull_request_reader import (
    MOST_PAGES,
    Node,
    base_has_checks,
    complete,
    people_of,
    pull_state,
)
from agent_orchestrator.plugins.forges.github.token_access import PULLS, access
from agent_orchestrator.plugins.forges.shared.http import Answer, Http, TooLarge
from agent_orchestrator.plugins.forges.shared.rate_limits import lines, longest_wait
from agent_orchestrator.plugins.forges.shared.refusals import allowed, told
from agent_orchestrator.protocols.forge import (
    Access,
    Author,
    BaseChecks,
    Hint,
    Known,
    Merged,
    Merging,
    PullSpec,
    PullState,
    Unmergeable,
    Waiting,
)
from agent_orchestrator.protocols.host import Host

BATCH = 20
"""Pull requests that one query asks for."""
MOST_FAILED = 2
"""Pull requests of which GitHub may tell nothing before it counts as its own failure."""
WORKFLOWS_FOR = 600.0
_FAILED = ("failure", "timed_out", "cancelled", "startup_failure", "stale")
"""What may be run again. What waits for a maintainer's word is not our matter."""
_STAMP = re.compile(rb"^\xef?\xbb?\xbf?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ", re.MULTILINE)


class GitHub:
    """The pull requests of one repository."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._at = GitHubHost(config, host, "scm", clock)
        self._repo = self._at.place.repo
        fork = str(config.get("fork") or "").strip()
        if fork and fork.count("/") != 1:
            raise UsageError(f"scm.fork: {fork!r} is no repository", "write fork: owner/name")
        self._fork = fork
        self._poll = Poll(clock)
        self._rights = Rights(clock)
        self._workflows: tuple[float, bool | None] = (0.0, None)

    @property
    def repo(self) -> str:
        """`owner/name`, as it is called now."""
        return self._repo

    def pause(self) -> float:
        """Seconds that background reading should wait."""
        return longest_wait(self._at.opened)

    def budget(self) -> Sequence[str]:
        """What is left of the host's grants."""
        return lines(self._at.opened)

    async def configured(self) -> bool:
        """Is there a token?"""
        try:
            await self._at.http()
        except Denied:
            return False
        return True

    async def access(self) -> Access:
        """Who we are, and what the token lets us do."""
        return await access(self._at, self._repo, PULLS, self._fork)

    async def login(self) -> Author:
        """Who we are, if the token may do what we do."""
        return allowed(await self.access())

    def push_url(self) -> tuple[str, Mapping[str, str]]:
        """Where Git pushes to."""
        return self._at.git(self._fork or self._repo)

    def fetch_url(self) -> tuple[str, Mapping[str, str]]:
        """Where Git fetches bases from."""
        return self._at.git(self._repo)

    async def find(self, branch: str) -> PullState | None:
        """The open pull request of a branch, else its newest one."""
        listed = await self._listed(branch)
        if not listed:
            return None
        chosen = next((pull for pull in listed if pull["state"] == "open"), listed[0])
        return next(iter(await self.read([chosen["node_id"]])), None)

    async def _listed(self, branch: str) -> list[dict[str, str]]:
        """Its pull requests, the newest first."""
        http = await self._at.http()
        head = quote(f"{(self._fork or self._repo).partition('/')[0]}:{branch}", safe=":/")
        path = f"repos/{self._repo}/pulls?head={head}&state=all&sort=created&direction=desc&per_page=30"
        answer = await http.get(path, keep=_named)
        return [one for one in answer.data if one["branch"] == branch]

    async def get(self, number: int) -> PullState:
        """A pull request by its number."""
        owner, _, name = self._repo.partition("/")
        data, errors = await self._at.graphql(documents.GET, {"owner": owner, "name": name, "number": number})
        if data.get("repository") is None:
            await (await self._at.http()).get(f"repos/{self._repo}")  # raises what is the matter with it
        node = (data.get("repository") or {}).get("pullRequest")
        if node is None:
            raise NotFound(
                f"there is no pull request #{number} in {self._repo}", "see gh pr list, or the forge's own page"
            )
        return await self._understood(node, _login(data), [_path(error)[2:] for error in errors])

    async def open(self, spec: PullSpec) -> PullState:
        """Open a pull request, unless there is one."""
        existing = await self._open_one(spec.branch)
        if existing is not None:
            return existing
        http = await self._at.http()
        head = f"{self._fork.partition('/')[0]}:{spec.branch}" if self._fork else spec.branch
        title, text = spec.title[:LONGEST_TITLE], fitting(spec.body)
        body = {"title": title, "body": text, "head": head, "base": spec.base, "draft": spec.draft}
        answer = await http.call("POST", f"repos/{self._repo}/pulls", body, allow=(422,))
        if answer.status == 422 and spec.draft and "draft" in told(answer.data).lower():
            answer = await http.call("POST", f"repos/{self._repo}/pulls", {**body, "draft": False}, allow=(422,))
        if answer.status == 422:
            existing = await self._open_one(spec.branch)
            if existing is None:
                raise _not_opened(http, spec, answer)
            return existing
        found = await self.read([str(answer.data["node_id"])])
        if not found:
            raise Temporary(f"the pull request #{answer.data.get('number')} was opened, but cannot be read yet")
        return found[0]

    async def _open_one(self, branch: str) -> PullState | None:
        found = [pull["node_id"] for pull in await self._listed(branch) if pull["state"] == "open"]
        return next(iter(await self.read(found[:1])), None) if found else None

    async def read(self, ids: Sequence[str]) -> list[PullState]:
        """Pull requests with all their pages."""
        found: list[PullState] = []
        failed: list[str] = []
        for start in range(0, len(ids), BATCH):
            found += await self._batch(ids[start : start + BATCH], failed)
        if failed and not found:
            raise Temporary(f"GitHub could not tell of {len(failed)} pull requests of {self._repo}", "try again later")
        return found

    async def _batch(
        self, ids: Sequence[str], failed: list[str], without: frozenset[str] = frozenset(), *, paged: bool = False
    ) -> list[PullState]:
        """One query; where it is too much for the host, in halves; where a part cannot be told, once more without it.

        `paged`: what is left out is read page by page. A pull request of which nothing can be told takes none of the others along.
        """
        try:
            variables = {"ids": list(ids), **dict.fromkeys(without, False)}
            data, errors = await self._at.graphql(documents.READ, variables)
        except Temporary as error:
            if len(ids) == 1 and isinstance(error, TooLarge) and not without:
                return await self._batch(ids, failed, documents.TALK, paged=True)
            if len(ids) == 1 or error.until is not None:
                raise
            half = len(ids) // 2
            return [*await self._half(ids[:half], failed), *await self._half(ids[half:], failed)]
        found, again, parts = [], [], set(without)
        paths = [(_path(error), str(error.get("type", ""))) for error in errors]
        for index, node in enumerate(data.get("nodes") or []):
            own = [(path[2:], kind) for path, kind in paths if path[:2] == ("nodes", index)]
            if isinstance(node, dict) and node.get("__typename") == "PullRequest":
                node |= {part: _unread() for part in without if paged}
                found.append(await self._understood(node, _login(data), [path for path, _ in own]))
            elif node is None and own and not any(kind == "NOT_FOUND" for _, kind in own):
                again.append(ids[index])
                parts |= {path[0] for path, _ in own if path and path[0] in documents.PARTS}
        if again and parts > without:
            found += await self._batch(again, failed, frozenset(parts))
        else:
            failed += again
        return found

    async def _half(self, ids: Sequence[str], failed: list[str]) -> list[PullState]:
        try:
            return await self._batch(ids, failed)
        except Temporary as error:
            if len(ids) > 1 or error.until is not None or len(failed) >= MOST_FAILED:
                raise
            failed += ids
            return []

    async def _understood(self, node: Node, us: str, failed: Sequence[tuple[Any, ...]]) -> PullState:
        await complete(self._at.graphql, node)
        named = (node.get("repository") or {}).get("nameWithOwner")
        self._repo = str(named) if named else self._repo
        await self._rights.learn(await self._at.http(), self._repo, people_of(node))
        pull = pull_state(node, us, failed, self._rights.author)
        nothing = not pull.checks and pull.checks_expected is None and "checks" not in pull.unread
        if nothing and pull.state == "open" and node.get("baseRef") and not base_has_checks(node):
            pull = replace(pull, checks_expected=False if await self._has_workflows() is False else None)
        self._poll.was_read(pull, str(node.get("updatedAt") or ""))
        return pull

    async def _has_workflows(self) -> bool | None:
        """Does the repository have workflows; none: that cannot be known."""
        until, known = self._workflows
        if self._clock() < until:
            return known
        try:
            answer = await (await self._at.http()).get(f"repos/{self._repo}/actions/workflows?per_page=1")
            known = int(answer.data["total_count"]) > 0
        except (AoError, KeyError, TypeError, ValueError):
            known = None
        self._workflows = (self._clock() + WORKFLOWS_FOR, known)
        return known

    def bases(self) -> Mapping[str, BaseChecks]:
        """How the branches that changes land on were at the last poll."""
        return self._poll.bases

    async def changed(self, known: Sequence[Known]) -> Hint:
        """What may have changed since the last call."""
        hint = await self._poll.changed(await self._at.http(), self._repo, known)
        self._repo = hint.repo
        return hint

    async def ready(self, pull: PullState) -> None:
        """No draft any more."""
        http = await self._at.http()
        now = await http.get(f"repos/{self._repo}/pulls/{pull.number}", keep=lambda data: bool(data.get("draft")))
        if now.data:
            await self._at.graphql(documents.READY, {"id": pull.id}, safe=False)

    async def close(self, pull: PullState) -> None:
        """Close without landing."""
        http = await self._at.http()
        await http.call("PATCH", f"repos/{self._repo}/pulls/{pull.number}", {"state": "closed"}, safe=True)

    async def merge(self, pull: PullState, how: Merging) -> Merged | Waiting | Unmergeable:
        """Land exactly `how.head`, or have GitHub do so."""
        return await land(self._at, self._repo, pull, how)

    async def call_off(self, pull: PullState) -> None:
        """It lands by itself no more."""
        await call_off(self._at, pull)

    async def comment(self, pull: PullState, text: str, key: str) -> str:
        """Say something about the whole, once."""
        http = await self._at.http()
        path = f"repos/{self._repo}/issues/{pull.number}/comments"
        us = await self._at.login()
        said = await already_said(http, path, key, us)
        if said is not None:
            return said
        answer = await http.call("POST", path, {"body": marked(text, key)})
        return str(answer.data["node_id"])

    async def reply(self, pull: PullState, thread: str, text: str, key: str) -> str:
        """Answer in a discussion, once."""
        said = await self._answered(pull, thread, key)
        if said is not None:
            return said
        data, errors = await self._at.graphql(
            documents.REPLY, {"thread": thread, "body": marked(text, key)}, safe=False
        )
        made = data.get("addPullRequestReviewThreadReply") or {}
        if not made.get("comment"):
            raise Temporary(f"GitHub did not take the answer in #{pull.number}: {_first_message(errors)}")
        return str(made["comment"]["id"])

    async def _answered(self, pull: PullState, thread: str, key: str) -> str | None:
        """The id of our answer with this key in a discussion."""
        us = await self._at.login()
        after: str | None = None
        for _ in range(MOST_PAGES):
            data, _ = await self._at.graphql(documents.MORE["thread"], {"id": thread, "after": after})
            page = (data.get("node") or {}).get("page")
            if page is None:
                raise NotFound(f"the discussion is gone from #{pull.number}")
            for note in filter(None, page.get("nodes") or []):
                if bears(str(note.get("body")), key) and same(us, str((note.get("author") or {}).get("login"))):
                    return str(note["id"])
            if not page["pageInfo"]["hasNextPage"]:
                break
            after = page["pageInfo"]["endCursor"]
        return None

    async def resolve(self, thread: str) -> None:
        """A discussion is settled."""
        await self._at.graphql(documents.RESOLVE, {"id": thread})

    async def request_review(self, pull: PullState, people: Sequence[str]) -> None:
        """Ask people, or teams (`org/team`), to look at it."""
        http = await self._at.http()
        body = {
            "reviewers": [name.removeprefix("@") for name in people if "/" not in name],
            "team_reviewers": [name.rpartition("/")[2] for name in people if "/" in name],
        }
        path = f"repos/{self._repo}/pulls/{pull.number}/requested_reviewers"
        answer = await http.call("POST", path, body, safe=True, allow=(422,))
        if answer.status == 422:
            raise UsageError(
                f"{http.speaker.name} does not ask {', '.join(people)} to look at #{pull.number}: {told(answer.data)}",
                "name collaborators by their logins, and not the author; a team as org/team",
            )

    async def rerun(self, pull: PullState) -> int:
        """Run what failed at its head again."""
        http = await self._at.http()
        again, refused = 0, ""
        answer = await http.get(f"repos/{self._repo}/actions/runs?head_sha={pull.head}&per_page=100")
        for run in (answer.data or {}).get("workflow_runs") or []:
            if run.get("status") == "completed" and run.get("conclusion") in _FAILED:
                path = f"repos/{self._repo}/actions/runs/{run['id']}/rerun-failed-jobs"
                done = await http.call("POST", path, {}, allow=(403, 409, 422))
                again += done.status < 300
                refused = refused if done.status < 300 else told(done.data)
        for suite in await self._failed_suites(http, pull.head):
            done = await http.call(
                "POST", f"repos/{self._repo}/check-suites/{suite}/rerequest", {}, allow=(403, 404, 422)
            )
            again += done.status < 300
            refused = refused if done.status < 300 else told(done.data)
        if refused and not again:
            raise UsageError(f"GitHub does not run the checks of #{pull.number} again: {refused}")
        return again

    async def _failed_suites(self, http: Http, head: str) -> list[int]:
        """The suites of other apps than GitHub's own that failed."""
        answer = await http.get(f"repos/{self._repo}/commits/{head}/check-suites?per_page=100")
        return [
            int(suite["id"])
            for suite in (answer.data or {}).get("check_suites") or []
            if suite.get("conclusion") in _FAILED and (suite.get("app") or {}).get("slug") != "github-actions"
        ]

    async def log(self, job: str, most: int) -> bytes:
        """The end of what a job printed, without the time that GitHub puts before each line."""
        http = await self._at.http()
        return _STAMP.sub(b"", await http.tail(f"repos/{self._repo}/actions/jobs/{quote(job, safe='')}/logs", most))


def _unread() -> Node:
    """A connection of which all pages are to be read."""
    return {"nodes": [], "pageInfo": {"hasNextPage": True, "endCursor": None}}


def _named(pulls: Any) -> list[dict[str, str]]:
    """The little that is wanted of each pull request in a listing."""
    listed = pulls if isinstance(pulls, list) else []
    return [
        {"node_id": str(one["node_id"]), "state": str(one["state"]), "branch": str((one.get("head") or {}).get("ref"))}
        for one in listed
    ]


def _not_opened(http: Http, spec: PullSpec, answer: Answer) -> UsageError:
    said = told(answer.data)
    remedy = "push the branch first" if "head" in said and "invalid" in said else ""
    if "No commits between" in said:
        remedy = "there is nothing to land yet"
    return UsageError(f"{http.speaker.name} opens no pull request for {spec.branch}: {said}", remedy)


def _login(data: Mapping[str, Any]) -> str:
    return str((data.get("viewer") or {}).get("login") or "")


def _path(error: Mapping[str, Any]) -> tuple[Any, ...]:
    path = error.get("path")
    return tuple(path) if isinstance(path, list) else ()


def _first_message(errors: Sequence[Mapping[str, Any]]) -> str:
    return str(errors[0].get("message", "")) if errors else "no reason given"
