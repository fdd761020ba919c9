"""What a session writes on a node is here exactly once, whatever happens on the way."""

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

from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.link.connection import Link, Reply, Request
from agent_orchestrator.cluster.nodes.mirror import Mirror, Receiver
from agent_orchestrator.errors import Denied
from agent_orchestrator.protocols import Exit, Gone
from agent_orchestrator.testing.terminals import eventually
from tests.integration.cluster.bench import Bench, bench, shell

pytestmark = pytest.mark.anyio
# Reports and prints numbered lines until it is told to end, then much at once.
_TALKS = """
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
async def world() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made


def same(world: Bench) -> bool:
    """Has everything arrived?"""
    there = world.there
    return (world.spool(), world.log()) == (
        there.spool("app-fix", 1).read_bytes(),
        there.terminal_log("app-fix").read_bytes(),
    )


async def test_all_that_is_written_arrives_once_over_lost_links_dead_workers_and_other_daemons(world: Bench) -> None:
    node = await world.linked()
    handle = await world.launch((sys.executable, "-I", "-S", "-c", _TALKS))
    assert handle.generation == 1
    await eventually(lambda: world.spool().count(b"\n") > 20)
    for _ in range(4):
        await world.cut()
        await node.until_connected()
        before = len(world.spool())
        await eventually(lambda before=before: len(world.spool()) > before)  # type: ignore[misc]
    world.kill_worker()
    await asyncio.sleep(0.02)  # it talks on meanwhile
    world.start_worker()
    await world.restart_daemon()
    await world.linked()
    before = len(world.spool())
    await eventually(lambda: len(world.spool()) > before)
    first = world.local
    await world.restart_daemon(Home(world.root / "another"))
    node = await world.linked()
    await eventually(lambda: len(world.spool()) > before)
    os.kill(handle.pid, signal.SIGTERM)
    # What was written before the end is here when the end is told: two megabytes at once, too.
    assert await asyncio.wait_for(node.runtime().ended(handle), 60) == Gone(Exit(0))
    assert same(world)
    lines = world.spool().splitlines()
    assert lines[:-1] == [b'{"event": "activity", "detail": "%d"}' % number for number in range(len(lines) - 1)]
    assert world.log().count(b"x" * 98) == 20000
    assert world.spool().startswith(first.spool("app-fix", 1).read_bytes())


async def test_what_comes_from_another_node_stays_before_it_and_a_cut_file_does_not_stop_it(world: Bench) -> None:
    node = await world.linked()
    session = world.local.session("app-fix")
    session.mkdir(parents=True)
    world.local.terminal_log("app-fix").write_bytes(b"elsewhere\n")
    handle = await world.launch(shell("echo here; exec cat"))
    await eventually(lambda: world.log() == b"elsewhere\nhere\r\n")
    # Nothing is asked or sent while nothing happens.
    asked: list[str] = []
    handlers = node.link.handlers

    async def note(request: Request) -> Reply:
        asked.append(request.name)
        return await handlers[request.name](request)

    node.link.handlers = dict.fromkeys(handlers, note)
    for _ in range(10):  # until the Worker is done with what was
        await node.run(["true"])
        asked.clear()
        await asyncio.sleep(0.3)
        if set(asked) <= {"lease.renew"}:
            break
    assert set(asked) <= {"lease.renew"}
    node.link.handlers = handlers
    spool = world.there.spool("app-fix", 1)
    with spool.open("ab") as file:
        file.write(b"one\ntwo\n")
    await eventually(lambda: world.spool() == b"one\ntwo\n")
    os.truncate(spool, 0)
    await asyncio.sleep(0.05)
    with spool.open("ab") as file:
        file.write(b"x\n")
    await eventually(lambda: world.spool() == b"one\ntwo\nx\n")
    await node.runtime().stop(handle, grace=0.0)
    await node.runtime().discard(handle)
    # Meanwhile it was somewhere else; then it comes back, with all that it once printed here.
    with world.local.terminal_log("app-fix").open("ab") as file:
        file.write(b"elsewhere again\n")
    handle = await world.launch(shell("echo back"), generation=2)
    await node.runtime().ended(handle)
    assert world.log() == b"elsewhere\nhere\r\nelsewhere again\nback\r\n"
    assert world.spool(generation=2) == b""
    # A daemon that has nothing at all gets what is here, at the place where it belongs.
    place = world.log().index(b"back")
    await world.restart_daemon(Home(world.root / "another"))
    await world.linked()
    await eventually(lambda: world.log()[place:] == b"back\r\n")


async def test_a_launch_without_a_say_is_not_heard(world: Bench) -> None:
    node = await world.linked()
    handle = await world.launch(shell("echo first; read line; echo second"))
    await eventually(lambda: b"first" in world.log())
    node.receiver.accepts = lambda session, generation: (session, generation) != ("app-fix", 1)
    await node.runtime().deliver(handle, "m", "go")
    assert (await node.runtime().ended(handle)).exit == Exit(0)
    assert b"second" not in world.log() and b"second" in world.there.terminal_log("app-fix").read_bytes()
    node.receiver.accepts = lambda _session, _generation: False
    with pytest.raises(Denied, match="no say"):
        await world.launch(shell("true"), generation=2)


class Waits:
    """A link on which the first piece of a file is answered only when the test says so."""

    def __init__(self, home: Home) -> None:
        self.closed = asyncio.Event()
        self.answer, self.asked = asyncio.Event(), asyncio.Event()
        self._handlers = Receiver(home).handlers()

    async def call(self, name: str, body: object, data: bytes = b"") -> Reply:
        if name == "mirror.push":
            self.asked.set()
            await self.answer.wait()
        return await self._handlers[name](Request(name, body, data, lambda _note: None, cast(Link, self)))


async def test_a_push_that_is_under_way_when_another_link_comes_goes_on(tmp_path: Path) -> None:
    """As when a daemon is started anew: what it has of each file is asked again, and nobody forgets what he was about."""
    here, there = Home(tmp_path / "here"), Home(tmp_path / "there")
    private = there.session("app-fix")
    private.mkdir(parents=True)
    record = {"generation": 1, "workspace": "", "marks": {}}
    for name in ("terminal.log", "spool.1.jsonl"):
        (private / name).write_bytes(b"what it wrote\n")
        record["marks"][name] = {"start": 0, "base": 0}  # type: ignore[index]
    (private / "mirror.json").write_text(json.dumps(record))
    nothing = SimpleNamespace(file=lambda *_: lambda: None, folder=lambda *_: lambda: None)
    mirror, first, second = Mirror(there, cast(Watch, nothing)), Waits(here), Waits(here)
    mirror.adopt()
    pushing = asyncio.create_task(mirror.flush(cast(Link, first), "app-fix"))
    await first.asked.wait()
    serving = asyncio.create_task(mirror.serve(cast(Link, second)))
    await asyncio.sleep(0)
    first.answer.set()
    second.answer.set()
    await pushing
    await mirror.flush(cast(Link, second), "app-fix")
    for name in ("terminal.log", "spool.1.jsonl"):
        assert (here.session("app-fix") / name).read_bytes() == b"what it wrote\n"
    second.closed.set()
    await serving


async def push(home: Home, data: bytes, offset: int, **asked: object) -> int:
    """What a node pushes, and how much there is then."""
    about = {"session": "s", "generation": 1, "name": "spool.1.jsonl", "offset": offset, "floor": 0, **asked}
    link = Link.__new__(Link)
    reply = await Receiver(home).handlers()["mirror.push"](
        Request("mirror.push", about, data, lambda _note: None, link)
    )
    return int(reply.body["size"])


async def test_what_is_pushed_again_is_there_once_and_what_leaves_a_gap_is_not_taken(
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
async def test_a_node_writes_nothing_but_what_is_mirrored(
    tmp_path_factory: pytest.TempPathFactory, session: str, name: str
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    with pytest.raises(Denied):
        await push(home, b"x", 0, session=session, name=name)
    assert [*home.path.rglob("*")] == []
