"""A real Worker, used through the daemon's proxies: a node works like this machine, and a lost link is recovered."""

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
from agent_orchestrator.base.files.watch import FileWatcher, LaunchFileChanges
from agent_orchestrator.base.git.refs import read_head
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster.daemon.remote_node import RemoteNode, accept_node
from agent_orchestrator.cluster.link.calls import TOKEN_VARIABLE, Hello
from agent_orchestrator.cluster.link.connection import LinkLost
from agent_orchestrator.cluster.link.transports import SocketTransport
from agent_orchestrator.cluster.node.worker import Worker, create_worker
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
from agent_orchestrator.testing.terminals import PersonsTerminal, wait_until_true
from tests.integration.cluster.bench import SECRET, NodeBench, bench, shell

pytestmark = pytest.mark.anyio
PLUGIN = Path(__file__).with_name("listening_agent.py")
ECHO = "stty raw -echo; echo ready; exec cat"


@pytest.fixture
async def world() -> AsyncIterator[NodeBench]:
    async with bench("--label", "gpu=yes", "--resource", "cpus=1.5") as running_bench:
        yield running_bench


async def test_a_node_reports_itself_runs_programs_and_stores_files(world: NodeBench) -> None:
    node = await world.connected_node()
    hello = node.hello
    assert (hello.name, hello.version, hello.home) == ("n1", __version__, world.node_home.path)
    assert (hello.labels, hello.resources, hello.sessions) == ({"gpu": "yes"}, {"cpus": 1.5}, ())
    assert hello.cpus >= 1 and hello.memory > 1 << 20 and hello.programs["git"]
    # Programs: output, input, exit code, errors; the environment is the node's own, without the daemon's secrets or the node's token.
    os.environ["OURS_ALONE"] = "secret"
    try:
        env = {**os.environ, "ADDED": "1"}
        result = await node.run(shell("cat; echo $ADDED; echo to-err >&2; exit 3"), input=b"in\n", env=env)
        assert (result.code, result.out, result.err) == (3, b"in\n1\n", b"to-err\n")
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
    path = world.node_home.session("s") / "task.md"
    assert not await node.path_exists(path) and await node.read(path) is None
    await node.write(path, b"one\n", mode=0o640)
    await node.write(path, b"two\n", append=True)
    assert (
        await node.path_exists(path) and await node.read(path) == b"one\ntwo\n" and path.stat().st_mode & 0o777 == 0o640
    )
    await node.remove(path.parent)
    assert not await node.path_exists(path.parent)
    with pytest.raises(UsageError, match="not in the node's home"):
        await node.remove(world.daemon_home.path)
    assert world.daemon_home.path.is_dir()
    # A second Worker with the same home.
    argv = [sys.executable, "-m", "agent_orchestrator.cluster.node.worker", "--url", f"http://127.0.0.1:{world.port}"]
    second = await asyncio.to_thread(
        subprocess.run,
        [*argv, "--name", "n2", "--home", str(world.node_home.path)],
        env={**os.environ, TOKEN_VARIABLE: SECRET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1 and len(second.stderr.splitlines()) == 1
    assert f"another Worker (pid {hello.pid})" in second.stderr


async def test_a_workspace_on_a_node_is_created_saved_removed_and_restored(world: NodeBench) -> None:
    node, repo, spec = await world.connected_node(), world.repository(), world.workspace_spec()
    workspace = node.workspace("clone")
    assert isinstance(workspace, Workspace)
    lines: list[str] = []
    info = await workspace.create(
        replace(spec, post_create=("echo made-it", "mkdir node_modules && touch node_modules/tool.js")), lines.append
    )
    assert any("made-it" in line for line in lines)
    # Its HEAD is mirrored here when it is there, and follows.
    assert not info.shared and info.git_dir == world.daemon_home.session("app-fix") / "git"
    assert read_head(info.git_dir) == info.head
    git = node.git(info.path)
    await git.run("commit", "--allow-empty", "-q", "-m", "more")
    head = await git.resolve("HEAD")
    assert head != info.head
    await wait_until_true(lambda: read_head(info.git_dir) == head)
    (info.path / "new.txt").write_text("not committed\n")
    assert await node.unsaved(info.path) == "1 file uncommitted"
    reasons = await node.removal_obstacles(repo, info.path, "app-fix")
    assert "1 untracked file" in reasons
    saved = await node.rescue(repo, info.path, "app-fix")
    assert saved.ref == "refs/ao/rescue/app-fix" and "1 untracked file" in saved.saved
    assert await node.removal_obstacles(repo, info.path, "app-fix") == ()
    users = await node.users_of(info.path)
    assert users == []
    await workspace.remove(spec)
    assert not await node.path_exists(info.path)
    again = await workspace.create(replace(spec, existing=True), lines.append)
    assert read_head(again.git_dir) == again.head == head
    restored = await node.restore_work(repo, again.path, "app-fix")
    assert restored.restored and (again.path / "new.txt").read_text() == "not committed\n"


async def test_a_terminal_on_a_node_works_like_a_local_one(world: NodeBench) -> None:
    node = await world.connected_node()
    runtime = node.runtime()
    assert isinstance(runtime, Runtime)
    handle = await world.launch(shell(ECHO))
    assert (handle.runtime, handle.boot_id, handle.address["node"]) == ("ray", node.boot_id, "n1")
    assert await world.launch(shell(ECHO)) == handle
    assert await runtime.probe([handle, replace(handle, boot_id="another")]) == [Alive(), Gone(lost=True)]
    assert [leftover.session for leftover in await runtime.orphaned_terminals([])] == ["app-fix"]
    assert await runtime.orphaned_terminals([handle]) == []
    await wait_until_true(lambda: b"ready" in world.log())
    assert await runtime.deliver(handle, "m1", "hello there") == Delivered()
    assert await runtime.deliver(handle, "m1", "hello there") == Delivered()
    await wait_until_true(lambda: world.log().count(b"hello there") == 1)
    assert "hello there" in await runtime.screen(handle)
    terminal = PersonsTerminal(runtime.attach_command(handle))
    try:
        await wait_until_true(lambda: b"hello there" in terminal.output)
        assert await runtime.watched(handle)
        echo_seconds, run_seconds = [60.0], [60.0]
        while len(echo_seconds) < 20 or (
            min(echo_seconds) >= max(0.05, 5 * min(run_seconds)) and len(echo_seconds) < 60
        ):
            started_at, mark = time.perf_counter(), f"<{len(echo_seconds)}>".encode()
            terminal.type(mark)
            await wait_until_true(lambda mark=mark: mark in terminal.output)  # type: ignore[misc]
            echo_seconds.append(time.perf_counter() - started_at)
            started_at = time.perf_counter()
            await node.run(["true"])
            run_seconds.append(time.perf_counter() - started_at)
        # Polled every 10 ms; on a slow machine every round trip takes longer.
        assert min(echo_seconds) < max(0.05, 5 * min(run_seconds)), (echo_seconds, run_seconds)
        terminal.type(b"\x1d")
        await wait_until_true(lambda: terminal.has_ended)
    finally:
        await terminal.close()
    await wait_until_true(lambda: _not_watched(runtime, handle))
    assert await runtime.stop(handle, grace=10.0) == Gone(Exit(None, signal.SIGTERM))
    await runtime.discard(handle)
    assert await runtime.orphaned_terminals([]) == []


async def _not_watched(runtime: Runtime, handle: Handle) -> bool:
    return not await runtime.watched(handle)


async def test_an_exit_is_reported_across_lost_links_which_are_no_exit_themselves(world: NodeBench) -> None:
    node = await world.connected_node()
    gate = world.root / "gate"
    os.mkfifo(gate)
    handle = await world.launch(shell(f'read line < {gate}; echo \'{{"event": "done"}}\' >> $AO_SPOOL; exit 5'))
    exit_task = asyncio.create_task(node.runtime().ended(handle))
    sleeping = asyncio.create_task(node.run(["sleep", "30"]))
    await asyncio.sleep(0.05)
    link = node.link
    assert world.worker is not None
    os.kill(world.worker.pid, signal.SIGSTOP)  # it does not reconnect at once
    await world.cut()
    with pytest.raises(LinkLost):
        await sleeping
    assert link.closed.is_set() and not exit_task.done()
    assert not node.connected
    assert isinstance((await node.runtime().probe([handle]))[0], ProbeFailed)
    with pytest.raises(LinkLost, match="node n1 is not connected"):
        await node.runtime().screen(handle)
    # The Worker dies while the link is down; the agent survives and the next Worker adopts it.
    world.kill_worker()
    os.kill(handle.pid, 0)
    world.start_worker()
    await world.connected_node()
    assert [(session.session, session.generation, session.alive) for session in node.hello.sessions] == [
        ("app-fix", 1, True)
    ]
    assert await node.runtime().probe([handle]) == [Alive()]
    with gate.open("w") as pipe:
        pipe.write("go\n")
    assert await asyncio.wait_for(exit_task, 60) == Gone(Exit(5))
    assert world.spool() == b'{"event": "done"}\n'


async def test_a_started_request_finishes_without_a_link_and_is_not_repeated(world: NodeBench) -> None:
    node, repo, spec = await world.connected_node(), world.repository(), world.workspace_spec()
    log = world.root / "said"
    go_on = world.root / "go-on"
    wait = f"while [ ! -e {go_on} ]; do sleep 0.02; done"
    slow = replace(spec, post_create=(f"echo begun >> {log}; {wait}; echo made >> {log}",))
    creation = asyncio.create_task(node.workspace("clone").create(slow, lambda _line: None))
    await wait_until_true(log.exists)
    await world.cut()
    with pytest.raises(LinkLost):
        await creation
    go_on.touch()
    await world.connected_node()
    info = await node.workspace("clone").create(slow, lambda _line: None)
    assert log.read_text() == "begun\nmade\n"
    assert await node.removal_obstacles(repo, info.path, "app-fix") == ()


async def test_an_agent_works_as_long_as_its_lease_is_renewed(world: NodeBench) -> None:
    node = await world.connected_node()
    world.lease = 30.0
    renewed = await world.launch(("sleep", "60"), "app-kept")
    lease = world.node_home.session("app-kept") / "lease.1"
    before = int(lease.read_text())
    for number, seconds in enumerate((0.5, 3.0, 12.0)):  # as short as possible for a start
        world.lease = seconds
        with contextlib.suppress(Temporary):
            lapsed = await world.launch(("sleep", "60"), f"app-lapsed-{number}")
            break
    # Without a Worker no lease is renewed: one lapses, and the next Worker renews the other.
    world.kill_worker()
    await wait_until_true(lambda: LocalHost().process(lapsed.pid) is None)
    world.lease = 60.0
    world.start_worker()
    assert (await asyncio.wait_for(node.runtime().ended(lapsed), 60)).exit.reason == "lease"
    await wait_until_true(lambda: int(lease.read_text()) > before)
    assert await node.runtime().probe([renewed]) == [Alive()]
    world.stale_launches.add(("app-kept", 1))
    with pytest.raises(Conflict, match="launch 1 of app-kept is over"):
        await world.launch(("sleep", "60"), "app-kept")


async def test_an_agent_of_a_stale_launch_is_killed(world: NodeBench) -> None:
    node = await world.connected_node()
    world.lease = 2.0
    handle = await world.launch(("sleep", "60"))
    world.stale_launches.add(("app-fix", 1))
    gone = await asyncio.wait_for(node.runtime().ended(handle), 60)
    assert gone.exit.signal in (signal.SIGTERM, signal.SIGKILL) and not gone.lost


def context(world: NodeBench, session: str = "app-fix") -> AgentContext:
    private = world.node_home.session(session)
    private.mkdir(parents=True, exist_ok=True)
    return AgentContext(
        session=session,
        project="app",
        workspace=world.node_home.path,
        branch="ao/x",
        base="main",
        prompt="do it",
        task_file=private / "task.md",
        private=private,
    )


async def test_the_demo_agent_works_on_a_node(world: NodeBench) -> None:
    node, _, info = await world.connected_node(), world.repository(), await world.workspace()
    agent = node.agent(
        "demo", {"script": "[[write: a.txt|hello]]\n[[commit: made by the agent]]\n[[done: all of it]]\n[[exit: 7]]"}
    )
    assert agent.has_headless_mode and agent.escape_input("you") == "you"
    assert not (agent.listens or agent.delivers_messages or agent.answers_requests or agent.detects_unsent_text)
    assert agent.permission_keys["allow"] == ("y",)
    plan = await agent.launch(context(world))
    script = plan.env["AO_DEMO_SCRIPT"]
    argv = ("/usr/bin/env", f"AO_DEMO_SCRIPT={script}", *plan.argv)
    handle = await world.launch(argv, cwd=info.path)
    assert (await asyncio.wait_for(node.runtime().ended(handle), 60)).exit == Exit(7)
    events = [json.loads(line)["event"] for line in world.spool().splitlines()]
    assert "done" in events
    assert read_head(info.git_dir) == read_head(info.path / ".git") != info.head
    headless = await node.headless_plan(context(world), "demo", {}, (PLUGIN,))
    plan_file = Path(headless.argv[-1])
    assert plan_file.parent == world.node_home.session("app-fix")
    assert json.loads(plan_file.read_text())["plugins"][0].startswith(str(world.node_home.path))


async def test_an_agents_plugin_on_the_node_reports_also_after_a_lost_link(world: NodeBench) -> None:
    node = await world.connected_node()
    agent = node.agent("listening", {"word": "hey"}, (PLUGIN,))
    assert agent.listens and agent.delivers_messages
    assert not agent.answers_requests and not agent.has_headless_mode
    assert agent.escape_input("you") == "hey you"
    detected = await agent.detect()
    assert detected is not None and detected.path.startswith(str(world.node_home.path)) and detected.version == "hey"
    plan = await agent.launch(context(world))
    handle = await world.launch(plan.argv)
    watch, is_ended = FileWatcher(), asyncio.Event()
    run = RunningLaunch(
        session="app-fix",
        generation=1,
        pid=handle.pid,
        started=handle.started,
        workspace=world.node_home.path,
        private=world.daemon_home.session("app-fix"),
        log=world.daemon_home.terminal_log("app-fix"),
        conversation=None,
        plugin_data=plan.plugin_data,
        cursors={},
        changes=LaunchFileChanges(watch, is_ended),
        screen=lambda: node.runtime().screen(handle),
        ended=is_ended,
    )
    reports: list[ReportBatch] = []

    async def listen() -> None:
        async for report in agent.listen(run):
            reports.append(report)  # noqa: PERF401 - read meanwhile

    listening = asyncio.create_task(listen())
    await node.runtime().deliver(handle, "m1", "first")
    await wait_until_true(lambda: [report.reports[0].detail for report in reports] == ["first"])  # type: ignore[union-attr]
    await world.cut()
    await world.connected_node()
    await node.runtime().deliver(handle, "m2", "second")
    await wait_until_true(lambda: len(reports) == 2)
    assert (reports[1].source_id, reports[1].start, reports[1].end) == ("journal", 6, 13)
    assert await agent.deliver(run, "m3", "by file", interrupt=False) == Delivered()
    assert await agent.deliver(run, "m4", "typed", interrupt=True) == ReadyToType(("C-u",))
    assert json.loads((world.node_home.session("app-fix") / "took").read_text()) == ["m3", "by file"]
    # At the end the remaining records are read, then nothing more.
    is_ended.set()
    await asyncio.wait_for(listening, 60)
    assert reports[-1].source == "screen" and "first" in reports[-1].reports[0].text  # type: ignore[union-attr]
    await node.runtime().stop(handle, grace=0.0)


async def test_a_worker_verifies_the_daemons_certificate_before_it_sends_its_token(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("tls")
    certificate = await tls.choose_certificate(tls.TlsSettings(own=True), "127.0.0.1", folder, LocalHost())
    assert certificate is not None and certificate.fingerprint is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    tokens: list[str | None] = []
    home = Home(tmp_path_factory.mktemp("daemon"))

    async def node_for(hello: Hello) -> RemoteNode:
        return RemoteNode(hello, home)

    async def connected(connection: websockets.ServerConnection) -> None:
        assert connection.request is not None
        tokens.append(connection.request.headers.get("Authorization"))
        node = await accept_node(SocketTransport(connection), node_for)
        await node.link.closed.wait()

    async with websockets.serve(connected, "127.0.0.1", 0, ssl=context, close_timeout=0.2) as server:
        url = f"https://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        pem = certificate.cert.read_text()
        trusted: list[tuple[dict[str, str], bool]] = [
            ({}, False),
            ({"fingerprint": "AB" * 32}, False),
            ({"fingerprint": certificate.fingerprint}, True),
            ({"ca": pem}, True),
        ]
        for number, (trust, is_trusted) in enumerate(trusted):
            ca, pinned = trust.get("ca", ""), trust.get("fingerprint", "")
            home_there = Home(tmp_path_factory.mktemp(f"n{number}"))
            worker = Worker(home_there, url, SECRET, "n1", ca=ca, fingerprint=pinned)
            running = asyncio.create_task(worker.run())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.linked.wait(), 60.0 if is_trusted else 0.3)
            assert worker.linked.is_set() == is_trusted == (tokens == [f"Bearer {SECRET}"])
            tokens.clear()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("arguments", "token", "problem"),
    [
        (["--url", "ftp://x", "--name", "n", "--home", "/x"], "t", "not the daemon's address"),
        (["--url", "http://x", "--name", "n", "--home", "/x"], "", "no token"),
        (["--url", "http://x", "--name", "n", "--home", "/x", "--label", "gpu"], "t", "NAME=VALUE"),
        (["--url", "http://x", "--name", "n", "--home", "/x", "--resource", "cpus=many"], "t", "NAME=NUMBER"),
        (["--url", "https://x", "--name", "n", "--home", "/x", "--ca", "/no/file"], "t", "/no/file cannot be read"),
    ],
)
async def test_invalid_arguments_of_a_worker_are_refused_in_one_line(
    arguments: list[str], token: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        create_worker(arguments, {TOKEN_VARIABLE: token})
