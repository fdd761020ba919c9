"""`Tasks`: the background tasks of one object."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """Background tasks that are kept until they end; an error in one is reported by the event loop's exception handler."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine in the background, and return its task."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """Cancel all tasks, without waiting for their end."""
        for task in tuple(self._running):
            task.cancel()

    async def finish(self) -> None:
        """Wait until all tasks have ended; their errors are ignored."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    async def close(self) -> None:
        """Cancel all tasks, those too that are begun when others end, and wait until they have ended."""
        while self._running:
            self.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
