"""A real Worker, driven by the daemon's proxies: a node is used as this machine is, and what is lost on the way comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import websockets

from agent_orchestrator import __version__
from agent_orchestrator.base.files.watch import FileChanges, Watch
from agent_orchestrator.base.git.refs import read_head
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster.link.calls import TOKEN, Hello
from agent_orchestrator.cluster.link.connection import LinkLost
from agent_orchestrator.cluster.link.transports import SocketTransport
from agent_orchestrator.cluster.node.worker import Worker, worker_of
from agent_orchestrator.cluster.nodes.remote import RemoteNode, accept
from agent_orchestrator.errors import Conflict, Missing, Temporary, UsageError
from agent_orchestrator.protocols import (
    AgentContext,
    Alive,
    Delivered,
    Exit,
    Gone,
    Handle,
    ProbeFailed,
    ReadyToType,
    ReportBatch,
    RunningLaunch,
    Runtime,
    Workspace,
)
from agent_orchestrator.server.access import tls
from agent_orchestrator.testing.terminals import PersonsTerminal, eventually
from tests.integration.cluster.bench import SECRET, Bench, bench, shell

pytestmark = pytest.mark.anyio
PLUGIN = Path(__file__).with_name("listening_agent.py")
ECHO = "stty raw -echo; echo ready; exec cat"


@pytest.fixture
async def world() -> AsyncIterator[Bench]:
    async with bench("--label", "gpu=yes", "--resource", "cpus=1.5") as made:
        yield made


async def test_a_node_says_who_it_is_runs_programs_and_keeps_files(world: Bench) -> None:
    node = await world.linked()
    hello = node.hello
    assert (hello.name, hello.version, hello.home) == ("n1", __version__, world.there.path)
    assert (hello.labels, hello.resources, hello.sessions) == ({"gpu": "yes"}, {"cpus": 1.5}, ())
    assert hello.cpus >= 1 and hello.memory > 1 << 20 and hello.programs["git"]
    # Programs: output, input, exit code, errors; the environment is the node's own, without the daemon's secrets or the node's token.
    os.environ["OURS_ALONE"] = "secret"
    try:
        env = {**os.environ, "ADDED": "1"}
        done = await node.run(shell("cat; echo $ADDED; echo to-err >&2; exit 3"), input=b"in\n", env=env)
        assert (done.code, done.out, done.err) == (3, b"in\n1\n", b"to-err\n")
        printed = (await node.run(["env"], env=env)).text
    finally:
        del os.environ["OURS_ALONE"]
    assert "OURS_ALONE" not in printed and SECRET not in printed
    with pytest.raises(Missing, match="no-such-program"):
        await node.run(["no-such-program"])
    lines: list[str] = []
    assert await node.stream(shell("echo a; echo b; exit 4"), lines.append) == 4
    assert lines == ["a", "b"]
    large = await node.run(["head", "-c", "3000000", "/dev/zero"])
    assert len(large.out) == 3_000_000
    with pytest.raises(UsageError, match="node n1"):
        node.host.users_of(Path("/"))
    # Files.
    path = world.there.session("s") / "task.md"
    assert not await node.present(path) and await node.read(path) is None
    await node.write(path, b"one\n", mode=0o640)
    await node.write(path, b"two\n", append=True)
    assert await node.present(path) and await node.read(path) == b"one\ntwo\n" and path.stat().st_mode & 0o777 == 0o640
    await node.remove(path.parent)
    assert not await node.present(path.parent)
    with pytest.raises(UsageError, match="not in the node's home"):
        await node.remove(world.local.path)
    assert world.local.path.is_dir()
    # A second Worker with the same home.
    argv = [sys.executable, "-m", "agent_orchestrator.cluster.node.worker", "--url", f"http://127.0.0.1:{world.port}"]
    second = await asyncio.to_thread(
        subprocess.run,
        [*argv, "--name", "n2", "--home", str(world.there.path)],
        env={**os.environ, TOKEN: SECRET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1 and len(second.stderr.splitlines()) == 1
    assert f"another Worker (pid {hello.pid})" in second.stderr


async def test_work_on_a_node_is_made_saved_removed_and_brought_back(world: Bench) -> None:
    node, repo, spec = await world.linked(), world.repository(), world.workspace_spec()
    workspace = node.workspace("clone")
    assert isinstance(workspace, Workspace)
    lines: list[str] = []
    made = await workspace.create(
        replace(spec, post_create=("echo made-it", "mkdir node_modules && touch node_modules/tool.js")), lines.append
    )
    assert any("made-it" in line for line in lines)
    # Its HEAD is mirrored here when it is there, and follows.
    assert not made.shared and made.git_dir == world.local.session("app-fix") / "git"
    assert read_head(made.git_dir) == made.head
    git = node.git(made.path)
    await git.run("commit", "--allow-empty", "-q", "-m", "more")
    head = await git.resolve("HEAD")
    assert head != made.head
    await eventually(lambda: read_head(made.git_dir) == head)
    (made.path / "new.txt").write_text("not committed\n")
    assert await node.unsaved(made.path) == "1 file uncommitted"
    reasons = await node.is_safe(repo, made.path, "app-fix")
    assert "1 untracked file" in reasons
    saved = await node.rescue(repo, made.path, "app-fix")
    assert saved.ref == "refs/ao/rescue/app-fix" and "1 untracked file" in saved.saved
    assert await node.is_safe(repo, made.path, "app-fix") == ()
    users = await node.users_of(made.path)
    assert users == []
    await workspace.remove(spec)
    assert not await node.present(made.path)
    again = await workspace.create(replace(spec, existing=True), lines.append)
    assert read_head(again.git_dir) == again.head == head
    back = await node.bring_back(repo, again.path, "app-fix")
    assert back.restored and (again.path / "new.txt").read_text() == "not committed\n"


async def test_a_terminal_on_a_node_is_written_to_shown_and_attached_to_as_one_here(world: Bench) -> None:
    node = await world.linked()
    runtime = node.runtime()
    assert isinstance(runtime, Runtime)
    handle = await world.launch(shell(ECHO))
    assert (handle.runtime, handle.boot_id, handle.address["node"]) == ("ray", node.boot_id, "n1")
    assert await world.launch(shell(ECHO)) == handle
    assert await runtime.probe([handle, replace(handle, boot_id="another")]) == [Alive(), Gone(lost=True)]
    assert [one.session for one in await runtime.orphaned_terminals([])] == ["app-fix"]
    assert await runtime.orphaned_terminals([handle]) == []
    await eventually(lambda: b"ready" in world.log())
    assert await runtime.deliver(handle, "m1", "hello there") == Delivered()
    assert await runtime.deliver(handle, "m1", "hello there") == Delivered()
    await eventually(lambda: world.log().count(b"hello there") == 1)
    assert "hello there" in await runtime.screen(handle)
    terminal = PersonsTerminal(runtime.attach_command(handle))
    try:
        await eventually(lambda: b"hello there" in terminal.output)
        assert await runtime.watched(handle)
        took, runs = [60.0], [60.0]
        while len(took) < 20 or (min(took) >= max(0.05, 5 * min(runs)) and len(took) < 60):
            began, mark = time.perf_counter(), f"<{len(took)}>".encode()
            terminal.type(mark)
            await eventually(lambda mark=mark: mark in terminal.output)  # type: ignore[misc]
            took.append(time.perf_counter() - began)
            began = time.perf_counter()
            await node.run(["true"])
            runs.append(time.perf_counter() - began)
        # Looked at every 10 ms; on a slow machine whatever goes there and back takes longer.
        assert min(took) < max(0.05, 5 * min(runs)), (took, runs)
        terminal.type(b"\x1d")
        await eventually(lambda: terminal.ended)
    finally:
        await terminal.close()
    await eventually(lambda: _not_watched(runtime, handle))
    assert await runtime.stop(handle, grace=10.0) == Gone(Exit(None, signal.SIGTERM))
    await runtime.discard(handle)
    assert await runtime.orphaned_terminals([]) == []


async def _not_watched(runtime: Runtime, handle: Handle) -> bool:
    return not await runtime.watched(handle)


async def test_an_end_is_told_over_lost_links_and_a_lost_link_says_nothing(world: Bench) -> None:
    node = await world.linked()
    gate = world.root / "gate"
    os.mkfifo(gate)
    handle = await world.launch(shell(f'read line < {gate}; echo \'{{"event": "done"}}\' >> $AO_SPOOL; exit 5'))
    ended = asyncio.create_task(node.runtime().ended(handle))
    asked = asyncio.create_task(node.run(["sleep", "30"]))
    await asyncio.sleep(0.05)
    link = node.link
    assert world.worker is not None
    os.kill(world.worker.pid, signal.SIGSTOP)  # it does not come back at once
    await world.cut()
    with pytest.raises(LinkLost):
        await asked
    assert link.closed.is_set() and not ended.done()
    assert not node.connected
    assert isinstance((await node.runtime().probe([handle]))[0], ProbeFailed)
    with pytest.raises(LinkLost, match="node n1 is not connected"):
        await node.runtime().screen(handle)
    # The Worker dies while the link is down, and the agent lives on: the next one has it.
    world.kill_worker()
    os.kill(handle.pid, 0)
    world.start_worker()
    await world.linked()
    assert [(one.session, one.generation, one.alive) for one in node.hello.sessions] == [("app-fix", 1, True)]
    assert await node.runtime().probe([handle]) == [Alive()]
    with gate.open("w") as pipe:
        pipe.write("go\n")
    assert await asyncio.wait_for(ended, 60) == Gone(Exit(5))
    assert world.spool() == b'{"event": "done"}\n'


async def test_what_was_begun_is_finished_without_a_link_and_not_done_twice(world: Bench) -> None:
    node, repo, spec = await world.linked(), world.repository(), world.workspace_spec()
    said = world.root / "said"
    go_on = world.root / "go-on"
    wait = f"while [ ! -e {go_on} ]; do sleep 0.02; done"
    slow = replace(spec, post_create=(f"echo begun >> {said}; {wait}; echo made >> {said}",))
    asked = asyncio.create_task(node.workspace("clone").create(slow, lambda _line: None))
    await eventually(said.exists)
    await world.cut()
    with pytest.raises(LinkLost):
        await asked
    go_on.touch()
    await world.linked()
    made = await node.workspace("clone").create(slow, lambda _line: None)
    assert said.read_text() == "begun\nmade\n"
    assert await node.is_safe(repo, made.path, "app-fix") == ()


async def test_an_agent_works_as_long_as_the_daemon_lets_it(world: Bench) -> None:
    node = await world.linked()
    world.lease = 30.0
    kept = await world.launch(("sleep", "60"), "app-kept")
    lease = world.there.session("app-kept") / "lease.1"
    before = int(lease.read_text())
    for number, seconds in enumerate((0.5, 3.0, 12.0)):  # as short as can be that it starts in
        world.lease = seconds
        with contextlib.suppress(Temporary):
            lapsed = await world.launch(("sleep", "60"), f"app-lapsed-{number}")
            break
    # The Worker is gone, and nobody lets them work on: one has no more time, the other's is put off by the next Worker.
    world.kill_worker()
    await eventually(lambda: LocalHost().process(lapsed.pid) is None)
    world.lease = 60.0
    world.start_worker()
    assert (await asyncio.wait_for(node.runtime().ended(lapsed), 60)).exit.reason == "lease"
    await eventually(lambda: int(lease.read_text()) > before)
    assert await node.runtime().probe([kept]) == [Alive()]
    world.stale.add(("app-kept", 1))
    with pytest.raises(Conflict, match="launch 1 of app-kept is over"):
        await world.launch(("sleep", "60"), "app-kept")


async def test_a_stale_agent_is_ended(world: Bench) -> None:
    node = await world.linked()
    world.lease = 2.0
    handle = await world.launch(("sleep", "60"))
    world.stale.add(("app-fix", 1))
    ended = await asyncio.wait_for(node.runtime().ended(handle), 60)
    assert ended.exit.signal in (signal.SIGTERM, signal.SIGKILL) and not ended.lost


def context(world: Bench, session: str = "app-fix") -> AgentContext:
    private = world.there.session(session)
    private.mkdir(parents=True, exist_ok=True)
    return AgentContext(
        session=session,
        project="app",
        workspace=world.there.path,
        branch="ao/x",
        base="main",
        prompt="do it",
        task_file=private / "task.md",
        private=private,
    )


async def test_the_demo_agent_works_on_a_node(world: Bench) -> None:
    node, _, made = await world.linked(), world.repository(), await world.workspace()
    agent = node.agent(
        "demo", {"script": "[[write: a.txt|hello]]\n[[commit: made by the agent]]\n[[done: all of it]]\n[[exit: 7]]"}
    )
    assert agent.has_headless_mode and agent.escape_input("you") == "you"
    assert not (agent.listens or agent.delivers_messages or agent.answers_requests or agent.detects_unsent_text)
    assert agent.permission_keys["allow"] == ("y",)
    plan = await agent.launch(context(world))
    script = plan.env["AO_DEMO_SCRIPT"]
    argv = ("/usr/bin/env", f"AO_DEMO_SCRIPT={script}", *plan.argv)
    handle = await world.launch(argv, cwd=made.path)
    assert (await asyncio.wait_for(node.runtime().ended(handle), 60)).exit == Exit(7)
    events = [json.loads(line)["event"] for line in world.spool().splitlines()]
    assert "done" in events
    assert read_head(made.git_dir) == read_head(made.path / ".git") != made.head
    headless = await node.headless_plan(context(world), "demo", {}, (PLUGIN,))
    plan_file = Path(headless.argv[-1])
    assert plan_file.parent == world.there.session("app-fix")
    assert json.loads(plan_file.read_text())["plugins"][0].startswith(str(world.there.path))


async def test_an_agent_is_heard_by_its_plugin_on_the_node_also_after_a_lost_link(world: Bench) -> None:
    node = await world.linked()
    agent = node.agent("listening", {"word": "hey"}, (PLUGIN,))
    assert agent.listens and agent.delivers_messages
    assert not agent.answers_requests and not agent.has_headless_mode
    assert agent.escape_input("you") == "hey you"
    found = await agent.detect()
    assert found is not None and found.path.startswith(str(world.there.path)) and found.version == "hey"
    plan = await agent.launch(context(world))
    handle = await world.launch(plan.argv)
    watch, ended = Watch(), asyncio.Event()
    run = RunningLaunch(
        session="app-fix",
        generation=1,
        pid=handle.pid,
        started=handle.started,
        workspace=world.there.path,
        private=world.local.session("app-fix"),
        log=world.local.terminal_log("app-fix"),
        conversation=None,
        plugin_data=plan.plugin_data,
        cursors={},
        changes=FileChanges(watch, ended),
        screen=lambda: node.runtime().screen(handle),
        ended=ended,
    )
    heard: list[ReportBatch] = []

    async def listen() -> None:
        async for one in agent.listen(run):
            heard.append(one)  # noqa: PERF401 - looked at meanwhile

    listening = asyncio.create_task(listen())
    await node.runtime().deliver(handle, "m1", "first")
    await eventually(lambda: [one.reports[0].detail for one in heard] == ["first"])  # type: ignore[union-attr]
    await world.cut()
    await world.linked()
    await node.runtime().deliver(handle, "m2", "second")
    await eventually(lambda: len(heard) == 2)
    assert (heard[1].source_id, heard[1].start, heard[1].end) == ("journal", 6, 13)
    assert await agent.deliver(run, "m3", "by file", interrupt=False) == Delivered()
    assert await agent.deliver(run, "m4", "typed", interrupt=True) == ReadyToType(("C-u",))
    assert json.loads((world.there.session("app-fix") / "took").read_text()) == ["m3", "by file"]
    # The end: what is left is heard, then no more.
    ended.set()
    await asyncio.wait_for(listening, 60)
    assert heard[-1].source == "screen" and "first" in heard[-1].reports[0].text  # type: ignore[union-attr]
    await node.runtime().stop(handle, grace=0.0)


async def test_the_daemon_is_known_by_its_certificate_before_it_is_told_a_word(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("tls")
    own = await tls.certificate(tls.TlsSettings(own=True), "127.0.0.1", folder, LocalHost())
    assert own is not None and own.fingerprint is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert, own.key)
    tokens: list[str | None] = []
    home = Home(tmp_path_factory.mktemp("daemon"))

    async def node_for(hello: Hello) -> RemoteNode:
        return RemoteNode(hello, home)

    async def connected(connection: websockets.ServerConnection) -> None:
        assert connection.request is not None
        tokens.append(connection.request.headers.get("Authorization"))
        node = await accept(SocketTransport(connection), node_for)
        await node.link.closed.wait()

    async with websockets.serve(connected, "127.0.0.1", 0, ssl=context, close_timeout=0.2) as server:
        url = f"https://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        pem = own.cert.read_text()
        trusted: list[tuple[dict[str, str], bool]] = [
            ({}, False),
            ({"fingerprint": "AB" * 32}, False),
            ({"fingerprint": own.fingerprint}, True),
            ({"ca": pem}, True),
        ]
        for number, (known, taken) in enumerate(trusted):
            ca, pinned = known.get("ca", ""), known.get("fingerprint", "")
            home_there = Home(tmp_path_factory.mktemp(f"n{number}"))
            worker = Worker(home_there, url, SECRET, "n1", ca=ca, fingerprint=pinned)
            running = asyncio.create_task(worker.run())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.linked.wait(), 60.0 if taken else 0.3)
            assert worker.linked.is_set() == taken == (tokens == [f"Bearer {SECRET}"])
            tokens.clear()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("arguments", "token", "said"),
    [
        (["--url", "ftp://x", "--name", "n", "--home", "/x"], "t", "not the daemon's address"),
        (["--url", "http://x", "--name", "n", "--home", "/x"], "", "no token"),
        (["--url", "http://x", "--name", "n", "--home", "/x", "--label", "gpu"], "t", "NAME=VALUE"),
        (["--url", "http://x", "--name", "n", "--home", "/x", "--resource", "cpus=many"], "t", "NAME=NUMBER"),
        (["--url", "https://x", "--name", "n", "--home", "/x", "--ca", "/no/file"], "t", "/no/file cannot be read"),
    ],
)
async def test_what_a_worker_cannot_do_is_said_in_one_line(arguments: list[str], token: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        worker_of(arguments, {TOKEN: token})
