"""What may have changed in a repository at GitHub, by conditional requests: while nothing has, they cost nothing.

One listing tells of everything that touches a pull request but its checks; one of the workflows' runs tells of those. Checks of others
are looked at one commit at a time, and only while they have not all ended. Some things no listing tells of (a discussion that was
resolved, a base that moved): so every pull request is worth reading again after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from agent_orchestrator.errors import Denied, NotFound, UsageError
from agent_orchestrator.plugins.forges.github.people import when
from agent_orchestrator.plugins.forges.github.pull_request_reader import check_state
from agent_orchestrator.plugins.forges.shared.http import Http
from agent_orchestrator.protocols.forge import BaseChecks, Hint, Known, PullState

MAX_AGE = 1_800.0
"""Older than this, a pull request is read again although nothing tells of a change."""
SLACK = 60.0
"""How far our clock and GitHub's may be apart."""
SAME_SECOND = 5.0
"""GitHub tells times in seconds: what was read so soon after a change may have missed another one."""
SOME = 5
"""Commits whose checks are looked at by one call."""
MOST_LISTINGS = 5
MOST_TRIES = 3
NO_ACTIONS_FOR = 3_600.0
_BAD = ("failure", "timed_out", "cancelled")
_GONE = frozenset({("the commit", "gone")})


class _Pull(NamedTuple):
    number: int
    updated: str
    head: str
    state: str
    branch: str
    base: str
    merged: bool


class _Run(NamedTuple):
    id: int
    head: str
    state: tuple[str, str, int, str]
    branch: str
    event: str
    workflow: str


@dataclass(slots=True)
class _Found:
    pulls: set[int] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)
    branches: set[str] = field(default_factory=set)


class Poll:
    """Remembers what the last call saw; after a restart it starts from what is known."""

    def __init__(self, clock: Callable[[], float], max_age: float = MAX_AGE) -> None:
        self._clock = clock
        self._max_age = max_age
        self._calls = 0
        self._turn = 0
        self._pulls: dict[int, _Pull] | None = None
        self._runs: dict[int, _Run] | None = None
        self._no_actions_until = 0.0
        self._checks: dict[str, frozenset[tuple[str, str]]] = {}
        self._undecided: dict[int, tuple[str, str, int]] = {}
        self._early: dict[int, str] = {}
        """The change after which a pull request was read once more."""
        self._found = _Found()
        """What a call found that failed later on: it is not found again."""
        self.repo: str | None = None
        """The repository's name as the last answer has it."""
        self.bases: dict[str, BaseChecks] = {}
        """How the branches are that changes land on, by what their pushes set off in Actions."""

    def was_read(self, pull: PullState, updated: str) -> None:
        """A pull request was read whole: what it says is news no more."""
        if self._pulls is not None and abs(self._clock() - when(updated)) > SAME_SECOND:
            merged = pull.state == "merged"
            state = "open" if pull.state == "open" else "closed"
            self._pulls[pull.number] = _Pull(pull.number, updated, pull.head, state, pull.branch, pull.base, merged)
        if "checks" not in pull.unread:
            checks = ((one.id if one.job else one.name.rpartition(" / ")[2], one.state) for one in pull.checks)
            self._checks.setdefault(pull.head, frozenset(checks))
        if pull.state != "open" or pull.mergeable != "unknown":
            self._undecided.pop(pull.number, None)
            return
        if self._undecided.get(pull.number, ("", "", 0))[:2] != (pull.head, pull.base_head):
            self._undecided[pull.number] = (pull.head, pull.base_head, MOST_TRIES)

    async def changed(self, http: Http, repo: str, known: Sequence[Known]) -> Hint:
        """What is worth reading."""
        found = self._found
        now = self._clock()
        await self._ask_pulls(http, repo, known, found)
        known = [self._there(one) for one in known]
        busy = [one for one in known if not one.settled]
        if (busy or self._calls % 2 == 0) and now >= self._no_actions_until:
            await self._ask_runs(http, repo, known, found)
        self._calls += 1
        await self._ask_checks(http, repo, busy, found)
        for one in known:
            head, base, tries = self._undecided.get(one.number, ("", "", 0))
            if tries > 0:
                self._undecided[one.number] = (head, base, tries - 1)
                found.pulls.add(one.number)
        found.pulls |= {one.number for one in known if now - one.read_at > self._max_age or self._is_early(one, now)}
        self._forget(known)
        self._found = _Found()
        return Hint(
            self.repo or repo, tuple(sorted(found.pulls)), tuple(sorted(found.heads)), tuple(sorted(found.branches))
        )

    def _is_early(self, one: Known, now: float) -> bool:
        """Was it read in the very second of its last change? GitHub tells of no other one in that second: it is read once more."""
        listed = (self._pulls or {}).get(one.number)
        if listed is None or one.read_at > when(listed.updated) + SAME_SECOND or now - one.read_at < SAME_SECOND:
            return False
        early = self._early.get(one.number) != listed.updated
        self._early[one.number] = listed.updated
        return early

    def _there(self, one: Known) -> Known:
        """With the head that it has at GitHub: here it may be ahead by what is not pushed yet."""
        listed = (self._pulls or {}).get(one.number)
        return replace(one, head=listed.head) if listed and listed.head else one

    async def _ask_pulls(self, http: Http, repo: str, known: Sequence[Known], found: _Found) -> None:
        before = self._pulls
        by_number = {one.number: one for one in known}
        newest = max((pull.updated for pull in before.values()), default="") if before else ""
        oldest = min((one.read_at for one in known), default=self._clock()) - SLACK
        seen: dict[int, _Pull] = {}
        for page in range(1, MOST_LISTINGS + 1):
            more = f"&page={page}" if page > 1 else ""
            path = f"repos/{repo}/pulls?state=all&sort=updated&direction=desc&per_page=100{more}"
            answer = await http.get(path, keep=_pulls)
            name, listed = answer.data
            self.repo = name or self.repo
            seen |= {pull.number: pull for pull in listed}
            last = listed[-1].updated if listed else ""
            enough = last < newest if before is not None else when(last) < oldest
            if len(listed) < 100 or enough or (answer.unchanged and before is not None):
                break
        for number, pull in seen.items():
            one = by_number.get(number)
            was = (before or {}).get(number)
            if was is not None:
                news = was[1:4] != pull[1:4]
            elif one is not None:
                news = pull.head != one.head or when(pull.updated) > one.read_at - SLACK
            else:
                news = before is not None
            if not news:
                continue
            found.pulls.add(number)
            if one is None:
                found.branches.add(pull.branch)
            if pull.merged and not (was is not None and was.merged):
                found.branches.add(pull.base)
        self._pulls = {**(before or {}), **seen}

    async def _ask_runs(self, http: Http, repo: str, known: Sequence[Known], found: _Found) -> None:
        try:
            answer = await http.get(f"repos/{repo}/actions/runs?per_page=100", keep=_runs)
        except (NotFound, Denied):
            self._no_actions_until = self._clock() + NO_ACTIONS_FOR
            return
        read = {one.head: one.read_at for one in known}
        bases = {pull.base for pull in (self._pulls or {}).values()}
        for run in answer.data:
            was = (self._runs or {}).get(run.id)
            if run.head in read:
                fresh = when(run.state[3]) > read[run.head] - SLACK if self._runs is None else was != run
                if fresh:
                    found.heads.add(run.head)
            elif self._runs is not None and was is None and run.event == "push" and run.branch in bases:
                found.branches.add(run.branch)
        self._runs = {run.id: run for run in answer.data}
        self.bases |= {base: checks for base in bases if (checks := _base_checks(answer.data, base))}

    async def _ask_checks(self, http: Http, repo: str, busy: Sequence[Known], found: _Found) -> None:
        """The checks of some commits, each in its turn."""
        if not busy:
            return
        start = self._turn % len(busy)
        chosen = [*busy[start:], *busy[:start]][:SOME]
        self._turn = start + len(chosen)
        for one in chosen:
            try:
                runs = await http.get(f"repos/{repo}/commits/{one.head}/check-runs?per_page=100", keep=_check_runs)
                statuses = await http.get(f"repos/{repo}/commits/{one.head}/status?per_page=100", keep=_statuses)
                now = frozenset(runs.data) | frozenset(statuses.data)
            except (NotFound, UsageError):  # the commit is gone: the branch was pushed by force
                now = _GONE
            if self._checks.get(one.head) != now:
                found.heads.add(one.head)
                found.pulls |= {one.number} if now is _GONE else set()
            self._checks[one.head] = now

    def _forget(self, known: Sequence[Known]) -> None:
        """Keep no more than what the next call compares with."""
        heads = {one.head for one in known}
        self._checks = {head: checks for head, checks in self._checks.items() if head in heads}
        numbers = {one.number for one in known}
        self._undecided = {number: one for number, one in self._undecided.items() if number in numbers}
        self._early = {number: one for number, one in self._early.items() if number in numbers}
        if self._pulls is not None and len(self._pulls) > 1_000:
            newest = sorted(self._pulls.values(), key=lambda pull: pull.updated, reverse=True)[:500]
            self._pulls = {pull.number: pull for pull in newest}


def _pulls(data: Any) -> tuple[str | None, list[_Pull]]:
    """The repository's name and the little of each pull request that is compared."""
    listed = []
    name = None
    for pull in _dicts(data):
        head, base = _dict(pull.get("head")), _dict(pull.get("base"))
        name = name or _dict(base.get("repo")).get("full_name")
        listed.append(
            _Pull(
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


def _runs(data: Any) -> list[_Run]:
    return [
        _Run(
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


def _state(run: _Run) -> str:
    status, conclusion = run.state[:2]
    return check_state(status, None if conclusion == "None" else conclusion)


def _base_checks(runs: Sequence[_Run], base: str) -> BaseChecks | None:
    """How the newest commit of a branch is, of each workflow the newest run; none: none of them is listed any more."""
    pushed = sorted(run for run in runs if run.branch == base and run.event == "push")
    if not pushed:
        return None
    head = pushed[-1].head
    states = {run.workflow: _state(run) for run in pushed if run.head == head}
    failing = tuple(sorted(name for name, state in states.items() if state in _BAD))
    if failing:
        return BaseChecks(head, "red", failing)
    return BaseChecks(head, "running" if set(states.values()) & {"queued", "running"} else "green")


def _check_runs(data: Any) -> list[tuple[str, str]]:
    return [
        (
            str(run.get("id")) if _dict(run.get("app")).get("slug") == "github-actions" else str(run.get("name")),
            check_state(str(run.get("status")), run.get("conclusion")),
        )
        for run in _dicts(_dict(data).get("check_runs"))
    ]


def _statuses(data: Any) -> list[tuple[str, str]]:
    words = {"success": "success", "pending": "running"}
    return [
        (str(status.get("context")), words.get(str(status.get("state")), "failure"))
        for status in _dicts(_dict(data).get("statuses"))
    ]


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _dicts(value: Any) -> Iterable[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
