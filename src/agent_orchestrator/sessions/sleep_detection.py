"""After the machine slept: the time in which nobody could say anything counts as no silence.

A sleep is seen by the clock, which went on, while the time in which programs run did not. It is looked for before every effect, so that
none is carried out by a silence that was the machine's, and now and then, for what people see. What became due meanwhile is due: each
once, by its own timer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.status import IN_TURN
from agent_orchestrator.errors import AoError

log = structlog.get_logger()

NOTICED = 60.0
"""Seconds of sleep that matter: no rule knows a shorter silence."""
LOOK = 5.0
"""Seconds between two looks where nothing else happens."""


class Waking:
    """Notices that the machine slept, and says so to those in a turn."""

    def __init__(self, flow: Flow, steady: Callable[[], float] = time.monotonic) -> None:
        """`steady` stands still while the machine sleeps."""
        self.flow = flow
        self._steady = steady
        self._last = (flow.clock(), steady())
        self._owed = 0.0
        """Seconds of sleep that are not told yet."""
        self._telling = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look now and then."""
        self._last = (self.flow.clock(), self._steady())
        self._looking = asyncio.get_running_loop().create_task(self._look())

    def close(self) -> None:
        """Look no more."""
        if self._looking:
            self._looking.cancel()

    async def settle(self) -> None:
        """Return when everybody has been told of a sleep that was."""
        now, steady = self.flow.clock(), self._steady()
        slept = (now - self._last[0]) - (steady - self._last[1])
        self._last = (now, steady)
        if slept >= NOTICED:
            self._owed += slept
        if self._owed:
            async with self._telling:
                await self._tell()

    async def _tell(self) -> None:
        owed, now = self._owed, self.flow.clock()
        if not owed:
            return
        facts = (one for one in self.flow.sessions.values() if one.live and one.activity.state in IN_TURN)
        told = [
            Event(e.MachineWoke(round(owed, 1)), now, "daemon", f"woke:{one.id}:{one.seq}", one.project, one.id)
            for one in facts
            if not self.flow.elsewhere(one.id)
        ]
        await self.flow.append(*told)
        self._owed = 0.0
        log.info("the machine slept", seconds=round(owed), in_a_turn=len(told))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self.settle()
            except AoError as error:  # it is still owed
                log.warning("a sleep could not be recorded", error=error.text)
