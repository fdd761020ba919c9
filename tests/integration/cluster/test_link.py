"""A link: simultaneous calls and channels in both directions, and the loss of the link."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_orchestrator.cluster.link import channel as channels
from agent_orchestrator.cluster.link import connection as links
from agent_orchestrator.cluster.link.connection import Channel, LinkLost, LinkReply, LinkRequest, NodeLink
from agent_orchestrator.errors import AoError, Conflict, NotFound, Temporary
from tests.integration.cluster.bench import Pipe

pytestmark = pytest.mark.anyio


@dataclass
class Pair:
    """Both ends of a link: the node's and the daemon's."""

    node: NodeLink
    daemon: NodeLink
    pipes: tuple[Pipe, Pipe]
    received: list[Any] = field(default_factory=list)

    async def cut(self) -> None:
        await self.pipes[0].close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    to_daemon: asyncio.Queue[bytes | None] = asyncio.Queue(4)
    to_node: asyncio.Queue[bytes | None] = asyncio.Queue(4)
    pipes = (Pipe(to_daemon, to_node), Pipe(to_node, to_daemon))
    linked = Pair(
        NodeLink(pipes[0], {}, {}, dialled=True, peer="the daemon"),
        NodeLink(pipes[1], {}, {}, dialled=False, peer="the node n1"),
        pipes,
    )
    linked.node.start()
    linked.daemon.start()
    yield linked
    for link in (linked.node, linked.daemon):
        await link.close()


async def echo(request: LinkRequest) -> LinkReply:
    """Return the body and data of the request."""
    return LinkReply(request.body, request.data)


async def test_simultaneous_calls_in_both_directions_carry_json_and_bytes(pair: Pair) -> None:
    pair.node.handlers = pair.daemon.handlers = {"echo": echo}
    calls = [pair.node.call("echo", {"n": n, "ü": None}, bytes([n]) * n) for n in range(20)]
    calls += [pair.daemon.call("echo", {"n": n, "ü": None}, bytes([n]) * n) for n in range(20)]
    answers = await asyncio.gather(*calls)
    assert [answer.body["n"] for answer in answers] == [*range(20)] * 2
    assert [answer.data for answer in answers] == [bytes([n]) * n for n in range(20)] * 2


async def test_a_small_call_does_not_wait_behind_a_large_answer(pair: Pair) -> None:
    large = bytes(range(256)) * (64 << 10)  # 16 MB

    async def get(_request: LinkRequest) -> LinkReply:
        return LinkReply(None, large)

    pair.daemon.handlers = {"large": get, "echo": echo}
    slow = asyncio.create_task(pair.node.call("large"))
    await asyncio.sleep(0)
    await pair.node.call("echo", 1)
    assert not slow.done()
    assert (await slow).data == large
    assert max(pair.pipes[1].sent) <= channels.MAX_CHUNK_BYTES + 16


async def test_errors_keep_their_type_across_the_link(pair: Pair) -> None:
    async def refuse(_request: LinkRequest) -> LinkReply:
        raise Conflict("it is there already", "choose another")

    async def later(_request: LinkRequest) -> LinkReply:
        raise Temporary("too often", until=12.5)

    async def fault(_request: LinkRequest) -> LinkReply:
        raise ZeroDivisionError("by zero")

    pair.node.handlers = {"refuse": refuse, "later": later, "fault": fault}
    with pytest.raises(Conflict) as refused:
        await pair.daemon.call("refuse")
    assert (refused.value.text, refused.value.remedy) == ("it is there already", "choose another")
    with pytest.raises(Temporary) as temporary:
        await pair.daemon.call("later")
    assert temporary.value.until == 12.5 and not isinstance(temporary.value, LinkLost)
    with pytest.raises(AoError, match="ZeroDivisionError: by zero"):
        await pair.daemon.call("fault")
    with pytest.raises(NotFound, match="nonsense"):
        await pair.daemon.call("nonsense")


async def test_notes_arrive_in_order_before_the_answer(pair: Pair) -> None:
    async def report_lines(request: LinkRequest) -> LinkReply:
        for number in range(50):
            request.note(f"line {number}")
        return LinkReply("done")

    pair.node.handlers = {"tell": report_lines}
    notes: list[str] = []
    assert (await pair.daemon.call("tell", note=notes.append)).body == "done"
    assert notes == [f"line {number}" for number in range(50)]


async def test_a_timed_out_or_cancelled_call_cancels_its_handler(pair: Pair) -> None:
    ended_calls: asyncio.Queue[str] = asyncio.Queue()
    is_started = asyncio.Event()

    async def work(request: LinkRequest) -> LinkReply:
        is_started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended_calls.put_nowait(request.body)
        return LinkReply()

    pair.node.handlers = {"work": work}
    with pytest.raises(Temporary, match="within"):
        await pair.daemon.call("work", "late", timeout=0.5)
    assert await asyncio.wait_for(ended_calls.get(), 60) == "late"
    is_started.clear()
    task = asyncio.create_task(pair.daemon.call("work", "cancelled"))
    await asyncio.wait_for(is_started.wait(), 60)
    task.cancel()
    assert await asyncio.wait_for(ended_calls.get(), 60) == "cancelled"


async def test_a_lost_link_fails_pending_calls_on_both_sides(pair: Pair) -> None:
    is_started, is_ended = asyncio.Event(), asyncio.Event()

    async def work(_request: LinkRequest) -> LinkReply:
        is_started.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_ended.set()
        return LinkReply()

    async def hold(_body: Any, channel: Channel) -> None:
        await channel.read()

    pair.node.handlers, pair.node.channels = {"work": work}, {"hold": hold}
    call = asyncio.create_task(pair.daemon.call("work", timeout=None))
    channel = await pair.daemon.open_channel("hold")
    await asyncio.wait_for(is_started.wait(), 60)
    await pair.cut()
    with pytest.raises(LinkLost):
        await asyncio.wait_for(call, 60)
    assert await asyncio.wait_for(channel.read(), 60) == b""
    with pytest.raises(LinkLost):
        await channel.send(b"x")
    with pytest.raises(LinkLost):
        await pair.daemon.call("work")
    await asyncio.wait_for(is_ended.wait(), 60)
    assert pair.node.closed.is_set() and pair.daemon.closed.is_set()


async def test_a_channel_carries_bytes_in_both_directions_until_it_is_closed(pair: Pair) -> None:
    async def shout(body: Any, channel: Channel) -> None:
        await channel.send(str(body).encode())
        while data := await channel.read():
            await channel.send(data.upper())
        pair.received.append("over")

    pair.node.channels = {"shout": shout}
    channel = await pair.daemon.open_channel("shout", "hello")
    assert await channel.read() == b"hello"
    await channel.send(b"abc")
    assert await channel.read() == b"ABC"
    await channel.close()
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert pair.received == ["over"]
    unknown = await pair.daemon.open_channel("nonsense")
    assert await asyncio.wait_for(unknown.read(), 60) == b""


async def test_a_sender_waits_for_a_slow_reader_without_blocking_calls(pair: Pair) -> None:
    reading = asyncio.Event()
    total = 0

    async def slow(_body: Any, channel: Channel) -> None:
        nonlocal total
        await reading.wait()
        while data := await channel.read():
            total += len(data)
        pair.received.append(total)

    pair.node.channels, pair.node.handlers = {"slow": slow}, {"echo": echo}
    channel = await pair.daemon.open_channel("slow")
    sending = asyncio.create_task(channel.send(b"x" * (3 * channels.WINDOW_BYTES)))
    await asyncio.wait({sending}, timeout=0.05)
    assert not sending.done() and sum(pair.pipes[1].sent) < 2 * channels.WINDOW_BYTES
    assert (await pair.daemon.call("echo", 1)).body == 1
    reading.set()
    await asyncio.wait_for(sending, 60)
    await channel.close()
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert pair.received == [3 * channels.WINDOW_BYTES]


@pytest.mark.parametrize("frame", [b"", b"\x00" * 9, b"\xff" * 40, b"\x00" + b"\0" * 8 + b"\0\0\0\x02no"])
async def test_an_invalid_frame_closes_the_link(pair: Pair, frame: bytes) -> None:
    await pair.pipes[0].send(frame)
    await asyncio.wait_for(pair.daemon.closed.wait(), 60)


PART, REPLY = 5, 1


def frame(kind: int, number: int, rest: bytes = b"") -> bytes:
    return struct.pack("!BQ", kind, number) + rest


@pytest.mark.parametrize("size", [0, 64])
async def test_unfinished_messages_are_limited(pair: Pair, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_UNFINISHED_BYTES", 64 * 100)
    monkeypatch.setattr(links, "MAX_CONCURRENT", 200)

    async def flood() -> None:
        for number in range(1, 2 * 250, 2):
            await pair.pipes[0].send(frame(PART, number, b"x" * size))

    flooding = asyncio.create_task(flood())
    try:
        await asyncio.wait_for(pair.daemon.closed.wait(), 60)
    finally:
        flooding.cancel()
    assert len(pair.pipes[0].sent) < (210 if size == 0 else 110)


async def test_finished_messages_free_their_memory(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_UNFINISHED_BYTES", 3 * channels.MAX_CHUNK_BYTES)
    pair.daemon.handlers = {"echo": echo}
    large = b"x" * (2 * channels.MAX_CHUNK_BYTES)
    for _ in range(5):
        assert (await pair.node.call("echo", None, large)).data == large


async def test_parts_of_a_cancelled_answer_are_discarded(pair: Pair) -> None:
    is_started, payload = asyncio.Event(), b"x" * channels.MAX_CHUNK_BYTES

    async def late(_request: LinkRequest) -> LinkReply:
        is_started.set()
        try:
            await asyncio.Event().wait()
        finally:  # its answer is being sent in parts
            for _ in range(3):
                await pair.pipes[0].send(frame(PART, number, payload))
            await pair.pipes[0].send(frame(REPLY, number, payload))
        return LinkReply()

    pair.node.handlers = {"late": late, "echo": echo}
    number = 2
    call = asyncio.create_task(pair.daemon.call("late"))
    await is_started.wait()
    call.cancel()
    await asyncio.wait({call})
    assert (await asyncio.wait_for(pair.daemon.call("echo", 1), 60)).body == 1
    assert (await asyncio.wait_for(pair.daemon.call("echo", 2), 60)).body == 2
    assert not pair.daemon._parts and not pair.daemon._unfinished_bytes


async def test_too_many_simultaneous_calls_close_the_link(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(_request: LinkRequest) -> LinkReply:
        await asyncio.Event().wait()
        return LinkReply()

    monkeypatch.setattr(links, "MAX_CONCURRENT", 20)
    pair.daemon.handlers = {"work": work}
    calls = [asyncio.create_task(pair.node.call("work", timeout=None)) for _ in range(21)]
    await asyncio.wait_for(pair.daemon.closed.wait(), 60)
    await asyncio.wait(calls, timeout=60)
    assert all(isinstance(call.exception(), LinkLost) for call in calls)


async def test_small_chunks_are_joined_in_the_inbox(pair: Pair) -> None:
    read = asyncio.Event()

    async def slow(_body: Any, channel: Channel) -> None:
        await read.wait()
        pair.received.append((await channel.read(), len(channel._inbox)))

    pair.node.channels = {"slow": slow}
    channel = await pair.daemon.open_channel("slow")
    for _ in range(1000):
        await channel.send(b"x")
        await pair.pipes[1].send(frame(channels.DATA, 2))
    read.set()
    for _ in range(100):
        await asyncio.sleep(0.001)
    ((data, queued),) = pair.received
    assert data == b"x" * len(data) and len(data) > 900 and queued <= 1
