"""Whose Git may work just now: a few of each session at once, and of all agents together so many. Others wait a little."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent_orchestrator.cluster.git_server.access import Rights
from agent_orchestrator.errors import Temporary

OF_ONE = 4
"""Gits at once that work for a session's agent, and as many for its node."""
OF_ALL = 32
"""For all agents together; nodes, which save work, wait for nobody else."""
WITHIN = 30.0
"""Seconds that somebody waits before he is refused."""


class Turns:
    """Counts them."""

    def __init__(self) -> None:
        self._of: Counter[tuple[str, bool]] = Counter()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def turn(self, rights: Rights) -> AsyncIterator[None]:
        """Have one, once there is room. Raises `Temporary` where that takes too long."""
        who = (rights.session, rights.saves)
        try:
            async with asyncio.timeout(WITHIN):
                while why := self._full(who):
                    await self._freed.wait()
        except TimeoutError:
            raise Temporary(why, "try again when they are done") from None
        self._of[who] += 1
        try:
            yield
        finally:
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who]
            self._freed.set()
            self._freed = asyncio.Event()

    def _full(self, who: tuple[str, bool]) -> str:
        """Why there is no room; nothing: there is."""
        session, saves = who
        if self._of[who] >= OF_ONE:
            return f"{OF_ONE} Gits work for {session} already"
        if not saves and sum(count for (_, by_node), count in self._of.items() if not by_node) >= OF_ALL:
            return f"{OF_ALL} Gits work for agents already"
        return ""
