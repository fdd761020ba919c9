"""What a program's handlers are called with, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from agent_orchestrator.api.events import Event
from agent_orchestrator.api.fleet import Fleet
from agent_orchestrator.api.link import Json, Link

pytestmark = pytest.mark.anyio


class _Slow:
    """A daemon whose first answer comes after its second."""

    def __init__(self, session: Json) -> None:
        self.session = session
        self.asked = 0
        self.second = asyncio.Event()

    async def look(self, _path: str) -> Any:
        self.asked += 1
        if self.asked == 1:
            with_patience = asyncio.wait_for(self.second.wait(), 0.2)
            await asyncio.gather(with_patience, return_exceptions=True)
        self.second.set()
        return self.session

    async def follow(self, _after: int, *, project: str) -> AsyncGenerator[Json | None, None]:
        for seq, step in enumerate(("one", "two", "three"), 1):
            yield {
                "seq": seq,
                "type": "agent-progress",
                "session": "app-a",
                "project": project,
                "source": "spool",
                "time": "2026-01-01T00:00:00Z",
                "data": {"step": step},
            }


async def test_a_handler_is_called_in_the_order_of_events() -> None:
    seen: list[str] = []
    fleet = Fleet(cast("Link", _Slow({"id": "app-a", "status": "working", "activity": "active"})), "app", 0)

    async def handler(event: Event) -> None:
        seen.append(event.data["step"])
        await asyncio.sleep(0)

    fleet.on("agent-progress", None, handler)
    async with asyncio.timeout(60):
        while len(seen) < 3:
            await asyncio.sleep(0.01)
    await fleet.close(report=True)
    assert seen == ["one", "two", "three"]
