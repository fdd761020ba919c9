"""The tmux runtime: its server, copy mode, and the user's own tmux."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Missing, NotFound, Temporary
from agent_orchestrator.plugins.runtimes import single_use_files
from agent_orchestrator.plugins.runtimes.auto import choose_runtime, tmux_version
from agent_orchestrator.plugins.runtimes.single_use_files import remove_one_time_files
from agent_orchestrator.plugins.runtimes.tmux import TmuxRuntime
from agent_orchestrator.plugins.runtimes.tmux_server import TmuxServer
from agent_orchestrator.protocols import Alive, Delivered, Exit, Gone, NotReady, Undeliverable
from agent_orchestrator.protocols.host import ProgramResult
from agent_orchestrator.testing.contracts.runtime import RuntimeBench
from agent_orchestrator.testing.terminals import PersonsTerminal, wait_until_true
from tests.integration.runtimes.conftest import server_pid

pytestmark = [pytest.mark.anyio, pytest.mark.tmux]


async def test_a_killed_server_loses_its_agents_and_the_next_launch_starts_another(tmux: RuntimeBench) -> None:
    handle = await tmux.launch(["sh", "-c", "touch ready; exec sleep 60"])
    await wait_until_true((tmux.work / "ready").exists)
    os.kill(await server_pid(tmux.home), signal.SIGKILL)
    assert await tmux.runtime.ended(handle) == Gone(lost=True)
    assert await tmux.runtime.probe([handle]) == [Gone(lost=True)]
    assert await tmux.runtime.orphaned_terminals([]) == []
    again = await tmux.runtime.launch(tmux.spec(["sleep", "60"]))
    assert await tmux.runtime.probe([again]) == [Gone(lost=True)]
    following = await tmux.launch(["sleep", "60"], generation=2)
    assert await tmux.runtime.probe([following]) == [Alive()]


async def test_a_pane_of_a_new_server_is_not_confused_with_an_old_one(tmux: RuntimeBench) -> None:
    old = await tmux.launch(["sleep", "60"])
    os.kill(await server_pid(tmux.home), signal.SIGKILL)
    await tmux.runtime.ended(old)
    new, received = await tmux.launch_recorder(session="app-other")
    assert new.address["pane"] == old.address["pane"]
    assert await tmux.runtime.deliver(old, "m1", "hello") == Undeliverable("its terminal is gone", ambiguous=True)
    with pytest.raises(NotFound):
        await tmux.runtime.press(old, ["y"])
    assert "ready" not in await tmux.runtime.screen(old)
    assert await tmux.runtime.deliver(new, "m2", "x") == Delivered()
    await wait_until_true(lambda: received.read_bytes() == b"x\r")
    assert await tmux.runtime.ended(old) == Gone(lost=True)


async def test_an_agent_that_survives_its_server_is_alive_until_it_ends(tmux: RuntimeBench) -> None:
    handle = await tmux.launch(["sh", "-c", "trap '' HUP; touch ready; exec sleep 60"])
    await wait_until_true((tmux.work / "ready").exists)
    server = await server_pid(tmux.home)
    os.kill(server, signal.SIGKILL)
    await wait_until_true(lambda: LocalHost().process(server) is None)
    assert await tmux.runtime.probe([handle]) == [Alive()]
    assert isinstance(await tmux.runtime.deliver(handle, "m1", "hello"), Undeliverable)
    assert await tmux.runtime.stop(handle, grace=5) == Gone(lost=True)


async def test_the_server_has_no_secrets_and_is_detached(tmux: RuntimeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "s3cret")
    await tmux.launch(["sleep", "60"])
    pid = await server_pid(tmux.home)
    assert b"s3cret" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert os.getpgid(pid) != os.getpgrp()
    assert os.getsid(pid) != os.getsid(0)
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    await wait_until_true(lambda: not list((tmux.home / "sessions" / "app-fix").glob("launch.*")))


async def test_the_users_own_tmux_is_left_alone(tmux: RuntimeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ["tmux", "-S", str(tmux.root / "own.sock"), "-f", "/dev/null"]
    host = LocalHost()
    await host.run([*own, "new-session", "-d", "-s", "mine", "sleep 60"])
    pid = int((await host.run([*own, "display", "-p", "#{pid}"])).text)

    async def state() -> list[str]:
        outputs = [
            await host.run([*own, *command]) for command in (["list-panes", "-a"], ["show", "-g"], ["list-keys"])
        ]
        return [answer.text for answer in outputs]

    try:
        before = await state()
        inside = f"{tmux.root / 'own.sock'},{pid},0"
        monkeypatch.setenv("TMUX", inside)
        handle = await tmux.launch(["sh", "-c", "echo hello; exec sleep 60"])
        terminal = PersonsTerminal(["env", f"TMUX={inside}", "TMUX_PANE=%0", *tmux.runtime.attach_command(handle)])
        tmux.terminals.append(terminal)
        await wait_until_true(lambda: b"hello" in terminal.output)
        await wait_until_true(lambda: b"Ctrl-b d detaches" in terminal.output)
        terminal.type(b"\x02d")
        await wait_until_true(lambda: terminal.has_ended)
        assert await state() == before
        assert await tmux.runtime.probe([handle]) == [Alive()]
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_a_message_waits_while_the_terminal_is_in_copy_mode(tmux: RuntimeBench) -> None:
    handle, received = await tmux.launch_recorder()
    terminal = await tmux.attach(handle)
    await wait_until_true(lambda: b"ready" in terminal.output)
    terminal.type(b"\x02[")

    async def is_held() -> bool:
        return await tmux.runtime.deliver(handle, "m1", "hello") == NotReady("copy mode")

    await wait_until_true(lambda: b"[0/0]" in terminal.output)
    await wait_until_true(is_held)
    terminal.type(b"q")

    async def is_delivered() -> bool:
        return await tmux.runtime.deliver(handle, "m1", "hello") == Delivered()

    await wait_until_true(is_delivered)
    await wait_until_true(lambda: received.read_bytes() == b"hello\r")


class CountingHost(LocalHost):
    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    async def run(self, argv: Sequence[str], **options: Any) -> ProgramResult:
        self.runs += 1
        return await super().run(argv, **options)


async def test_a_launch_runs_one_program_and_an_idle_agent_none(tmux: RuntimeBench) -> None:
    host = CountingHost()
    runtime = TmuxRuntime({"home": str(tmux.home)}, host)
    handle = await runtime.launch(tmux.spec(["sleep", "60"]))
    assert host.runs == 1
    waiting = asyncio.create_task(runtime.ended(handle))
    assert await runtime.probe([handle] * 50) == [Alive()] * 50
    assert host.runs == 1
    os.kill(handle.pid, signal.SIGKILL)
    await waiting
    before = host.runs
    await runtime.probe([handle] * 50)
    assert host.runs == before + 1


async def test_no_message_is_left_in_a_buffer_or_a_file(tmux: RuntimeBench) -> None:
    handle, _ = await tmux.launch_recorder()
    await tmux.runtime.deliver(handle, "m1", "hello")
    await tmux.runtime.deliver(handle, "m1", "hello")
    os.kill(handle.pid, signal.SIGKILL)
    await tmux.runtime.ended(handle)
    await tmux.runtime.deliver(handle, "m2", "hello")
    buffers = subprocess.run(
        ["tmux", "-N", "-S", handle.address["socket"], "list-buffers"], capture_output=True, check=True
    )
    assert buffers.stdout == b""
    assert not list(Path(handle.address["private"]).glob("message.*"))


async def test_a_typed_message_is_delivered_even_if_its_file_cannot_be_removed(
    tmux: RuntimeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, received = await tmux.launch_recorder()
    unlink, refused = Path.unlink, OSError(errno.EROFS, "Read-only file system")

    def failing(path: Path, missing_ok: bool = False) -> None:
        if refusing and path.name.startswith("message."):
            raise refusing.pop()
        unlink(path, missing_ok)

    refusing = [refused]
    monkeypatch.setattr(single_use_files, "REMOVE_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(Path, "unlink", failing)
    assert await tmux.runtime.deliver(handle, "m1", "hello") == Delivered() and not refusing
    await wait_until_true(lambda: received.read_bytes() == b"hello\r")
    await wait_until_true(lambda: not list(Path(handle.address["private"]).glob("message.*")))


async def test_an_exit_is_reported_even_if_files_cannot_be_removed(tmux: RuntimeBench) -> None:
    handle = await tmux.launch(["sh", "-c", "exit 3"])
    (
        Path(handle.address["private"]) / "message.1.left"
    ).mkdir()  # as on a disk that is read-only: it cannot be unlinked
    assert await tmux.runtime.ended(handle) == Gone(Exit(3))


async def test_a_terminal_that_vanished_before_its_enter_affects_no_other(tmux: RuntimeBench) -> None:
    await tmux.launch(["sleep", "60"], "app-stays")  # with its last terminal the server would exit too
    vanished, _ = await tmux.launch_recorder()
    assert await tmux.runtime.deliver(vanished, "m1", "hello") == Delivered()
    await tmux.runtime.stop(vanished, grace=0)
    await tmux.runtime.discard(vanished)
    await asyncio.sleep(0.8)  # its Enter would have been pressed by now
    other, received = await tmux.launch_recorder("other", session="app-other")
    assert await tmux.runtime.deliver(other, "m2", "x") == Delivered()
    await wait_until_true(lambda: received.read_bytes() == b"x\r")


async def test_a_waiting_message_is_undeliverable_when_its_agent_is_lost(
    tmux: RuntimeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.plugins.runtimes.tmux.ENTER_DELAY", 60)
    handle, _ = await tmux.launch_recorder()
    assert await tmux.runtime.deliver(handle, "m1", "hello") == Delivered()
    private, server = Path(handle.address["private"]), await server_pid(tmux.home)
    waiting = asyncio.create_task(tmux.runtime.deliver(handle, "m2", "again"))
    await wait_until_true(lambda: bool(list(private.glob("message.*"))))
    await asyncio.sleep(0.02)  # it has been tried once, and is tried again when the first one's Enter was pressed
    os.kill(server, signal.SIGKILL)
    remove_one_time_files(private)
    assert await waiting == Undeliverable("its tmux server is gone", ambiguous=True)


async def test_a_server_gets_a_higher_limit_of_open_files_than_its_starter(tmux: RuntimeBench) -> None:
    before, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, before), maximum))
    try:
        await tmux.launch(["sleep", "60"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, maximum))
    expected = 65536 if maximum == resource.RLIM_INFINITY else min(maximum, 65536)
    assert resource.prlimit(await server_pid(tmux.home), resource.RLIMIT_NOFILE) == (expected, maximum)


async def test_a_launch_that_fails_leaves_no_environment(tmux: RuntimeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(TmuxServer, "_configure", full)
    with pytest.raises(OSError, match="No space left"):
        await tmux.launch(["sleep", "60"])
    assert list((tmux.home / "sessions" / "app-fix").glob("launch.*")) == []


async def test_a_server_that_exits_before_answering_is_restarted(tmux: RuntimeBench) -> None:
    """The client of a server that exits early gets neither an answer nor an error."""
    program, real_tmux = tmux.root / "tmux", shutil.which("tmux")
    program.write_text(f'#!/bin/sh\n[ -e "$0.once" ] || {{ : >"$0.once"; exit 0; }}\nexec {real_tmux} "$@"\n')
    program.chmod(0o755)
    runtime = TmuxRuntime({"home": str(tmux.home), "program": str(program)}, LocalHost())
    spec = tmux.spec(["sleep", "60"])
    with pytest.raises(Temporary, match="it says nothing"):
        await runtime.launch(spec)
    handle = await runtime.launch(spec)
    assert await runtime.probe([handle]) == [Alive()]
    await runtime.stop(handle, grace=0.0)


async def test_the_log_is_complete_when_the_exit_is_reported(
    tmux: RuntimeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, real = tmux.root / "bin" / "cat", shutil.which("cat")
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\nsleep 0.5\nexec {real}\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    spec = tmux.spec(["sh", "-c", "echo the last words; exit 7"])
    handle = await tmux.runtime.launch(spec)
    assert await tmux.runtime.ended(handle) == Gone(Exit(7))
    assert b"the last words" in spec.log.read_bytes()


async def test_a_missing_tmux_is_reported_with_a_remedy(tmux: RuntimeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Missing, match="tmux is not installed") as missing:
        await tmux.runtime.launch(tmux.spec(["true"], env={}))
    assert "process" in missing.value.remedy
    assert await choose_runtime(LocalHost()) == "process"
    monkeypatch.undo()
    assert await tmux_version(LocalHost()) >= (3, 2)
    assert await choose_runtime(LocalHost()) == "tmux"
