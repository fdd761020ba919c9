"""A node's link, of a node that says anything at all: it is refused in a line, and nothing of it is shown or written as a fault of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import websockets
from structlog.testing import capture_logs

from agent_orchestrator.cluster.link.calls import PROTOCOL, Hello, to_json
from agent_orchestrator.cluster.link.connection import Link, Reply, Request
from agent_orchestrator.cluster.link.transports import SocketTransport, StarletteTransport
from agent_orchestrator.cluster.nodes.placement import Requirements
from agent_orchestrator.cluster.nodes.registry import Nodes
from agent_orchestrator.cluster.nodes.settings import ClusterSettings
from agent_orchestrator.config.tokens import Identity
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import HomeFacts
from agent_orchestrator.core.fold.home import reduce_home
from agent_orchestrator.core.listeners import Listeners
from agent_orchestrator.errors import AoError
from tests.integration.server.conftest import World

pytestmark = pytest.mark.anyio

HOME = Path("/node")
GOOD = to_json(Hello, Hello("n1", "boot", "1", PROTOCOL, HOME, 4, 8 << 30, {"zone": "a"}))


class Site:
    """Where sessions of the node would live."""

    reachable = in_order = True

    async def on_connected(self) -> None:
        """It is there."""


async def in_order(_site: object, _hello: Hello) -> None:
    """There is nothing to clean up on the node."""


class Told:
    """A flow that only folds."""

    def __init__(self) -> None:
        self.sessions: dict[str, Any] = {}
        self.home = HomeFacts()
        self.listeners = Listeners()

    def clock(self) -> float:
        return 1000.0

    async def append(self, *events: Event) -> None:
        for event in events:
            self.home = reduce_home(self.home, event)


@pytest.fixture
async def nodes(world: World) -> AsyncIterator[Nodes]:
    settings = ClusterSettings(HOME, None, "", 10.0, 120.0, None, Requirements(1.0, 1 << 30))
    made = Nodes(cast(Flow, Told()), world.services.home, lambda: settings, cast(Any, lambda _remote: Site()))

    async def serve(websocket: Any, identity: Identity, address: str) -> None:
        await made.serve(StarletteTransport(websocket), identity, address, in_order)

    world.services.nodes = SimpleNamespace(serve=serve, list=made.list)  # type: ignore[attr-defined]
    yield made
    await made.close()


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as found:
        yield found
    assert not [one for one in found if one["log_level"] == "error" or "exc_info" in one], found


@asynccontextmanager
async def dialled(world: World, *, files: Mapping[str, bytes] | None = None) -> AsyncIterator[tuple[Link, Any]]:
    """A node's end of a link, and its connection; `files` is what it says that its files hold."""

    async def read(request: Request) -> Reply:
        return Reply(True, (files or {})[request.body["path"]])

    shown = {"Authorization": f"Bearer {world.services.tokens.for_node('n1')}"}
    url = f"ws://127.0.0.1:{world.port}/api/nodes/link"
    async with websockets.connect(url, additional_headers=shown, close_timeout=30, proxy=None) as connection:
        link = Link(SocketTransport(connection), {"files.read": read}, dialled=True)
        link.start()
        try:
            yield link, connection
        finally:
            await link.close()


async def shown(world: World) -> list[dict[str, Any]]:
    answer = await world.unix.get("/api/nodes")
    assert answer.status == 200, answer.body

    def no(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    found: list[dict[str, Any]] = json.loads(answer.body, parse_constant=no)["nodes"]
    return found


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"resources": {"cpus": float("inf")}}, "inf is no finite number"),
        ({"resources": {"cpus": float("nan")}}, "nan is no finite number"),
        ({"resources": {"cpus": 10**400}}, "cannot be understood"),
        ({"resources": {"cpus": -1}}, "-1 cpus"),
        ({"resources": {"memory": "much"}}, "'much' is no float"),
        ({"cpus": "4"}, "'4' is no int"),
        ({"memory": None}, "nothing is no int"),
        ({"memory": 1 << 80}, "bytes of memory"),
        ({"labels": ["a"]}, "a list is no dict"),
        ({"labels": {"zone": 1}}, "1 is no str"),
        ({"labels": {"zone": "x" * 1000}}, "too long"),
        ({"labels": {f"a{n}": "" for n in range(1000)}}, "too many"),
        ({"sessions": [{"session": "s"}]}, "cannot be understood"),
        ({"home": 5}, "5 is no str"),
        ({"unknown": 5}, "unknown"),
    ],
)
async def test_what_no_machine_says_of_itself_is_refused_in_a_line(
    world: World, nodes: Nodes, logs: list[Any], said: Mapping[str, Any], why: str
) -> None:
    async with asyncio.timeout(60), dialled(world) as (link, connection):
        with pytest.raises(AoError, match="cannot be understood") as refused:
            await link.call("hello", {**GOOD, **said})
        assert why in str(refused.value) and "\n" not in str(refused.value)
        await link.closed.wait()
    assert connection.close_code == 1008 and connection.close_reason.startswith("what a node says of itself cannot be")
    assert await shown(world) == []
    async with asyncio.timeout(60):
        while not [one for one in logs if one["event"] == "a node is refused" and why in one["error"]]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("hello", [None, [], "n1", 5])
async def test_a_hello_that_is_none(world: World, nodes: Nodes, logs: list[Any], hello: object) -> None:
    async with asyncio.timeout(60), dialled(world) as (link, _):
        with pytest.raises(AoError, match="what a node says of itself cannot be understood"):
            await link.call("hello", hello)


async def test_a_call_with_anything_in_it_is_refused_in_a_line(world: World, nodes: Nodes, logs: list[Any]) -> None:
    launch = {"session": "app-fix", "generation": 1}
    bad: list[tuple[str, Any]] = [
        ("lease.renew", None),
        ("lease.renew", {"launches": ["x"]}),
        ("lease.renew", {"launches": {"app-fix": float("inf")}}),
        ("mirror.sizes", {**launch, "names": 5}),
        ("mirror.sizes", {**launch, "generation": None, "names": []}),
        ("mirror.push", {**launch, "name": "terminal.log", "offset": "x", "floor": 0}),
        ("mirror.push", {**launch, "name": "terminal.log", "offset": -5, "floor": 0}),
        ("mirror.push", {**launch, "name": "terminal.log", "offset": 0, "floor": 1 << 60}),
        ("mirror.push", []),
        ("mirror.head", {**launch, "ref": 5}),
    ]
    async with asyncio.timeout(60), dialled(world) as (link, _):
        await link.call("hello", GOOD)
        for name, body in bad:
            with pytest.raises(AoError) as refused:
                await link.call(name, body)
            assert "\n" not in str(refused.value), (name, body)
        assert (await link.call("lease.renew", {"launches": {}})).body["length"] == 10.0, "it goes on"
    assert len([one for one in logs if one["event"] == "a call is refused"]) == len(bad)


@pytest.mark.parametrize("load", [b"nan nan nan", b"inf 0 0", b"\xff", b"", b"9" * 5000 + b".0 1 1"])
async def test_what_a_nodes_kernel_would_not_say_is_not_shown(world: World, nodes: Nodes, load: bytes) -> None:
    files = {"/proc/loadavg": load, "/proc/meminfo": b"MemAvailable: many kB\nMemAvailable:\n"}
    async with asyncio.timeout(60), dialled(world, files=files) as (link, _):
        await link.call("hello", GOOD)
        [one] = [one for one in await until_shown(world) if one["name"] == "n1"]
        assert (one["load"], one["availableMemory"], one["cpus"]) == (None, None, 4.0)


async def until_shown(world: World) -> list[dict[str, Any]]:
    while not (found := [one for one in await shown(world) if one["state"] == "ready"]):
        await asyncio.sleep(0.01)
    return found


async def test_a_node_that_hangs_up_before_it_is_heard_is_no_fault(
    world: World, nodes: Nodes, logs: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As one does that dialled while the daemon stood still."""
    token = world.services.tokens.for_node("n1")
    lines = ["GET /api/nodes/link HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"]
    for _ in range(5):
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write("\r\n".join([*lines, f"Authorization: Bearer {token}", "", ""]).encode())
        writer.close()
    async with asyncio.timeout(60), dialled(world) as (link, _):
        await link.call("hello", GOOD)
    assert not [one for one in caplog.records if one.exc_info]
