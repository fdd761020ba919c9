"""What may have changed in a project at GitLab, by conditional requests: one listing of merge requests, one of pipelines.

GitLab counts also what is unchanged, so there are few: the jobs of a pipeline are looked at only while it runs. Some things no listing
tells of (a discussion that was resolved, a base that moved): so every merge request is worth reading again after a while.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent_orchestrator.errors import Denied, NotFound
from agent_orchestrator.plugins.forges.github.people import when
from agent_orchestrator.plugins.forges.shared.http import FEW, Http, TooLarge
from agent_orchestrator.protocols.forge import BaseChecks, Hint, Known, PullState

MAX_AGE = 1_800.0
"""Older than this, a merge request is read again although nothing tells of a change."""
SLACK = 60.0
"""How far our clock and GitLab's may be apart."""
SOME = 5
"""Running pipelines whose jobs are looked at by one call."""
PAGE = 50
MOST_LISTINGS = 5
MOST_TRIES = 3
NO_PIPELINES_FOR = 3_600.0
_OF_REF = re.compile(r"refs/merge-requests/(\d{1,12})/\w+")


class _Change(NamedTuple):
    number: int
    updated: str
    head: str
    state: str
    base: str
    waits: bool


class _Pipeline(NamedTuple):
    id: int
    head: str
    ref: str
    state: tuple[str, str]


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
        self._changes: dict[int, _Change] | None = None
        self._pipelines: dict[int, _Pipeline] | None = None
        self._no_pipelines_until = 0.0
        self._running: dict[int, tuple[str, frozenset[tuple[int, str]]]] = {}
        self._undecided: dict[int, tuple[str, str, int]] = {}
        self._found = _Found()
        """What a call found that failed later on: it is not found again."""
        self.bases: dict[str, BaseChecks] = {}
        """How the branches are that changes land on, by their newest pipelines."""

    def was_read(
        self, pull: PullState, whole: Mapping[str, Any], jobs: str, states: frozenset[tuple[int, str]]
    ) -> None:
        """A merge request was read whole: what it says is news no more. `jobs`: where those of its pipeline are listed."""
        if self._changes is not None:
            seen = _change(whole)
            self._changes[seen.number] = seen
        if jobs:
            self._running[pull.number] = (jobs, states)
        else:
            self._running.pop(pull.number, None)
        if pull.state != "open" or pull.mergeable != "unknown":
            self._undecided.pop(pull.number, None)
        elif self._undecided.get(pull.number, ("", "", 0))[:2] != (pull.head, pull.base_head):
            self._undecided[pull.number] = (pull.head, pull.base_head, MOST_TRIES)

    async def changed(self, http: Http, project: int, repo: str, known: Sequence[Known]) -> Hint:
        """What is worth reading."""
        found, now = self._found, self._clock()
        await self._ask_changes(http, project, known, found)
        busy = [one for one in known if not one.settled]
        if (busy or self._calls % 2 == 0) and now >= self._no_pipelines_until:
            await self._ask_pipelines(http, project, known, found)
        self._calls += 1
        await self._ask_jobs(http, busy, found)
        for one in known:
            head, base, tries = self._undecided.get(one.number, ("", "", 0))
            if tries > 0:
                self._undecided[one.number] = (head, base, tries - 1)
                found.pulls.add(one.number)
        found.pulls |= {one.number for one in known if now - one.read_at > self._max_age}
        numbers = {one.number for one in known}
        self._running = {number: jobs for number, jobs in self._running.items() if number in numbers}
        self._undecided = {number: tries for number, tries in self._undecided.items() if number in numbers}
        self._found = _Found()
        return Hint(repo, tuple(sorted(found.pulls)), tuple(sorted(found.heads)), tuple(sorted(found.branches)))

    async def _ask_changes(self, http: Http, project: int, known: Sequence[Known], found: _Found) -> None:
        before, by_number = self._changes, {one.number: one for one in known}
        oldest = min((one.read_at for one in known), default=self._clock()) - SLACK
        try:
            seen = await self._newest(http, project, oldest, PAGE)
        except TooLarge:  # whoever opens merge requests may describe them without end
            seen = await self._newest(http, project, oldest, FEW)
        for number, change in seen.items():
            was, one = (before or {}).get(number), by_number.get(number)
            if was is not None:
                news = was != change
            elif one is not None:
                news = change.head != one.head or when(change.updated) > one.read_at - SLACK
            else:
                news = before is not None
            if news:
                found.pulls.add(number)
                if change.state == "merged":
                    found.branches.add(change.base)
        self._changes = {**{number: one for number, one in (before or {}).items() if number in by_number}, **seen}

    async def _newest(self, http: Http, project: int, oldest: float, size: int) -> dict[int, _Change]:
        """Merge requests, those that changed last first, by pages of this size, back to what is known."""
        before = self._changes
        newest = max((one.updated for one in before.values()), default="") if before else ""
        seen: dict[int, _Change] = {}
        for page in range(1, MOST_LISTINGS * PAGE // size + 1):
            more = f"&page={page}" if page > 1 else ""
            query = f"scope=all&state=all&order_by=updated_at&sort=desc&per_page={size}{more}"
            answer = await http.get(f"projects/{project}/merge_requests?{query}", keep=_changes)
            listed: list[_Change] = answer.data
            seen |= {one.number: one for one in listed}
            last = listed[-1].updated if listed else ""
            enough = last < newest if before is not None else when(last) < oldest
            if len(listed) < size or enough or (answer.unchanged and before is not None):
                break
        return seen

    async def _ask_pipelines(self, http: Http, project: int, known: Sequence[Known], found: _Found) -> None:
        before = self._pipelines
        path = f"projects/{project}/pipelines?order_by=updated_at&sort=desc&per_page={PAGE}"
        try:
            answer = await http.get(path, keep=_pipelines)
        except (Denied, NotFound):  # CI is switched off, or its pipelines are not for us
            self._no_pipelines_until = self._clock() + NO_PIPELINES_FOR
            return
        read_at = {one.head: one.read_at for one in known}
        seen: dict[int, _Pipeline] = {one.id: one for one in answer.data}
        for number, one in seen.items():
            was = (before or {}).get(number)
            if before is None:
                news = one.head in read_at and when(one.state[1]) > read_at[one.head] - SLACK
            else:
                news = was != one
            if news:
                found.heads.add(one.head)
                found.pulls |= {int(match[1]) for match in [_OF_REF.fullmatch(one.ref)] if match}
        self._pipelines = seen
        bases = {change.base for change in (self._changes or {}).values()}
        self.bases |= {base: checks for base in bases if (checks := _base_checks(seen.values(), base))}

    async def _ask_jobs(self, http: Http, busy: Sequence[Known], found: _Found) -> None:
        """The jobs of some pipelines that run, in turn."""
        wanted = [one.number for one in busy if one.number in self._running and one.number not in found.pulls]
        if not wanted:
            return
        start = self._turn % len(wanted)
        self._turn += SOME
        for number in (wanted[start:] + wanted[:start])[:SOME]:
            path, states = self._running[number]
            try:
                answer = await http.get(path)
            except (Denied, NotFound):
                found.pulls.add(number)
                continue
            if job_states(answer.data) != states:
                found.pulls.add(number)


def _base_checks(pipelines: Iterable[_Pipeline], base: str) -> BaseChecks | None:
    """How a branch is by its newest pipeline; none: none of them is listed any more."""
    told = [one for one in pipelines if one.ref == base and one.state[0] != "skipped"]
    if not told:
        return None
    newest = max(told)
    if newest.state[0] in ("failed", "canceled"):
        return BaseChecks(newest.head, "red", ("pipeline",))
    return BaseChecks(newest.head, "green" if newest.state[0] in ("success", "manual") else "running")


def job_states(jobs: Any) -> frozenset[tuple[int, str]]:
    """Which jobs there are, and how far each is."""
    return frozenset((int(job.get("id") or 0), str(job.get("status"))) for job in _dicts(jobs))


def _changes(data: Any) -> list[_Change]:
    return [_change(one) for one in _dicts(data)]


def _change(one: Mapping[str, Any]) -> _Change:
    waits = bool(one.get("merge_when_pipeline_succeeds"))
    updated, head, state, base = (str(one.get(key) or "") for key in ("updated_at", "sha", "state", "target_branch"))
    return _Change(int(one["iid"]), updated, head, state, base, waits)


def _pipelines(data: Any) -> list[_Pipeline]:
    return [
        _Pipeline(int(one["id"]), str(one["sha"]), str(one["ref"]), (str(one["status"]), str(one.get("updated_at"))))
        for one in _dicts(data)
    ]


def _dicts(data: Any) -> list[Mapping[str, Any]]:
    return [one for one in data if isinstance(one, Mapping)] if isinstance(data, list) else []
