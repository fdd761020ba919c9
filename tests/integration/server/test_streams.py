"""The event stream: resumable, bounded, and closed when the daemon ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent_orchestrator.server import event_stream, streams
from tests.integration.server.conftest import ServerWorld
from tests.integration.server.doubles import PlainClient

pytestmark = pytest.mark.anyio


class Reader:
    """Reads Server-Sent Events."""

    def __init__(self, client: PlainClient) -> None:
        self.client = client

    async def begin(self, path: str = "/api/events", **headers: str) -> None:
        """Request the stream."""
        accept = {"Accept": "text/event-stream", **{name.replace("_", "-"): value for name, value in headers.items()}}
        answer, self.reader, self.writer = await self.client.begin("GET", path, headers=accept)
        assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, "text/event-stream")
        assert await self.block() == ["retry: 1000"]

    async def block(self) -> list[str]:
        """Return the lines of the next block."""
        async with asyncio.timeout(60):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2)).decode().strip().split("\n") if size else []

    async def question(self) -> tuple[int, str]:
        """Return the next event's number and question."""
        number, kind, data = await self.block()
        event: dict[str, Any] = json.loads(data.removeprefix("data: "))
        assert (number, kind) == (f"id: {event['seq']}", "event: agent-ask")
        assert {"seq", "type", "session", "project", "source", "time", "data"} <= set(event)
        return event["seq"], event["data"]["question"]

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        await self.writer.wait_closed()


async def wait_until(fact: Callable[[], bool]) -> None:
    """Wait until a condition holds, with a timeout."""
    async with asyncio.timeout(60):
        while not fact():
            await asyncio.sleep(0.005)


async def test_a_stream_resumes_after_the_last_event(world: ServerWorld) -> None:
    feed = world.services.feed
    for number in range(1, 4):
        await feed.add(f"q{number}")
    reader = Reader(world.tcp("viewer"))
    await reader.begin(Last_Event_ID="1")
    assert [await reader.question(), await reader.question()] == [(2, "q2"), (3, "q3")]
    await feed.add("q4")
    assert await reader.question() == (4, "q4")
    await reader.close()
    await feed.add("q5")
    await reader.begin("/api/events?after=4")
    assert await reader.question() == (5, "q5")
    await reader.close()
    await wait_until(lambda: feed.subscribers == 0)


async def test_a_stream_can_be_limited_to_one_session(world: ServerWorld) -> None:
    await world.services.feed.add("theirs", session="app-other")
    await world.services.feed.add("mine")
    reader = Reader(world.unix)
    await reader.begin("/api/events?after=0&session=fix")
    assert await reader.question() == (2, "mine")
    await reader.close()


async def test_a_silent_stream_sends_keep_alive_comments(world: ServerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.05)
    reader = Reader(world.unix)
    await reader.begin()
    assert [await reader.block(), await reader.block()] == [[": keep-alive"], [": keep-alive"]]
    await world.services.feed.add("q1")
    while (block := await reader.block()) == [": keep-alive"]:
        pass
    assert block[0] == "id: 1"
    await reader.close()


async def test_a_client_that_does_not_read_is_disconnected_without_blocking_others(
    world: ServerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SEND_TIMEOUT", 0.3)
    feed = world.services.feed
    stuck, quick = Reader(world.unix), Reader(world.unix)
    await stuck.begin()
    await quick.begin()
    await wait_until(lambda: feed.subscribers == 2)
    stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for number in range(60):
        await feed.add(f"{number} " + "x" * 100_000)
        assert (await quick.question())[0] == number + 1
    await wait_until(lambda: feed.subscribers == 1)
    stuck.writer.transport.abort()
    await quick.close()


async def test_a_page_of_events_needs_no_stream(world: ServerWorld) -> None:
    await world.services.feed.add("q1")
    assert (await world.unix.get("/api/events?after=0&limit=10")).json() == {"events": [{"seq": 1}]}
    bad = await world.unix.get("/api/events", Accept="text/event-stream", Last_Event_ID="abc")
    assert (bad.status, bad.json()["exitCode"]) == (422, 2)


async def test_streams_are_closed_when_the_daemon_ends(world: ServerWorld) -> None:
    reader = Reader(world.unix)
    await reader.begin()
    await wait_until(lambda: world.services.feed.subscribers == 1)
    _, follow, writer = await world.tcp("viewer").begin("GET", "/api/sessions/fix/log?follow=1")
    world.servers.close()
    async with asyncio.timeout(60):  # each is terminated properly, not cut off by the server's timeout
        assert await reader.block() == []
        assert (await follow.read()).endswith(b"0\r\n\r\n")
        await world.serving
    await reader.close()
    writer.close()
    assert world.services.feed.subscribers == 0


async def test_a_response_lasts_as_long_as_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BEGIN_TIMEOUT", 0.01)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"one "
        await asyncio.sleep(0.1)
        yield b"two"

    async def nothing() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async with asyncio.timeout(60):
        await streams.EndlessResponse(slowly(), asyncio.Event(), "text/plain")({"type": "http"}, nothing, send)
    assert b"".join(sent) == b"one two"
