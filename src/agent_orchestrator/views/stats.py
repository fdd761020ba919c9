"""Statistics by day (UTC): sessions started, pull requests opened and merged, time to merge, retries, and usage."""

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
from agent_orchestrator.fleet.usage.usage_reports import usage_json

EVENTS_PER_READ = 5000
_KINDS = ("pr-opened", "pr-merged", "reacted")
_RETRY_ACTIONS = frozenset({"send-to-agent", "restart", "rerun-ci"})
"""Actions by which an agent gets another try."""


@dataclass(slots=True)
class _DayCounts:
    opened: int = 0
    merged: int = 0
    durations: list[float] = field(default_factory=list)
    retries: Counter[str] = field(default_factory=Counter)


class Tally:
    """Counts events by project and day."""

    def __init__(self) -> None:
        self._days: defaultdict[tuple[str, str], _DayCounts] = defaultdict(_DayCounts)
        self._opened: dict[str, float] = {}

    def add(self, event: Event) -> None:
        """Count one more event."""
        day = self._days[event.project or "", _day(event.time)]
        match event.body:
            case e.PrOpened():
                day.opened += 1
                self._opened[event.session or ""] = event.time
            case e.PrMerged():
                day.merged += 1
                if (since := self._opened.get(event.session or "")) is not None:
                    day.durations.append(max(event.time - since, 0.0))
            case e.Reacted() if event.body.action in _RETRY_ACTIONS:
                day.retries[event.body.trigger] += 1

    def counts_of(self, project: str | None, day: str) -> _DayCounts:
        """Return the counts of one day of a project, or of all projects."""
        total = _DayCounts()
        for (event_project, event_day), counts in self._days.items():
            if event_day == day and project in (None, event_project):
                total.opened += counts.opened
                total.merged += counts.merged
                total.durations += counts.durations
                total.retries += counts.retries
        return total


class Stats:
    """Reads the log once, and later only what is new in it."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._tally = Tally()
        self._last_read: dict[str, int] = dict.fromkeys(_KINDS, 0)
        self._reading = asyncio.Lock()

    async def table(self, project: str | None, days: int) -> dict[str, Any]:
        """Return the last `days` days, oldest first, including those without events."""
        async with self._reading:
            for kind in _KINDS:
                await self._read_new(kind)
        today = datetime.fromtimestamp(self.flow.clock(), UTC).date()
        last_days = [str(today - timedelta(days=days_ago)) for days_ago in reversed(range(days))]
        sessions = [facts for facts in self.flow.sessions.values() if project in (None, facts.project)]
        started, usage_by_day = Counter(_day(facts.created_at) for facts in sessions), _usage_by_day(sessions)
        counts_by_day = {day: self._tally.counts_of(project, day) for day in last_days}
        durations = [seconds for counts in counts_by_day.values() for seconds in counts.durations]
        return {
            "days": [_json(day, counts_by_day[day], started[day], usage_by_day.get(day, Usage())) for day in last_days],
            "medianToMerge": _median(durations),
        }

    async def _read_new(self, kind: str) -> None:
        newest = self.flow.seq
        while page := await self.flow.store.events(self._last_read[kind], EVENTS_PER_READ, kind=kind):
            for event in page:
                self._tally.add(event)
            self._last_read[kind] = page[-1].seq
            if len(page) < EVENTS_PER_READ:
                break
        self._last_read[kind] = max(self._last_read[kind], newest)  # what lies before need not be read again


def _usage_by_day(sessions: Iterable[SessionFacts]) -> Mapping[str, Usage]:
    usage_by_day: dict[str, Usage] = {}
    for facts in sessions:
        for day_and_model, usage in facts.daily_usage.items():
            day = day_and_model.partition(" ")[0]
            usage_by_day[day] = usage_by_day.get(day, Usage()).plus(usage)
    return usage_by_day


def _json(day: str, counts: _DayCounts, started: int, usage: Usage) -> dict[str, Any]:
    return {
        "day": day,
        "started": started,
        "opened": counts.opened,
        "landed": counts.merged,
        "medianToMerge": _median(counts.durations),
        "retries": dict(sorted(counts.retries.items())),
        **usage_json(usage),
    }


def _median(seconds: Sequence[float]) -> float | None:
    return round(median(seconds), 3) if seconds else None


def _day(time: float) -> str:
    return rfc3339(time)[:10]
