"""Machine-independent costs of an answer: threads, tasks, and how often an event is serialized."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
import pytest

from agent_orchestrator.core.events import Event
from agent_orchestrator.server import event_stream
from agent_orchestrator.server.streams import EndlessResponse
from tests.integration.server.conftest import ServerWorld
from tests.integration.server.test_streams import Reader, wait_until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["/api/sessions/fix", "/api/events?after=0", "/healthz"])
async def test_a_request_is_answered_without_another_thread(
    world: ServerWorld, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops: list[str] = []
    run = anyio.to_thread.run_sync

    async def counted(work: Any, *args: Any, **kwargs: Any) -> Any:
        hops.append(repr(work))
        return await run(work, *args, **kwargs)

    monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
    assert (await world.tcp("viewer").get(path)).status == 200
    assert hops == []


async def test_an_event_is_serialized_once_for_all_followers(
    world: ServerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    frame = event_stream.encode_frame

    def counted(event: Event) -> bytes:
        written.append(event.seq)
        return frame(event)

    monkeypatch.setattr(event_stream, "encode_frame", counted)
    readers = [Reader(world.unix) for _ in range(8)]
    for reader in readers:
        await reader.begin()
    await wait_until(lambda: world.services.feed.subscribers == len(readers))
    for number in range(1, 4):
        await world.services.feed.add(f"q{number}")
        assert [await reader.question() for reader in readers] == [(number, f"q{number}")] * len(readers)
    assert written == [1, 2, 3]
    for reader in readers:
        await reader.close()


async def test_a_stream_starts_the_same_number_of_tasks_for_any_length() -> None:
    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            await asyncio.sleep(0)
            yield b"piece"

    async def tasks_for(count: int) -> int:
        sent: list[bytes] = []
        started: list[object] = []

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        async def receive() -> Any:
            await asyncio.Event().wait()

        def factory(loop: asyncio.AbstractEventLoop, work: Any, **kwargs: Any) -> asyncio.Task[Any]:
            started.append(work)
            return asyncio.Task(work, loop=loop, **kwargs)

        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        try:
            await EndlessResponse(pieces(count), asyncio.Event(), "text/plain", pulse=b".", idle=60.0)(
                {}, receive, send
            )
        finally:
            loop.set_task_factory(None)
        assert sent.count(b"piece") == count
        return len(started)

    assert await tasks_for(1000) == await tasks_for(1) <= 5
