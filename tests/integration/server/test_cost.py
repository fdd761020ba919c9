"""What the answer that is asked for most costs: the list of sessions is handed out as it is, whatever its length."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.server.conftest import World
from tests.unit.call_counts import calls

pytestmark = pytest.mark.anyio

PEAK = 6000
"""Bytes that are taken while it is answered, the body not among them."""
KEPT = 16
"""Memory blocks that a hundred answers leave behind."""
CALLS = 34
"""Calls of our own functions."""
SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/api/sessions",
    "query_string": b"all=1",
    "headers": [(b"host", b"localhost")],
}


def asking(world: World) -> tuple[Callable[[], None], list[Any]]:
    """Asks over the Unix socket, as the server would; and what was answered last."""
    app, sent = world.servers._apps[0], []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    def ask() -> None:
        sent.clear()
        work = app(dict(SCOPE), receive, send)
        try:
            work.send(None)
        except StopIteration:
            return
        raise AssertionError("it waited for something")

    return ask, sent


def _kept(ask: Callable[[], None], noted: list[Any]) -> int:
    """Memory blocks that a hundred answers leave behind."""
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(100):
        ask()
    noted.clear()  # by the double, for tests
    gc.collect()
    return sys.getallocatedblocks() - before


async def test_the_list_of_sessions_is_handed_out_as_it_is(world: World) -> None:
    ask, sent = asking(world)
    costs = []
    for size in (1 << 10, 1 << 20):
        world.services.sessions.body = body = b"[" + b" " * size + b"]"
        ask()
        ask()
        assert sent[1]["body"] is body, "the body is copied: hand out the same bytes to everybody"
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        ask()
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        costs.append((peak, _kept(ask, world.services.sessions.calls), calls(ask)))
    for peak, kept, called in costs:
        assert peak <= PEAK, f"{peak} bytes are taken for one answer: what is made for each can be made once for all"
        assert kept <= KEPT, f"{kept} blocks stay after a hundred answers: something grows with each"
        assert called <= CALLS, f"{called} calls for one answer; it is asked for most, and is to be the cheapest"
    assert costs[0][2] == costs[1][2], f"the number of calls depends on the length: {costs}"
