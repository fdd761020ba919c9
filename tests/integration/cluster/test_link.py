"""One link: calls and channels at once, both ways, and what a lost one leaves."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_orchestrator.cluster.link import channel as channels
from agent_orchestrator.cluster.link import connection as links
from agent_orchestrator.cluster.link.connection import Channel, Link, LinkLost, Reply, Request
from agent_orchestrator.errors import AoError, Conflict, NotFound, Temporary
from tests.integration.cluster.bench import Pipe

pytestmark = pytest.mark.anyio


@dataclass
class Pair:
    """Both ends: the node's and the daemon's."""

    node: Link
    daemon: Link
    pipes: tuple[Pipe, Pipe]
    seen: list[Any] = field(default_factory=list)

    async def cut(self) -> None:
        await self.pipes[0].close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    there: asyncio.Queue[bytes | None] = asyncio.Queue(4)
    back: asyncio.Queue[bytes | None] = asyncio.Queue(4)
    pipes = (Pipe(there, back), Pipe(back, there))
    made = Pair(
        Link(pipes[0], {}, {}, dialled=True, peer="the daemon"),
        Link(pipes[1], {}, {}, dialled=False, peer="the node n1"),
        pipes,
    )
    made.node.start()
    made.daemon.start()
    yield made
    for link in (made.node, made.daemon):
        await link.close()


async def echo(request: Request) -> Reply:
    """Answers what it was asked."""
    return Reply(request.body, request.data)


async def test_calls_go_both_ways_at_once_with_json_and_bytes(pair: Pair) -> None:
    pair.node.handlers = pair.daemon.handlers = {"echo": echo}
    asked = [pair.node.call("echo", {"n": n, "ü": None}, bytes([n]) * n) for n in range(20)]
    asked += [pair.daemon.call("echo", {"n": n, "ü": None}, bytes([n]) * n) for n in range(20)]
    answers = await asyncio.gather(*asked)
    assert [answer.body["n"] for answer in answers] == [*range(20)] * 2
    assert [answer.data for answer in answers] == [bytes([n]) * n for n in range(20)] * 2


async def test_a_small_call_does_not_wait_behind_a_large_answer(pair: Pair) -> None:
    large = bytes(range(256)) * (64 << 10)  # 16 MB

    async def get(_request: Request) -> Reply:
        return Reply(None, large)

    pair.daemon.handlers = {"large": get, "echo": echo}
    slow = asyncio.create_task(pair.node.call("large"))
    await asyncio.sleep(0)
    await pair.node.call("echo", 1)
    assert not slow.done()
    assert (await slow).data == large
    assert max(pair.pipes[1].sent) <= channels.CHUNK + 16


async def test_errors_cross_as_what_they_are(pair: Pair) -> None:
    async def refuse(_request: Request) -> Reply:
        raise Conflict("it is there already", "choose another")

    async def later(_request: Request) -> Reply:
        raise Temporary("too often", until=12.5)

    async def fault(_request: Request) -> Reply:
        raise ZeroDivisionError("by zero")

    pair.node.handlers = {"refuse": refuse, "later": later, "fault": fault}
    with pytest.raises(Conflict) as refused:
        await pair.daemon.call("refuse")
    assert (refused.value.text, refused.value.remedy) == ("it is there already", "choose another")
    with pytest.raises(Temporary) as told:
        await pair.daemon.call("later")
    assert told.value.until == 12.5 and not isinstance(told.value, LinkLost)
    with pytest.raises(AoError, match="ZeroDivisionError: by zero"):
        await pair.daemon.call("fault")
    with pytest.raises(NotFound, match="nonsense"):
        await pair.daemon.call("nonsense")


async def test_what_is_told_before_an_answer_comes_in_order_and_before_it(pair: Pair) -> None:
    async def tell(request: Request) -> Reply:
        for number in range(50):
            request.note(f"line {number}")
        return Reply("done")

    pair.node.handlers = {"tell": tell}
    heard: list[str] = []
    assert (await pair.daemon.call("tell", note=heard.append)).body == "done"
    assert heard == [f"line {number}" for number in range(50)]


async def test_who_gives_up_ends_the_work_on_the_other_side(pair: Pair) -> None:
    ended: asyncio.Queue[str] = asyncio.Queue()
    begun = asyncio.Event()

    async def work(request: Request) -> Reply:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.put_nowait(request.body)
        return Reply()

    pair.node.handlers = {"work": work}
    with pytest.raises(Temporary, match="within"):
        await pair.daemon.call("work", "late", timeout=0.5)
    assert await asyncio.wait_for(ended.get(), 60) == "late"
    begun.clear()
    task = asyncio.create_task(pair.daemon.call("work", "cancelled"))
    await asyncio.wait_for(begun.wait(), 60)
    task.cancel()
    assert await asyncio.wait_for(ended.get(), 60) == "cancelled"


async def test_a_lost_link_fails_what_is_under_way_on_both_sides(pair: Pair) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(_request: Request) -> Reply:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Reply()

    async def hold(_body: Any, channel: Channel) -> None:
        await channel.read()

    pair.node.handlers, pair.node.channels = {"work": work}, {"hold": hold}
    asked = asyncio.create_task(pair.daemon.call("work", timeout=None))
    channel = await pair.daemon.open("hold")
    await asyncio.wait_for(begun.wait(), 60)
    await pair.cut()
    with pytest.raises(LinkLost):
        await asyncio.wait_for(asked, 60)
    assert await asyncio.wait_for(channel.read(), 60) == b""
    with pytest.raises(LinkLost):
        await channel.send(b"x")
    with pytest.raises(LinkLost):
        await pair.daemon.call("work")
    await asyncio.wait_for(ended.wait(), 60)
    assert pair.node.closed.is_set() and pair.daemon.closed.is_set()


async def test_a_channel_carries_bytes_both_ways_until_it_is_closed(pair: Pair) -> None:
    async def shout(body: Any, channel: Channel) -> None:
        await channel.send(str(body).encode())
        while data := await channel.read():
            await channel.send(data.upper())
        pair.seen.append("over")

    pair.node.channels = {"shout": shout}
    channel = await pair.daemon.open("shout", "hello")
    assert await channel.read() == b"hello"
    await channel.send(b"abc")
    assert await channel.read() == b"ABC"
    await channel.close()
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert pair.seen == ["over"]
    unknown = await pair.daemon.open("nonsense")
    assert await asyncio.wait_for(unknown.read(), 60) == b""


async def test_who_sends_waits_for_who_does_not_read_and_others_do_not(pair: Pair) -> None:
    reading = asyncio.Event()
    total = 0

    async def slow(_body: Any, channel: Channel) -> None:
        nonlocal total
        await reading.wait()
        while data := await channel.read():
            total += len(data)
        pair.seen.append(total)

    pair.node.channels, pair.node.handlers = {"slow": slow}, {"echo": echo}
    channel = await pair.daemon.open("slow")
    sending = asyncio.create_task(channel.send(b"x" * (3 * channels.WINDOW)))
    await asyncio.wait({sending}, timeout=0.05)
    assert not sending.done() and sum(pair.pipes[1].sent) < 2 * channels.WINDOW
    assert (await pair.daemon.call("echo", 1)).body == 1
    reading.set()
    await asyncio.wait_for(sending, 60)
    await channel.close()
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert pair.seen == [3 * channels.WINDOW]


@pytest.mark.parametrize("frame", [b"", b"\x00" * 9, b"\xff" * 40, b"\x00" + b"\0" * 8 + b"\0\0\0\x02no"])
async def test_who_does_not_speak_our_language_is_hung_up_on(pair: Pair, frame: bytes) -> None:
    await pair.pipes[0].send(frame)
    await asyncio.wait_for(pair.daemon.closed.wait(), 60)


PART, REPLY = 5, 1


def frame(kind: int, number: int, rest: bytes = b"") -> bytes:
    return struct.pack("!BQ", kind, number) + rest


@pytest.mark.parametrize("size", [0, 64])
async def test_what_never_comes_whole_is_kept_within_bounds(
    pair: Pair, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_what_has_come_whole_makes_room_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_UNFINISHED_BYTES", 3 * channels.CHUNK)
    pair.daemon.handlers = {"echo": echo}
    large = b"x" * (2 * channels.CHUNK)
    for _ in range(5):
        assert (await pair.node.call("echo", None, large)).data == large


async def test_of_an_answer_that_was_given_up_nothing_is_kept(pair: Pair) -> None:
    begun, rest = asyncio.Event(), b"x" * channels.CHUNK

    async def late(_request: Request) -> Reply:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:  # its answer is under way, in parts
            for _ in range(3):
                await pair.pipes[0].send(frame(PART, number, rest))
            await pair.pipes[0].send(frame(REPLY, number, rest))
        return Reply()

    pair.node.handlers = {"late": late, "echo": echo}
    number = 2
    asked = asyncio.create_task(pair.daemon.call("late"))
    await begun.wait()
    asked.cancel()
    await asyncio.wait({asked})
    assert (await asyncio.wait_for(pair.daemon.call("echo", 1), 60)).body == 1
    assert (await asyncio.wait_for(pair.daemon.call("echo", 2), 60)).body == 2
    assert not pair.daemon._parts and not pair.daemon._unfinished


async def test_too_many_calls_at_once_are_not_taken(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(_request: Request) -> Reply:
        await asyncio.Event().wait()
        return Reply()

    monkeypatch.setattr(links, "MAX_CONCURRENT", 20)
    pair.daemon.handlers = {"work": work}
    asked = [asyncio.create_task(pair.node.call("work", timeout=None)) for _ in range(21)]
    await asyncio.wait_for(pair.daemon.closed.wait(), 60)
    await asyncio.wait(asked, timeout=60)
    assert all(isinstance(one.exception(), LinkLost) for one in asked)


async def test_small_pieces_cost_what_they_hold(pair: Pair) -> None:
    read = asyncio.Event()

    async def slow(_body: Any, channel: Channel) -> None:
        await read.wait()
        pair.seen.append((await channel.read(), len(channel._inbox)))

    pair.node.channels = {"slow": slow}
    channel = await pair.daemon.open("slow")
    for _ in range(1000):
        await channel.send(b"x")
        await pair.pipes[1].send(frame(channels.DATA, 2))
    read.set()
    for _ in range(100):
        await asyncio.sleep(0.001)
    ((data, left),) = pair.seen
    assert data == b"x" * len(data) and len(data) > 900 and left <= 1
