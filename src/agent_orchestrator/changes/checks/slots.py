"""How many checks of a project run at a time: `Places`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class Places:
    """As many at a time as each of them allows, first come, first served."""

    def __init__(self) -> None:
        self._running = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def one(self, limit: int) -> AsyncIterator[None]:
        """A place, for as long as the block runs."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((limit, turn))
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled() or not turn.done():
                turn.cancel()
            else:
                self._running -= 1
            self._serve()
            raise
        try:
            yield
        finally:
            self._running -= 1
            self._serve()

    def _serve(self) -> None:
        while self._queue and (self._queue[0][1].done() or self._running < max(1, self._queue[0][0])):
            _, turn = self._queue.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)
