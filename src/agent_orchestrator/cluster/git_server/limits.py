"""Limits of concurrent Git requests: a few per session, and a maximum for all agents together.

Further requests wait a little.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_orchestrator.cluster.git_server.access import Rights
from agent_orchestrator.errors import Temporary

MAX_PER_CLIENT = 4
"""Concurrent requests of a session's agent, and as many of its node."""
MAX_AGENTS_TOTAL = 32
"""Concurrent requests of all agents together; nodes, which save work, are not counted."""
WAIT_TIMEOUT = 30.0
"""Seconds that a request waits before it is refused."""


class RequestSlots:
    """Counts the requests in progress."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, bool]] = Counter()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def hold_slot(self, rights: Rights) -> AsyncIterator[None]:
        """Hold one request's slot, once there is room. Raises `Temporary` if that takes more than `WAIT_TIMEOUT` seconds."""
        client = (rights.session, rights.is_node)
        try:
            async with asyncio.timeout(WAIT_TIMEOUT):
                while reason := self._reached_limit(client):
                    await self._freed.wait()
        except TimeoutError:
            raise Temporary(reason, "try again when they are done") from None
        self._counts[client] += 1
        try:
            yield
        finally:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]
            self._freed.set()
            self._freed = asyncio.Event()

    def _reached_limit(self, client: tuple[str, bool]) -> str:
        """Return which limit is reached, or "" if there is room."""
        session, saves = client
        if self._counts[client] >= MAX_PER_CLIENT:
            return f"{MAX_PER_CLIENT} Gits work for {session} already"
        if not saves and sum(count for (_, by_node), count in self._counts.items() if not by_node) >= MAX_AGENTS_TOTAL:
            return f"{MAX_AGENTS_TOTAL} Gits work for agents already"
        return ""
