"""Detects that the machine slept: time in which no agent could report does not count as silence.

A sleep shows as a difference between the wall clock, which continues, and the monotonic clock, which does not. It is checked before every
effect, so that none is caused by the machine's own silence, and every few seconds for what people see. Timers that became due meanwhile
each fire once.
"""

from __future__ import annotations

import asyncio

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Core, Part

log = structlog.get_logger()

MIN_SLEEP = 60.0
"""Minimum length in seconds of a sleep that is recorded: no rule uses a shorter silence."""
CHECK_INTERVAL = 5.0
"""Seconds between two checks when nothing else happens."""


class SleepDetector(Part):
    """The detector of sleeps, which records them for the sessions in a turn."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._last_times = (self.clock(), self.clock.monotonic())
        self._unrecorded = 0.0
        """Seconds of sleep that are not recorded yet."""
        self._recording = asyncio.Lock()

    def start(self) -> None:
        """Start to check every few seconds."""
        self._last_times = (self.clock(), self.clock.monotonic())
        self.spawn(self._check_regularly())

    async def record_sleep(self) -> None:
        """Detect a sleep since the last check, and return when it is recorded."""
        now, steady = self.clock(), self.clock.monotonic()
        slept = (now - self._last_times[0]) - (steady - self._last_times[1])
        self._last_times = (now, steady)
        if slept >= MIN_SLEEP:
            self._unrecorded += slept
        if self._unrecorded:
            async with self._recording:
                await self._record()

    async def _record(self) -> None:
        """Record the sleep for every session in a turn."""
        seconds, now = self._unrecorded, self.clock()
        if not seconds:
            return
        sessions = (
            session
            for session in self.flow.sessions.values()
            if session.live and session.activity.state in IN_TURN_ACTIVITIES
        )
        events = [
            Event(
                e.MachineWoke(round(seconds, 1)),
                now,
                "daemon",
                f"woke:{session.id}:{session.seq}",
                session.project,
                session.id,
            )
            for session in sessions
            if not self.flow.owner_home(session.id)
        ]
        await self.flow.append(*events)
        self._unrecorded = 0.0
        log.info("the machine slept", seconds=round(seconds), in_a_turn=len(events))

    async def _check_regularly(self) -> None:
        """Check every few seconds."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            try:
                await self.record_sleep()
            except AoError as error:  # it is recorded at the next check
                log.warning("a sleep could not be recorded", error=error.text)
