"""Quiet hours: notifications are held while they last and sent together at their end; urgent ones are sent at once
unless configured otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from agent_orchestrator.config import units
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.rules.model import PRIORITIES
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.part import Core, Part

MAX_TIMER_WAIT = 300.0
"""Seconds after which the clock is checked again at the latest: it may be set, or the machine may sleep."""


class QuietHours(Part):
    """Holds notifications during quiet hours and releases them afterwards."""

    def __init__(self, core: Core, zone: tzinfo | None = None) -> None:
        """`zone` is the time zone of quiet hours that name none; None: the machine's own."""
        super().__init__(core)
        self.zone = zone
        self._timer: Timer | None = None

    def start(self) -> None:
        """Release what has become due, and from now on whatever is held when its time comes."""
        self.on(self._plan_release, e.NotificationHeld)
        self._release_or_wait()

    async def close(self) -> None:
        """Cancel the timer and all recordings under way."""
        if self._timer:
            self._timer.cancel()
        await super().close()

    def gate(self, project: str, notice: e.Notified) -> e.Body:
        """Return the event to record: the notification itself, or in quiet hours the event that holds it."""
        hours = self.core.projects.quiet_hours(project)
        until = quiet_until(hours, self.clock(), self.zone)
        if until is None or (notice.level == "urgent" and (hours is None or hours.urgent)):
            return notice
        return e.NotificationHeld(notice.trigger, notice.title, notice.message, notice.level, until)

    def _plan_release(self, _changes: Sequence[FactsChange]) -> None:
        """Release held notifications when their time comes."""
        self._release_or_wait()

    def _release_or_wait(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        moments = [notice.until for notices in self.flow.home.held_notices.values() for notice in notices]
        if not moments:
            return
        wait = min(moments) - self.clock()
        if wait > 0:
            self._timer = self.clock.call_later(min(wait, MAX_TIMER_WAIT), self._release_or_wait)
            return
        self.spawn(self._release()).add_done_callback(self._on_released)

    def _on_released(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._release_or_wait()

    async def _release(self) -> None:
        now = self.clock()
        for project, notices in self.flow.home.held_notices.items():
            due = [notice for notice in notices if notice.until <= now]
            if not due:
                continue
            until = max(notice.until for notice in due)
            level = min((notice.level for notice in due), key=_urgency_rank)
            title = f"{len(due)} notification{'' if len(due) == 1 else 's'} from the quiet hours"
            lines = "\n".join(f"{notice.title}: {notice.message}" for notice in due)
            key = f"quiet:{project}:{now:.6f}"
            await self.flow.append(
                Event(e.Notified("quiet-hours", title, lines, level), now, "clock", f"{key}:told", project),
                Event(e.QuietHoursEnded(until), now, "clock", key, project),
            )


def _urgency_rank(level: str) -> int:
    return PRIORITIES.index(level) if level in PRIORITIES else len(PRIORITIES)


def quiet_until(hours: units.QuietPeriod | None, now: float, zone: tzinfo | None = None) -> float | None:
    """Return when the quiet hours end that `now` is in, or None if it is in none."""
    if hours is None:
        return None
    zone = ZoneInfo(hours.zone) if hours.zone else zone
    local_time = datetime.fromtimestamp(now, zone).astimezone(zone)
    minute = local_time.hour * 60 + local_time.minute
    over_midnight = hours.end <= hours.start
    is_inside = minute >= hours.start or minute < hours.end if over_midnight else hours.start <= minute < hours.end
    if not is_inside:
        return None
    day = local_time.date() + timedelta(days=1) if over_midnight and minute >= hours.start else local_time.date()
    end = datetime(day.year, day.month, day.day, hours.end // 60, hours.end % 60, tzinfo=zone)
    return end.timestamp()
