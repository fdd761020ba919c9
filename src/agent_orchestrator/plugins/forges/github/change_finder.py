"""Find what may have changed in a repository at GitHub, by conditional requests: while nothing has changed, they cost nothing.

One listing shows every change of a pull request except its checks; one listing of workflow runs shows the checks of Actions. Checks of
other apps are read one commit at a time, and only while some have not ended. Some changes are in no listing (a resolved discussion, a
moved base branch), so every pull request is read again after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from agent_orchestrator.errors import Denied, NotFound, UsageError
from agent_orchestrator.plugins.forges.github.pull_request_reader import check_state
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient
from agent_orchestrator.plugins.forges.shared.timestamps import parse_time
from agent_orchestrator.protocols.forge import BaseChecks, Hint, KnownPullRequest, PullRequestState

MAX_AGE = 1_800.0
"""Seconds after which a pull request is read again although no change was seen."""
CLOCK_TOLERANCE = 60.0
"""Seconds by which our clock and GitHub's may differ."""
TIMESTAMP_TOLERANCE = 5.0
"""GitHub's times are whole seconds: a reading this soon after a change may have missed another one. In seconds."""
CHECKED_COMMITS_PER_POLL = 5
"""Commits whose checks one call reads."""
MAX_LISTING_PAGES = 5
"""Pages of the listing of pull requests that one call reads."""
MAX_MERGEABILITY_READS = 3
"""Readings of one pair of head and base after which an unknown mergeability is left as it is."""
ACTIONS_RETRY_SECONDS = 3_600.0
"""Seconds for which runs are not listed after GitHub refused to."""
_FAILED_STATES = ("failure", "timed_out", "cancelled")
"""States that make a base branch red."""
_COMMIT_GONE = frozenset({("the commit", "gone")})
"""The checks of a commit that does not exist any more."""


class _ListedPullRequest(NamedTuple):
    """The part of a pull request that is compared with the last listing."""

    number: int
    updated: str
    head: str
    state: str
    branch: str
    base: str
    merged: bool


class _ListedWorkflowRun(NamedTuple):
    """The part of a workflow run that is compared with the last listing."""

    id: int
    head: str
    state: tuple[str, str, int, str]
    branch: str
    event: str
    workflow: str


@dataclass(slots=True)
class _GitHubFindings:
    """What one call found so far."""

    pulls: set[int] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)
    branches: set[str] = field(default_factory=set)


class GitHubChangeFinder:
    """Finds changes of one repository. It compares with the last call; after a restart, with what is known of sessions' pull requests."""

    def __init__(self, clock: Callable[[], float], max_age: float = MAX_AGE) -> None:
        self._clock = clock
        self._max_age = max_age
        self._calls = 0
        self._next_commit = 0
        self._pulls: dict[int, _ListedPullRequest] | None = None
        self._runs: dict[int, _ListedWorkflowRun] | None = None
        self._no_actions_until = 0.0
        self._checks: dict[str, frozenset[tuple[str, str]]] = {}
        self._unknown_mergeable: dict[int, tuple[str, str, int]] = {}
        self._reread_after: dict[int, str] = {}
        """By pull request, the change after which it was read once more."""
        self._findings = _GitHubFindings()
        """What a call found before it failed: the next call reports it, because it would not find it again."""
        self.repo: str | None = None
        """The repository's name in the last answer."""
        self.base_checks: dict[str, BaseChecks] = {}
        """The checks of the base branches, from the workflow runs that pushes to them started."""

    def record_read(self, pull: PullRequestState, updated: str) -> None:
        """Record that a pull request was read: its present state is not a change any more."""
        if self._pulls is not None and abs(self._clock() - parse_time(updated)) > TIMESTAMP_TOLERANCE:
            merged = pull.state == "merged"
            state = "open" if pull.state == "open" else "closed"
            self._pulls[pull.number] = _ListedPullRequest(
                pull.number, updated, pull.head, state, pull.branch, pull.base, merged
            )
        if "checks" not in pull.unread:
            checks = (
                (check.id if check.job else check.name.rpartition(" / ")[2], check.state) for check in pull.checks
            )
            self._checks.setdefault(pull.head, frozenset(checks))
        if pull.state != "open" or pull.mergeable != "unknown":
            self._unknown_mergeable.pop(pull.number, None)
            return
        if self._unknown_mergeable.get(pull.number, ("", "", 0))[:2] != (pull.head, pull.base_head):
            self._unknown_mergeable[pull.number] = (pull.head, pull.base_head, MAX_MERGEABILITY_READS)

    async def find_changes(self, http: ForgeHttpClient, repo: str, pulls: Sequence[KnownPullRequest]) -> Hint:
        """Return what is worth reading."""
        findings = self._findings
        now = self._clock()
        await self._poll_pulls(http, repo, pulls, findings)
        pulls = [self._with_head_at_github(pull) for pull in pulls]
        busy = [pull for pull in pulls if not pull.settled]
        if (busy or self._calls % 2 == 0) and now >= self._no_actions_until:
            await self._poll_runs(http, repo, pulls, findings)
        self._calls += 1
        await self._poll_checks(http, repo, busy, findings)
        for pull in pulls:
            head, base, tries = self._unknown_mergeable.get(pull.number, ("", "", 0))
            if tries > 0:
                self._unknown_mergeable[pull.number] = (head, base, tries - 1)
                findings.pulls.add(pull.number)
        findings.pulls |= {
            pull.number for pull in pulls if now - pull.read_at > self._max_age or self._needs_second_read(pull, now)
        }
        self._forget(pulls)
        self._findings = _GitHubFindings()
        return Hint(
            self.repo or repo,
            tuple(sorted(findings.pulls)),
            tuple(sorted(findings.heads)),
            tuple(sorted(findings.branches)),
        )

    def _needs_second_read(self, known_pull: KnownPullRequest, now: float) -> bool:
        """Return whether a pull request must be read once more because it was read in the second of its last change.

        GitHub shows no other change of that second in its listing.
        """
        listed = (self._pulls or {}).get(known_pull.number)
        if (
            listed is None
            or known_pull.read_at > parse_time(listed.updated) + TIMESTAMP_TOLERANCE
            or now - known_pull.read_at < TIMESTAMP_TOLERANCE
        ):
            return False
        is_first = self._reread_after.get(known_pull.number) != listed.updated
        self._reread_after[known_pull.number] = listed.updated
        return is_first

    def _with_head_at_github(self, known_pull: KnownPullRequest) -> KnownPullRequest:
        """Return the pull request with its head at GitHub; the local head may have commits that are not pushed yet."""
        listed = (self._pulls or {}).get(known_pull.number)
        return replace(known_pull, head=listed.head) if listed and listed.head else known_pull

    async def _poll_pulls(
        self, http: ForgeHttpClient, repo: str, known_pulls: Sequence[KnownPullRequest], findings: _GitHubFindings
    ) -> None:
        """Read the listing of pull requests, newest change first, back to what is known, and note the changed ones."""
        former_pulls = self._pulls
        by_number = {known_pull.number: known_pull for known_pull in known_pulls}
        newest = max((pull.updated for pull in former_pulls.values()), default="") if former_pulls else ""
        oldest = min((known_pull.read_at for known_pull in known_pulls), default=self._clock()) - CLOCK_TOLERANCE
        pulls: dict[int, _ListedPullRequest] = {}
        for page in range(1, MAX_LISTING_PAGES + 1):
            page_parameter = f"&page={page}" if page > 1 else ""
            path = f"repos/{repo}/pulls?state=all&sort=updated&direction=desc&per_page=100{page_parameter}"
            answer = await http.get(path, keep=_parse_pull_requests)
            name, listed = answer.data
            self.repo = name or self.repo
            pulls |= {pull.number: pull for pull in listed}
            oldest_listed = listed[-1].updated if listed else ""
            is_complete = oldest_listed < newest if former_pulls is not None else parse_time(oldest_listed) < oldest
            if len(listed) < 100 or is_complete or (answer.unchanged and former_pulls is not None):
                break
        for number, pull in pulls.items():
            known_pull = by_number.get(number)
            former = (former_pulls or {}).get(number)
            if former is not None:
                is_changed = former[1:4] != pull[1:4]
            elif known_pull is not None:
                is_changed = (
                    pull.head != known_pull.head or parse_time(pull.updated) > known_pull.read_at - CLOCK_TOLERANCE
                )
            else:
                is_changed = former_pulls is not None
            if not is_changed:
                continue
            findings.pulls.add(number)
            if known_pull is None:
                findings.branches.add(pull.branch)
            if pull.merged and not (former is not None and former.merged):
                findings.branches.add(pull.base)
        self._pulls = {**(former_pulls or {}), **pulls}

    async def _poll_runs(
        self, http: ForgeHttpClient, repo: str, known_pulls: Sequence[KnownPullRequest], findings: _GitHubFindings
    ) -> None:
        """Read the listing of workflow runs; note the heads whose runs changed, and the base branches with a new run."""
        try:
            answer = await http.get(f"repos/{repo}/actions/runs?per_page=100", keep=_parse_workflow_runs)
        except (NotFound, Denied):
            self._no_actions_until = self._clock() + ACTIONS_RETRY_SECONDS
            return
        read_times = {known_pull.head: known_pull.read_at for known_pull in known_pulls}
        bases = {pull.base for pull in (self._pulls or {}).values()}
        for run in answer.data:
            former = (self._runs or {}).get(run.id)
            if run.head in read_times:
                is_changed = (
                    parse_time(run.state[3]) > read_times[run.head] - CLOCK_TOLERANCE
                    if self._runs is None
                    else former != run
                )
                if is_changed:
                    findings.heads.add(run.head)
            elif self._runs is not None and former is None and run.event == "push" and run.branch in bases:
                findings.branches.add(run.branch)
        self._runs = {run.id: run for run in answer.data}
        self.base_checks |= {base: checks for base in bases if (checks := _base_checks(answer.data, base))}

    async def _poll_checks(
        self, http: ForgeHttpClient, repo: str, busy: Sequence[KnownPullRequest], findings: _GitHubFindings
    ) -> None:
        """Read the checks of a few commits per call, in rotation, and note those that changed."""
        if not busy:
            return
        start = self._next_commit % len(busy)
        chosen = [*busy[start:], *busy[:start]][:CHECKED_COMMITS_PER_POLL]
        self._next_commit = start + len(chosen)
        for pull in chosen:
            try:
                runs = await http.get(
                    f"repos/{repo}/commits/{pull.head}/check-runs?per_page=100", keep=_parse_check_runs
                )
                statuses = await http.get(f"repos/{repo}/commits/{pull.head}/status?per_page=100", keep=_parse_statuses)
                states = frozenset(runs.data) | frozenset(statuses.data)
            except (NotFound, UsageError):  # the commit is gone after a force push
                states = _COMMIT_GONE
            if self._checks.get(pull.head) != states:
                findings.heads.add(pull.head)
                findings.pulls |= {pull.number} if states is _COMMIT_GONE else set()
            self._checks[pull.head] = states

    def _forget(self, known_pulls: Sequence[KnownPullRequest]) -> None:
        """Forget everything that the next call does not compare with."""
        heads = {entry.head for entry in known_pulls}
        self._checks = {head: checks for head, checks in self._checks.items() if head in heads}
        numbers = {entry.number for entry in known_pulls}
        self._unknown_mergeable = {
            number: entry for number, entry in self._unknown_mergeable.items() if number in numbers
        }
        self._reread_after = {number: entry for number, entry in self._reread_after.items() if number in numbers}
        if self._pulls is not None and len(self._pulls) > 1_000:
            newest = sorted(self._pulls.values(), key=lambda pull: pull.updated, reverse=True)[:500]
            self._pulls = {pull.number: pull for pull in newest}


def _parse_pull_requests(data: Any) -> tuple[str | None, list[_ListedPullRequest]]:
    """Return the repository's name and the compared part of each pull request in a listing."""
    listed = []
    name = None
    for pull in _dicts(data):
        head, base = _dict(pull.get("head")), _dict(pull.get("base"))
        name = name or _dict(base.get("repo")).get("full_name")
        listed.append(
            _ListedPullRequest(
                int(pull.get("number") or 0),
                str(pull.get("updated_at") or ""),
                str(head.get("sha") or ""),
                str(pull.get("state") or ""),
                str(head.get("ref") or ""),
                str(base.get("ref") or ""),
                bool(pull.get("merged_at")),
            )
        )
    return name, listed


def _parse_workflow_runs(data: Any) -> list[_ListedWorkflowRun]:
    """Return the compared part of each workflow run in a listing."""
    return [
        _ListedWorkflowRun(
            int(run.get("id") or 0),
            str(run.get("head_sha") or ""),
            (
                str(run.get("status")),
                str(run.get("conclusion")),
                int(run.get("run_attempt") or 1),
                str(run.get("updated_at") or ""),
            ),
            str(run.get("head_branch") or ""),
            str(run.get("event") or ""),
            str(run.get("name") or "workflow"),
        )
        for run in _dicts(_dict(data).get("workflow_runs"))
    ]


def _state_of_run(run: _ListedWorkflowRun) -> str:
    """Return our state of a workflow run."""
    status, conclusion = run.state[:2]
    return check_state(status, None if conclusion == "None" else conclusion)


def _base_checks(runs: Sequence[_ListedWorkflowRun], base: str) -> BaseChecks | None:
    """Return the checks of a base branch, or None if the listing has no run for it.

    Of the newest listed commit, the newest run of each workflow counts.
    """
    pushed = sorted(run for run in runs if run.branch == base and run.event == "push")
    if not pushed:
        return None
    head = pushed[-1].head
    states = {run.workflow: _state_of_run(run) for run in pushed if run.head == head}
    failing = tuple(sorted(name for name, state in states.items() if state in _FAILED_STATES))
    if failing:
        return BaseChecks(head, "red", failing)
    return BaseChecks(head, "running" if set(states.values()) & {"queued", "running"} else "green")


def _parse_check_runs(data: Any) -> list[tuple[str, str]]:
    """Return a key and our state for each check run. The key is the id for Actions, and the name for other apps."""
    return [
        (
            str(check_run.get("id"))
            if _dict(check_run.get("app")).get("slug") == "github-actions"
            else str(check_run.get("name")),
            check_state(str(check_run.get("status")), check_run.get("conclusion")),
        )
        for check_run in _dicts(_dict(data).get("check_runs"))
    ]


def _parse_statuses(data: Any) -> list[tuple[str, str]]:
    """Return the name and our state of each commit status."""
    states = {"success": "success", "pending": "running"}
    return [
        (str(status.get("context")), states.get(str(status.get("state")), "failure"))
        for status in _dicts(_dict(data).get("statuses"))
    ]


def _dict(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def _dicts(value: Any) -> Iterable[Mapping[str, Any]]:
    """Return the objects in a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
