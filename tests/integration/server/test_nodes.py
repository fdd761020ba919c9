"""The link of a node that sends invalid data: refused in one line, not shown, and not logged as an error of the daemon."""

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

from agent_orchestrator.base.api_tokens import Identity
from agent_orchestrator.cluster.daemon.placement import Requirements
from agent_orchestrator.cluster.daemon.registry import NodeRegistry
from agent_orchestrator.cluster.daemon.settings import ClusterSettings
from agent_orchestrator.cluster.link.calls import PROTOCOL_VERSION, Hello, to_json
from agent_orchestrator.cluster.link.connection import LinkReply, LinkRequest, NodeLink
from agent_orchestrator.cluster.link.transports import SocketTransport, StarletteTransport
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import HomeFacts
from agent_orchestrator.core.fold.home import reduce_home
from agent_orchestrator.core.listeners import Listeners
from agent_orchestrator.errors import AoError
from tests.integration.server.conftest import ServerWorld

pytestmark = pytest.mark.anyio

HOME = Path("/node")
GOOD = to_json(Hello, Hello("n1", "boot", "1", PROTOCOL_VERSION, HOME, 4, 8 << 30, {"zone": "a"}))


class Site:
    """The site of the node's sessions."""

    reachable = in_order = True

    async def on_connected(self) -> None:
        """Do nothing: the site is available."""


async def accept_node(_site: object, _hello: Hello) -> None:
    """Accept the node without any cleanup."""


class FoldingFlow:
    """A flow that only reduces events to facts."""

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
async def nodes(world: ServerWorld) -> AsyncIterator[NodeRegistry]:
    settings = ClusterSettings(HOME, None, "", 10.0, 120.0, None, Requirements(1.0, 1 << 30))
    running_nodes = NodeRegistry(
        cast(Flow, FoldingFlow()), world.services.home, lambda: settings, cast(Any, lambda _remote: Site())
    )

    async def serve(websocket: Any, identity: Identity, address: str) -> None:
        await running_nodes.serve(StarletteTransport(websocket), identity, address, accept_node)

    world.services.cluster = SimpleNamespace(serve=serve, list_nodes=running_nodes.list)  # type: ignore[attr-defined]
    yield running_nodes
    await running_nodes.close()


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as entries:
        yield entries
    assert not [entry for entry in entries if entry["log_level"] == "error" or "exc_info" in entry], entries


@asynccontextmanager
async def dial_node(
    world: ServerWorld, *, files: Mapping[str, bytes] | None = None
) -> AsyncIterator[tuple[NodeLink, Any]]:
    """Yield a node's end of a link and its connection; `files` is the content that it reports for its files."""

    async def read(request: LinkRequest) -> LinkReply:
        return LinkReply(True, (files or {})[request.body["path"]])

    headers = {"Authorization": f"Bearer {world.services.tokens.for_node('n1')}"}
    url = f"ws://127.0.0.1:{world.port}/api/nodes/link"
    async with websockets.connect(url, additional_headers=headers, close_timeout=30, proxy=None) as connection:
        link = NodeLink(SocketTransport(connection), {"files.read": read}, dialled=True)
        link.start()
        try:
            yield link, connection
        finally:
            await link.close()


async def listed_nodes(world: ServerWorld) -> list[dict[str, Any]]:
    answer = await world.unix.get("/api/nodes")
    assert answer.status == 200, answer.body

    def refuse_constant(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    listed: list[dict[str, Any]] = json.loads(answer.body, parse_constant=refuse_constant)["nodes"]
    return listed


@pytest.mark.parametrize(
    ("fields", "problem"),
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
async def test_an_invalid_hello_is_refused_in_one_line(
    world: ServerWorld, nodes: NodeRegistry, logs: list[Any], fields: Mapping[str, Any], problem: str
) -> None:
    async with asyncio.timeout(60), dial_node(world) as (link, connection):
        with pytest.raises(AoError, match="cannot be understood") as refused:
            await link.call("hello", {**GOOD, **fields})
        assert problem in str(refused.value) and "\n" not in str(refused.value)
        await link.closed.wait()
    assert connection.close_code == 1008 and connection.close_reason.startswith("what a node says of itself cannot be")
    assert await listed_nodes(world) == []
    async with asyncio.timeout(60):
        while not [entry for entry in logs if entry["event"] == "a node is refused" and problem in entry["error"]]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("hello", [None, [], "n1", 5])
async def test_a_hello_of_the_wrong_type_is_refused(
    world: ServerWorld, nodes: NodeRegistry, logs: list[Any], hello: object
) -> None:
    async with asyncio.timeout(60), dial_node(world) as (link, _):
        with pytest.raises(AoError, match="what a node says of itself cannot be understood"):
            await link.call("hello", hello)


async def test_invalid_calls_are_refused_in_one_line(world: ServerWorld, nodes: NodeRegistry, logs: list[Any]) -> None:
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
    async with asyncio.timeout(60), dial_node(world) as (link, _):
        await link.call("hello", GOOD)
        for name, body in bad:
            with pytest.raises(AoError) as refused:
                await link.call(name, body)
            assert "\n" not in str(refused.value), (name, body)
        assert (await link.call("lease.renew", {"launches": {}})).body["length"] == 10.0, "the link stays usable"
    assert len([entry for entry in logs if entry["event"] == "a call is refused"]) == len(bad)


@pytest.mark.parametrize("load", [b"nan nan nan", b"inf 0 0", b"\xff", b"", b"9" * 5000 + b".0 1 1"])
async def test_implausible_load_and_memory_are_not_shown(world: ServerWorld, nodes: NodeRegistry, load: bytes) -> None:
    files = {"/proc/loadavg": load, "/proc/meminfo": b"MemAvailable: many kB\nMemAvailable:\n"}
    async with asyncio.timeout(60), dial_node(world, files=files) as (link, _):
        await link.call("hello", GOOD)
        [entry] = [entry for entry in await wait_until_ready(world) if entry["name"] == "n1"]
        assert (entry["load"], entry["availableMemory"], entry["cpus"]) == (None, None, 4.0)


async def wait_until_ready(world: ServerWorld) -> list[dict[str, Any]]:
    while not (ready := [entry for entry in await listed_nodes(world) if entry["state"] == "ready"]):
        await asyncio.sleep(0.01)
    return ready


async def test_a_node_that_disconnects_early_logs_no_error(
    world: ServerWorld, nodes: NodeRegistry, logs: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As a node that connected while the daemon was stopped."""
    token = world.services.tokens.for_node("n1")
    lines = ["GET /api/nodes/link HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"]
    for _ in range(5):
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write("\r\n".join([*lines, f"Authorization: Bearer {token}", "", ""]).encode())
        writer.close()
    async with asyncio.timeout(60), dial_node(world) as (link, _):
        await link.call("hello", GOOD)
    assert not [entry for entry in caplog.records if entry.exc_info]
