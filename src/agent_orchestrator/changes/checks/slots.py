"""Limit how many checks of a project run at the same time: `Slots`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class Slots:
    """Slots for checks, first come, first served; each waiting check has its own limit."""

    def __init__(self) -> None:
        self._running = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def acquire(self, limit: int) -> AsyncIterator[None]:
        """Wait until fewer than `limit` checks run, then hold a slot while the block runs."""
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((limit, slot))
        self._assign_slots()
        try:
            await slot
        except asyncio.CancelledError:
            if slot.cancelled() or not slot.done():
                slot.cancel()
            else:
                self._running -= 1
            self._assign_slots()
            raise
        try:
            yield
        finally:
            self._running -= 1
            self._assign_slots()

    def _assign_slots(self) -> None:
        """Give slots to waiting checks in order, as far as the limit of the first one allows; skip cancelled ones."""
        while self._queue and (self._queue[0][1].done() or self._running < max(1, self._queue[0][0])):
            _, slot = self._queue.popleft()
            if not slot.done():
                self._running += 1
                slot.set_result(None)
