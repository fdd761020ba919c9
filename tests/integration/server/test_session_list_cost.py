"""The cost of the most frequent request: the list of sessions is sent without copying it."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.server.conftest import ServerWorld
from tests.unit.call_counts import count_calls

pytestmark = pytest.mark.anyio

MAX_PEAK_BYTES = 6000
"""Bytes allocated during the request, without the body."""
MAX_KEPT_BLOCKS = 16
"""Memory blocks that remain after a hundred answers."""
MAX_CALLS = 34
"""Calls of our functions for one answer."""
SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/api/sessions",
    "query_string": b"all=1",
    "headers": [(b"host", b"localhost")],
}


def make_requester(world: ServerWorld) -> tuple[Callable[[], None], list[Any]]:
    """Return a function that sends the request, and the list that holds the last answer."""
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
        raise AssertionError("the request waited")

    return ask, sent


def _count_kept_blocks(ask: Callable[[], None], recorded_calls: list[Any]) -> int:
    """Memory blocks that remain after a hundred answers."""
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(100):
        ask()
    recorded_calls.clear()  # recorded by the double
    gc.collect()
    return sys.getallocatedblocks() - before


async def test_the_list_of_sessions_is_sent_without_a_copy(world: ServerWorld) -> None:
    ask, sent = make_requester(world)
    costs = []
    for size in (1 << 10, 1 << 20):
        world.services.sessions.body = body = b"[" + b" " * size + b"]"
        ask()
        ask()
        assert sent[1]["body"] is body, "the body is copied: send the same bytes to all"
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        ask()
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        costs.append((peak, _count_kept_blocks(ask, world.services.sessions.calls), count_calls(ask)))
    for peak, kept_blocks, called in costs:
        assert peak <= MAX_PEAK_BYTES, (
            f"{peak} bytes are taken for one answer: what is made for each can be made once for all"
        )
        assert kept_blocks <= MAX_KEPT_BLOCKS, (
            f"{kept_blocks} blocks stay after a hundred answers: something grows with each"
        )
        assert called <= MAX_CALLS, f"{called} calls for one answer; it is asked for most, and is to be the cheapest"
    assert costs[0][2] == costs[1][2], f"the number of calls depends on the length: {costs}"
