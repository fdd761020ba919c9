"""The Ray placer: requests are repeated to a restarted bridge, and waiting sessions keep waiting."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import agent_orchestrator
from agent_orchestrator.cluster.daemon.placement import Requirements
from agent_orchestrator.cluster.ray import placer as module
from agent_orchestrator.cluster.ray.placer import RayPlacer, WorkerSetup


class Bridge:
    """A bridge process as seen by the daemon: two pipes."""

    def __init__(self) -> None:
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        self.records: list[dict[str, Any]] = []

    def write(self, line: bytes) -> None:
        self.records.append(json.loads(line))

    def say(self, **record: Any) -> None:
        self.stdout.feed_data(json.dumps(record).encode() + b"\n")

    def requests(self, do: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record.get("do") == do]


class Host:
    """A host that starts one bridge after the other."""

    def __init__(self) -> None:
        self.bridges: list[Bridge] = []

    @contextlib.asynccontextmanager
    async def pipe(self, _argv: Sequence[str], **_log: Path) -> AsyncIterator[Bridge]:
        self.bridges.append(Bridge())
        yield self.bridges[-1]


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def started() -> tuple[Host, RayPlacer, asyncio.Task[None]]:
    host = Host()
    setup = lambda node: WorkerSetup("http://daemon", f"token of {node}", "/var/tmp/node")  # noqa: E731
    head, node_home, log = (lambda: "head:6379"), Path("/var/tmp/node"), Path("/dev/null")
    placer = RayPlacer(host, head, node_home, setup, log, lambda: None)  # type: ignore[arg-type]
    return host, placer, asyncio.get_running_loop().create_task(placer.run())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTART_PAUSES", (0.0,))


def node(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "cpus": 4.0, "memory": 1 << 30, "labels": {}, "ready": True, "why": "", **more}


def play(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_waiting_request_is_repeated_to_the_next_bridge() -> None:
    async def work() -> None:
        host, placer, running = started()
        waiting = asyncio.create_task(placer.place("app-a", 1, Requirements(2.0, labels={"gpu": "a"})))
        await settled()
        assert "not connected yet" in placer.waiting_reason("app-a")
        first = host.bridges[0]
        assert first.records == [
            {"address": "head:6379", "key": placer._key, "version": agent_orchestrator.__version__}
        ]
        first.say(event="connected")
        await settled()
        [request] = first.requests("place")
        assert (request["session"], request["generation"], request["cpus"], request["labels"]) == (
            "app-a",
            1,
            2.0,
            {"gpu": "a"},
        )
        first.say(event="waits", session="app-a", why="a node with the labels gpu=a")
        await settled()
        assert placer.waiting_reason("app-a") == "a node with the labels gpu=a"
        first.say(event="lost", why="Ray's head does not answer")
        first.stdout.feed_eof()
        await asyncio.sleep(0.05)
        assert placer.unreachable_reason == "is unreachable: Ray's head does not answer"
        assert placer.waiting_reason("app-a") == "Ray, which is unreachable: Ray's head does not answer"
        second = host.bridges[1]
        second.say(event="connected")
        await settled()
        [repeated] = second.requests("place")
        second.say(id=repeated["id"], node="n2")
        assert await waiting == "n2"
        assert await placer.place("app-a", 1, Requirements(2.0)) == "n2", "the same launch has the same node"
        assert len(second.requests("place")) == 1
        running.cancel()

    play(work)


def test_placed_sessions_are_counted_by_a_restarted_ray() -> None:
    async def work() -> None:
        host, placer, running = started()
        placer.count_existing("app-a", 3, "n1", Requirements(1.0))
        await settled()
        host.bridges[0].say(event="connected")
        await settled()
        [request] = host.bridges[0].requests("place")
        assert (request["generation"], request["node"]) == (3, "n1")
        running.cancel()

    play(work)


def test_a_canceled_request_is_released() -> None:
    async def work() -> None:
        host, placer, running = started()
        await settled()
        bridge = host.bridges[0]
        bridge.say(event="connected")
        await settled()
        waiting = asyncio.create_task(placer.place("app-a", 1, Requirements()))
        await settled()
        waiting.cancel()
        await settled()
        assert [request["session"] for request in bridge.requests("release")] == ["app-a"]
        await placer.drain("n1", True)
        assert bridge.requests("drain")[-1]["nodes"] == ["n1"]
        running.cancel()

    play(work)


def test_a_node_is_set_up_by_each_bridge_and_not_ready_without_one() -> None:
    async def work() -> None:
        host, placer, running = started()
        await settled()
        for number in range(2):
            bridge = host.bridges[number]
            bridge.say(event="connected")
            bridge.say(event="nodes", nodes=[node("n1", ready=False, why="is starting")])
            bridge.say(event="nodes", nodes=[node("n1")])
            await settled()
            [setup] = bridge.requests("setup")
            assert setup["node"] == "n1" and setup["setup"]["token"] == "token of n1"
            assert placer.nodes()[0].ready
            bridge.stdout.feed_eof()
            await asyncio.sleep(0.05)
            assert not placer.nodes()[0].ready and placer.nodes()[0].not_ready_reason.startswith("ray: is unreachable")
        running.cancel()

    play(work)
