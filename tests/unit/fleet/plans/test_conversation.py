"""Conversations with a planning agent."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from agent_orchestrator.fleet.plans.conversation import Conversation
from agent_orchestrator.protocols import TurnCommand

pytestmark = pytest.mark.anyio


async def test_a_slow_agent_plugin_does_not_block_the_event_loop() -> None:
    free = threading.Event()

    def turn(*_: object) -> TurnCommand:
        assert free.wait(40)
        return TurnCommand(("true",))

    async def stream(*_: object, **__: object) -> int:
        return 0

    context: Any = SimpleNamespace(workspace=None, env={})
    agent: Any = SimpleNamespace(turn=turn)
    host: Any = SimpleNamespace(stream=stream)
    prices: Any = None
    asking = asyncio.create_task(Conversation(agent, "a", context, host, prices, print).send("Plan it", 60))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not asking.done()
    free.set()
    assert await asking == ""
