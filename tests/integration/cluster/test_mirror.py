"""What a session writes on a node is mirrored exactly once, despite lost links and crashes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.daemon.mirror import Mirror, MirrorReceiver
from agent_orchestrator.cluster.link.connection import LinkReply, LinkRequest, NodeLink
from agent_orchestrator.errors import Denied
from agent_orchestrator.protocols import Exit, Gone
from agent_orchestrator.testing.terminals import wait_until_true
from tests.integration.cluster.bench import NodeBench, bench, shell

pytestmark = pytest.mark.anyio
# Reports and prints numbered lines until SIGTERM, then a large amount at once.
_REPORTER = """
import os, signal, sys, time
going = [True]
signal.signal(signal.SIGTERM, lambda *_: going.clear())
spool = os.open(os.environ['AO_SPOOL'], os.O_WRONLY | os.O_APPEND)
number = 0
while going:
    os.write(spool, b'{"event": "activity", "detail": "%d"}\\n' % number)
    print('line', number, flush=True)
    number += 1
    time.sleep(0.002)
for _ in range(20000):
    print('x' * 98)
os.write(spool, b'{"event": "done"}\\n')
"""


@pytest.fixture
async def world() -> AsyncIterator[NodeBench]:
    async with bench() as running_bench:
        yield running_bench


def is_mirrored(world: NodeBench) -> bool:
    """Return whether spool and log are completely mirrored."""
    node_home = world.node_home
    return (world.spool(), world.log()) == (
        node_home.spool("app-fix", 1).read_bytes(),
        node_home.terminal_log("app-fix").read_bytes(),
    )


async def test_everything_is_mirrored_once_across_lost_links_crashes_and_restarts(world: NodeBench) -> None:
    node = await world.connected_node()
    handle = await world.launch((sys.executable, "-I", "-S", "-c", _REPORTER))
    assert handle.generation == 1
    await wait_until_true(lambda: world.spool().count(b"\n") > 20)
    for _ in range(4):
        await world.cut()
        await node.wait_connected()
        before = len(world.spool())
        await wait_until_true(lambda before=before: len(world.spool()) > before)  # type: ignore[misc]
    world.kill_worker()
    await asyncio.sleep(0.02)  # it continues to write meanwhile
    world.start_worker()
    await world.restart_daemon()
    await world.connected_node()
    before = len(world.spool())
    await wait_until_true(lambda: len(world.spool()) > before)
    first = world.daemon_home
    await world.restart_daemon(Home(world.root / "another"))
    node = await world.connected_node()
    await wait_until_true(lambda: len(world.spool()) > before)
    os.kill(handle.pid, signal.SIGTERM)
    # Everything written before the end, also two megabytes at once, is mirrored when the end is reported.
    assert await asyncio.wait_for(node.runtime().ended(handle), 60) == Gone(Exit(0))
    assert is_mirrored(world)
    lines = world.spool().splitlines()
    assert lines[:-1] == [b'{"event": "activity", "detail": "%d"}' % number for number in range(len(lines) - 1)]
    assert world.log().count(b"x" * 98) == 20000
    assert world.spool().startswith(first.spool("app-fix", 1).read_bytes())


async def test_content_of_another_node_is_kept_and_a_truncated_file_is_continued(world: NodeBench) -> None:
    node = await world.connected_node()
    session = world.daemon_home.session("app-fix")
    session.mkdir(parents=True)
    world.daemon_home.terminal_log("app-fix").write_bytes(b"elsewhere\n")
    handle = await world.launch(shell("echo here; exec cat"))
    await wait_until_true(lambda: world.log() == b"elsewhere\nhere\r\n")
    # Nothing is requested or sent while nothing happens.
    requests: list[str] = []
    handlers = node.link.handlers

    async def note(request: LinkRequest) -> LinkReply:
        requests.append(request.name)
        return await handlers[request.name](request)

    node.link.handlers = dict.fromkeys(handlers, note)
    for _ in range(10):  # until the Worker has finished earlier work
        await node.run(["true"])
        requests.clear()
        await asyncio.sleep(0.3)
        if set(requests) <= {"lease.renew"}:
            break
    assert set(requests) <= {"lease.renew"}
    node.link.handlers = handlers
    spool = world.node_home.spool("app-fix", 1)
    with spool.open("ab") as file:
        file.write(b"one\ntwo\n")
    await wait_until_true(lambda: world.spool() == b"one\ntwo\n")
    os.truncate(spool, 0)
    await asyncio.sleep(0.05)
    with spool.open("ab") as file:
        file.write(b"x\n")
    await wait_until_true(lambda: world.spool() == b"one\ntwo\nx\n")
    await node.runtime().stop(handle, grace=0.0)
    await node.runtime().discard(handle)
    # The session was on another node meanwhile and returns with its earlier output.
    with world.daemon_home.terminal_log("app-fix").open("ab") as file:
        file.write(b"elsewhere again\n")
    handle = await world.launch(shell("echo back"), generation=2)
    await node.runtime().ended(handle)
    assert world.log() == b"elsewhere\nhere\r\nelsewhere again\nback\r\n"
    assert world.spool(generation=2) == b""
    # A daemon without any files gets the content at its original position.
    position = world.log().index(b"back")
    await world.restart_daemon(Home(world.root / "another"))
    await world.connected_node()
    await wait_until_true(lambda: world.log()[position:] == b"back\r\n")


async def test_a_stale_launch_is_not_mirrored(world: NodeBench) -> None:
    node = await world.connected_node()
    handle = await world.launch(shell("echo first; read line; echo second"))
    await wait_until_true(lambda: b"first" in world.log())
    node.receiver.accepts_launch = lambda session, generation: (session, generation) != ("app-fix", 1)
    await node.runtime().deliver(handle, "m", "go")
    assert (await node.runtime().ended(handle)).exit == Exit(0)
    assert b"second" not in world.log() and b"second" in world.node_home.terminal_log("app-fix").read_bytes()
    node.receiver.accepts_launch = lambda _session, _generation: False
    with pytest.raises(Denied, match="no say"):
        await world.launch(shell("true"), generation=2)


class HeldLink:
    """A link that answers the first push of a file only when the test allows it."""

    def __init__(self, home: Home) -> None:
        self.closed = asyncio.Event()
        self.may_answer, self.is_called = asyncio.Event(), asyncio.Event()
        self._handlers = MirrorReceiver(home).handlers()

    async def call(self, name: str, body: object, data: bytes = b"") -> LinkReply:
        if name == "mirror.push":
            self.is_called.set()
            await self.may_answer.wait()
        return await self._handlers[name](LinkRequest(name, body, data, lambda _note: None, cast(NodeLink, self)))


async def test_a_pending_push_continues_when_the_link_is_replaced(tmp_path: Path) -> None:
    """As after a restart of the daemon: the sizes are queried again, and the pending push continues."""
    daemon_home, node_home = Home(tmp_path / "here"), Home(tmp_path / "there")
    private = node_home.session("app-fix")
    private.mkdir(parents=True)
    record = {"generation": 1, "workspace": "", "marks": {}}
    for name in ("terminal.log", "spool.1.jsonl"):
        (private / name).write_bytes(b"what it wrote\n")
        record["marks"][name] = {"start": 0, "base": 0}  # type: ignore[index]
    (private / "mirror.json").write_text(json.dumps(record))
    watch = SimpleNamespace(watch_file=lambda *_: lambda: None, watch_folder=lambda *_: lambda: None)
    mirror, first, second = Mirror(node_home, cast(FileWatcher, watch)), HeldLink(daemon_home), HeldLink(daemon_home)
    mirror.adopt()
    pushing = asyncio.create_task(mirror.flush(cast(NodeLink, first), "app-fix"))
    await first.is_called.wait()
    serving = asyncio.create_task(mirror.serve(cast(NodeLink, second)))
    await asyncio.sleep(0)
    first.may_answer.set()
    second.may_answer.set()
    await pushing
    await mirror.flush(cast(NodeLink, second), "app-fix")
    for name in ("terminal.log", "spool.1.jsonl"):
        assert (daemon_home.session("app-fix") / name).read_bytes() == b"what it wrote\n"
    second.closed.set()
    await serving


async def push(home: Home, data: bytes, offset: int, **options: object) -> int:
    """Push data as a node does, and return the size of the file afterwards."""
    body = {"session": "s", "generation": 1, "name": "spool.1.jsonl", "offset": offset, "floor": 0, **options}
    link = NodeLink.__new__(NodeLink)
    reply = await MirrorReceiver(home).handlers()["mirror.push"](
        LinkRequest("mirror.push", body, data, lambda _note: None, link)
    )
    return int(reply.body["size"])


async def test_repeated_pushes_are_stored_once_and_gaps_are_refused(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    assert await push(home, b"one\n", 0) == 4
    assert await push(home, b"one\n", 0) == 4
    assert await push(home, b"ne\ntwo\n", 1) == 8
    assert await push(home, b"four\n", 14) == 8
    assert await push(home, b"three\n", 8) == 14
    assert home.spool("s", 1).read_bytes() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("session", "name"),
    [("../evil", "terminal.log"), ("s", "../../x"), ("s", "spool.2.jsonl"), ("..", "terminal.log"), ("s", "token")],
)
async def test_a_node_can_write_only_mirrored_files(
    tmp_path_factory: pytest.TempPathFactory, session: str, name: str
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    with pytest.raises(Denied):
        await push(home, b"x", 0, session=session, name=name)
    assert [*home.path.rglob("*")] == []
