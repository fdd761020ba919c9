"""How the work goes, day by day (UTC): what began and landed, how long that took, how often agents were asked again, what it cost."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts, Usage
from agent_orchestrator.fleet.usage.usage import usage_json

PAGE = 5000
_KINDS = ("pr-opened", "pr-merged", "reacted")
_RETRIES = frozenset({"send-to-agent", "restart", "rerun-ci"})
"""Actions by which an agent gets another try."""


@dataclass(slots=True)
class _Day:
    opened: int = 0
    landed: int = 0
    took: list[float] = field(default_factory=list)
    retries: Counter[str] = field(default_factory=Counter)


class Tally:
    """Adds events up by project and day."""

    def __init__(self) -> None:
        self._days: defaultdict[tuple[str, str], _Day] = defaultdict(_Day)
        self._opened: dict[str, float] = {}

    def add(self, event: Event) -> None:
        """Count one more."""
        day = self._days[event.project or "", _day(event.time)]
        match event.body:
            case e.PrOpened():
                day.opened += 1
                self._opened[event.session or ""] = event.time
            case e.PrMerged():
                day.landed += 1
                if (since := self._opened.get(event.session or "")) is not None:
                    day.took.append(max(event.time - since, 0.0))
            case e.Reacted() if event.body.action in _RETRIES:
                day.retries[event.body.trigger] += 1

    def of(self, project: str | None, day: str) -> _Day:
        """One day of a project, or of all."""
        total = _Day()
        for (whose, when), one in self._days.items():
            if when == day and project in (None, whose):
                total.opened += one.opened
                total.landed += one.landed
                total.took += one.took
                total.retries += one.retries
        return total


class Stats:
    """Reads the log once, and then only what is new in it."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._tally = Tally()
        self._read: dict[str, int] = dict.fromkeys(_KINDS, 0)
        self._reading = asyncio.Lock()

    async def table(self, project: str | None, days: int) -> dict[str, Any]:
        """The last so many days, the oldest first; those on which nothing happened too."""
        async with self._reading:
            for kind in _KINDS:
                await self._read_on(kind)
        today = datetime.fromtimestamp(self.flow.clock(), UTC).date()
        wanted = [str(today - timedelta(days=back)) for back in reversed(range(days))]
        sessions = [facts for facts in self.flow.sessions.values() if project in (None, facts.project)]
        began, used = Counter(_day(facts.created_at) for facts in sessions), _used(sessions)
        found = {day: self._tally.of(project, day) for day in wanted}
        took = [seconds for one in found.values() for seconds in one.took]
        return {
            "days": [_json(day, found[day], began[day], used.get(day, Usage())) for day in wanted],
            "medianToMerge": _median(took),
        }

    async def _read_on(self, kind: str) -> None:
        newest = self.flow.seq
        while page := await self.flow.store.events(self._read[kind], PAGE, kind=kind):
            for event in page:
                self._tally.add(event)
            self._read[kind] = page[-1].seq
            if len(page) < PAGE:
                break
        self._read[kind] = max(self._read[kind], newest)  # what lies before need not be looked through again


def _used(sessions: Iterable[SessionFacts]) -> Mapping[str, Usage]:
    found: dict[str, Usage] = {}
    for facts in sessions:
        for place, one in facts.spent.items():
            day = place.partition(" ")[0]
            found[day] = found.get(day, Usage()).plus(one)
    return found


def _json(day: str, one: _Day, began: int, used: Usage) -> dict[str, Any]:
    return {
        "day": day,
        "started": began,
        "opened": one.opened,
        "landed": one.landed,
        "medianToMerge": _median(one.took),
        "retries": dict(sorted(one.retries.items())),
        **usage_json(used),
    }


def _median(seconds: Sequence[float]) -> float | None:
    return round(median(seconds), 3) if seconds else None


def _day(time: float) -> str:
    return rfc3339(time)[:10]
