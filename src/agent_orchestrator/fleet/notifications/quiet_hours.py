"""Quiet hours: what is not urgent, or everything, is kept while they last, and told together when they are over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from agent_orchestrator.config import values
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import CallLater, Timer
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.rules import PRIORITIES

LONGEST_WAIT = 300.0
"""The clock is looked at again at least this often: it may be set, or the machine may sleep."""


class Quiet:
    """Holds notifications back, and lets them go."""

    def __init__(
        self,
        flow: Flow,
        hours: Callable[[str], values.Quiet | None],
        zone: tzinfo | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        self.flow = flow
        self.hours = hours
        """Project → its quiet hours."""
        self.zone = zone
        """None: the machine's own."""
        self._call_later = call_later
        self._timer: Timer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Tell what has become due, and look whenever something is held."""
        self.flow.on_change.append(self._on_change)
        self._look()

    def close(self) -> None:
        """Look no more."""
        if self._timer:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def gate(self, project: str, told: e.Notified) -> e.Body:
        """The notification itself, or, in quiet hours, the note that it is held."""
        until = quiet_until(self.hours(project), self.flow.clock(), self.zone)
        hours = self.hours(project)
        if until is None or (told.level == "urgent" and (hours is None or hours.urgent)):
            return told
        return e.NotificationHeld(told.trigger, told.title, told.message, told.level, until)

    def _on_change(self, changes: Sequence[Change]) -> None:
        if any(isinstance(change.event.body, e.NotificationHeld) for change in changes):
            self._look()

    def _look(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        moments = [one.until for held in self.flow.home.quiet.values() for one in held]
        if not moments:
            return
        loop = asyncio.get_running_loop()
        wait = min(moments) - self.flow.clock()
        if wait > 0:
            self._timer = (self._call_later or loop.call_later)(min(wait, LONGEST_WAIT), self._look)
            return
        task = loop.create_task(self._let_go())
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is None:
            self._look()

    async def _let_go(self) -> None:
        now = self.flow.clock()
        for project, held in self.flow.home.quiet.items():
            due = [one for one in held if one.until <= now]
            if not due:
                continue
            until = max(one.until for one in due)
            level = min((one.level for one in due), key=_urgency)
            title = f"{len(due)} notification{'' if len(due) == 1 else 's'} from the quiet hours"
            lines = "\n".join(f"{one.title}: {one.message}" for one in due)
            key = f"quiet:{project}:{now:.6f}"
            await self.flow.append(
                Event(e.Notified("quiet-hours", title, lines, level), now, "clock", f"{key}:told", project),
                Event(e.QuietHoursEnded(until), now, "clock", key, project),
            )


def _urgency(level: str) -> int:
    return PRIORITIES.index(level) if level in PRIORITIES else len(PRIORITIES)


def quiet_until(hours: values.Quiet | None, now: float, zone: tzinfo | None = None) -> float | None:
    """When the quiet hours end that `now` is in; none: it is in none."""
    if hours is None:
        return None
    zone = ZoneInfo(hours.zone) if hours.zone else zone
    here = datetime.fromtimestamp(now, zone).astimezone(zone)
    minute = here.hour * 60 + here.minute
    over_midnight = hours.end <= hours.start
    inside = minute >= hours.start or minute < hours.end if over_midnight else hours.start <= minute < hours.end
    if not inside:
        return None
    day = here.date() + timedelta(days=1) if over_midnight and minute >= hours.start else here.date()
    end = datetime(day.year, day.month, day.day, hours.end // 60, hours.end % 60, tzinfo=zone)
    return end.timestamp()
