"""The suite that every runtime must pass. Subclass `RuntimeContract` and define how a runtime is created:

    class TestMine(RuntimeContract):
        def new_runtime(self, home: Path) -> Runtime:
            return Mine({"home": str(home)}, LocalHost())

`new_runtime` is called again to simulate a restarted daemon: the second object shares no state with the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import AoError, Missing, UsageError
from agent_orchestrator.protocols import (
    Alive,
    Delivered,
    Exit,
    Gone,
    Handle,
    LaunchSpec,
    NotReady,
    Runtime,
    Undeliverable,
)
from agent_orchestrator.testing.terminals import PersonsTerminal, wait_until_true

_START_RECORDER_PROGRAM = """
import json, os, sys
with open({out!r} + '.new', 'w') as out:
    json.dump([sys.argv[1:], dict(os.environ), os.getcwd()], out)
os.rename({out!r} + '.new', {out!r})
"""
_RAW_INPUT_PROGRAM = """
import os, sys, tty
tty.setraw(0)
os.write(1, sys.argv[2].encode().decode('unicode_escape').encode() + b'ready\\r\\n')
with open(sys.argv[1], 'ab', 0) as out:
    while data := os.read(0, 65536):
        out.write(data)
"""
_LINE_INPUT_PROGRAM = """
import sys
out = open(sys.argv[1], 'a', buffering=1)
for line in sys.stdin:
    out.write(line)
"""
_SIZE_RECORDER_PROGRAM = """
import os, signal, sys, time
def tell(*_):
    with open(sys.argv[1], 'a') as out:
        print(*os.get_terminal_size(1), file=out)
signal.signal(signal.SIGWINCH, tell)
tell()
while True:
    time.sleep(60)
"""
_STUBBORN_PROGRAM = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if len(sys.argv) > 2:
    code, out, *apart = sys.argv[1:]
    subprocess.Popen([sys.executable, '-I', '-S', '-c', code, out], start_new_session=bool(apart))
    if not apart:
        subprocess.Popen([sys.executable, '-I', '-S', '-c', code, code, out, 'apart'])
with open(sys.argv[-1] if len(sys.argv) < 4 else sys.argv[2], 'a') as out:
    out.write(f'{os.getpid()}\\n')
while True:
    time.sleep(60)
"""
_PARENT_PROGRAM = """
import subprocess, sys, time
subprocess.Popen([sys.executable, '-I', '-S', '-c', *sys.argv[1:]], start_new_session=True)
time.sleep(60)
"""


def python(code: str, *arguments: str) -> tuple[str, ...]:
    """Return a command that runs this Python code with the fastest start-up."""
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


class RuntimeBench:
    """A runtime, its home, and everything launched on it."""

    def __init__(self, contract: RuntimeContract) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ao-"))
        self.home = self.root / "home"
        self.work = self.root / "work"
        self.work.mkdir()
        self._contract = contract
        self.runtime = self.restart()
        self.handles: list[Handle] = []
        self.terminals: list[PersonsTerminal] = []

    def restart(self) -> Runtime:
        """Return a new runtime object, as after a restart of the daemon."""
        return self._contract.new_runtime(self.home)

    def spec(self, argv: Sequence[str], session: str = "app-fix", generation: int = 1, **fields: Any) -> LaunchSpec:
        """Return the specification of a launch in this bench's folders."""
        private = self.home / "sessions" / session
        values: dict[str, Any] = {"cwd": self.work, "env": {"PATH": os.environ["PATH"]}, "private": private}
        values |= {"log": private / "terminal.log", **fields}
        return LaunchSpec(session=session, generation=generation, argv=tuple(argv), **values)

    async def launch(self, argv: Sequence[str], session: str = "app-fix", **fields: Any) -> Handle:
        """Launch a program and return its handle."""
        handle = await self.runtime.launch(self.spec(argv, session, **fields))
        self.handles.append(handle)
        return handle

    async def launch_recorder(self, name: str = "got", says: str = "", session: str = "app-fix") -> tuple[Handle, Path]:
        """Launch a program in raw mode that records every byte it reads; return its handle and the recording's path."""
        out = self.work / name
        handle = await self.launch(python(_RAW_INPUT_PROGRAM, str(out), says), session)
        await wait_until_true(out.exists)
        return handle, out

    async def attach(
        self, handle: Handle, columns: int = 100, rows: int = 30, *, watch: bool = False
    ) -> PersonsTerminal:
        """Open a terminal that is attached to the launch."""
        terminal = PersonsTerminal(self.runtime.attach_command(handle, watch=watch), columns, rows)
        self.terminals.append(terminal)
        return terminal

    async def close(self) -> None:
        """Stop and discard everything, and remove the folders."""
        for terminal in self.terminals:
            await terminal.close()
        for handle in [*self.handles, *await self.runtime.orphaned_terminals(self.handles)]:
            await self.runtime.stop(handle, grace=0.0)
            await self.runtime.discard(handle)
        await self._contract.close_runtime(self.runtime, self.home)
        shutil.rmtree(self.root)


class RuntimeContract:
    """Subclass it, define `new_runtime`, and run it with pytest."""

    pytestmark = pytest.mark.anyio

    def new_runtime(self, home: Path) -> Runtime:
        """Return a runtime for this `$AO_HOME`."""
        raise NotImplementedError

    async def close_runtime(self, runtime: Runtime, home: Path) -> None:
        """End what the runtime itself keeps running; does nothing by default."""

    def own_pid(self, handle: Handle) -> int:
        """Return the pid that the agent itself sees, which differs from the handle's in a container."""
        return handle.pid

    def runs(self, handle: Handle, pid: int) -> bool:  # noqa: ARG002 - overridden where pids depend on the handle
        """Return whether the process with this pid, as it sees it itself, still runs."""
        return _is_running(pid)

    @pytest.fixture
    async def bench(self) -> AsyncIterator[RuntimeBench]:
        """A fresh bench."""
        bench = RuntimeBench(self)
        try:
            yield bench
        finally:
            await bench.close()

    # -- start

    async def test_a_launch_gets_exactly_its_arguments_environment_and_folder(self, bench: RuntimeBench) -> None:
        hostile = [
            "",
            "a b",
            "it's",
            '"$HOME" $(id) `id` \\',
            "line\nline",
            "ünïcödé 🦊",
            "-n",
            "--",
            "semi;",
            "#{pid} %d {",
            "*",
        ]
        out = bench.work / "start.json"
        environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "A_B": "x'\n$y;", "EMPTY": "", "ÜMLAUT": "ß"}
        await bench.launch(python(_START_RECORDER_PROGRAM.format(out=str(out)), *hostile), env=environment)
        await wait_until_true(out.exists)
        arguments, received, cwd = json.loads(out.read_text())
        assert arguments == hostile
        # Set by the C library's own start-up in the C locale, not by us.
        assert {name: value for name, value in received.items() if name != "LC_CTYPE"} == environment
        assert cwd == str(bench.work.resolve())

    async def test_the_runtime_sets_term_where_the_environment_does_not(self, bench: RuntimeBench) -> None:
        out = bench.work / "start.json"
        await bench.launch(
            python(_START_RECORDER_PROGRAM.format(out=str(out))), env={"PATH": os.environ["PATH"], "TERM": "dumb"}
        )
        await wait_until_true(out.exists)
        assert json.loads(out.read_text())[1]["TERM"] not in ("", "dumb")

    async def test_the_handle_names_the_agents_own_process(self, bench: RuntimeBench) -> None:
        out = bench.work / "pid"
        code = f"import os, time; open({str(out)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
        handle = await bench.launch(python(code))
        await wait_until_true(lambda: out.exists() and out.read_text())
        assert (handle.session, handle.generation, self.own_pid(handle)) == ("app-fix", 1, int(out.read_text()))

    async def test_an_argument_of_100_kilobytes_arrives(self, bench: RuntimeBench) -> None:
        out = bench.work / "start.json"
        await bench.launch(python(_START_RECORDER_PROGRAM.format(out=str(out)), "x" * 100_000))
        await wait_until_true(out.exists)
        assert json.loads(out.read_text())[0] == ["x" * 100_000]

    async def test_an_argument_that_is_too_long_is_refused_with_a_remedy(self, bench: RuntimeBench) -> None:
        with pytest.raises(UsageError) as refused:
            await bench.launch(["true", "x" * 3_000_000])
        assert "file" in refused.value.remedy

    async def test_a_missing_folder_is_named_in_the_error(self, bench: RuntimeBench) -> None:
        with pytest.raises(Missing, match="nowhere"):
            await bench.launch(["true"], cwd=bench.work / "nowhere")

    async def test_standard_input_can_be_a_file(self, bench: RuntimeBench) -> None:
        input_file, out = bench.work / "input; file", bench.work / "got"
        input_file.write_text("the task\n")
        handle = await bench.launch(["sh", "-c", f"cat >{out}"], stdin=input_file)
        assert await bench.runtime.ended(handle) == Gone(Exit(0))
        assert out.read_text() == "the task\n"

    async def test_launching_again_returns_the_same_process(self, bench: RuntimeBench) -> None:
        starts = bench.work / "starts"
        argv = ["sh", "-c", f"echo started >>{starts}; exec sleep 60"]
        first = await bench.launch(argv)
        again = await bench.runtime.launch(bench.spec(argv))
        restarted = await bench.restart().launch(bench.spec(argv))
        assert first == again == restarted
        assert await bench.restart().probe([first]) == [Alive()]
        await wait_until_true(lambda: starts.exists() and starts.read_text())
        assert starts.read_text() == "started\n"

    async def test_concurrent_launches_of_one_session_start_one_process(self, bench: RuntimeBench) -> None:
        starts = bench.work / "starts"
        spec = bench.spec(["sh", "-c", f"echo started >>{starts}; exec sleep 60"])
        handles = await asyncio.gather(*(bench.restart().launch(spec) for _ in range(4)))
        bench.handles.append(handles[0])
        assert len({handle.pid for handle in handles}) == 1
        await wait_until_true(lambda: starts.exists() and starts.read_text())
        assert starts.read_text() == "started\n"

    async def test_launching_again_after_the_end_starts_nothing(self, bench: RuntimeBench) -> None:
        starts = bench.work / "starts"
        argv = ["sh", "-c", f"echo started >>{starts}; exit 3"]
        first = await bench.launch(argv)
        assert await bench.runtime.ended(first) == Gone(Exit(3))
        again = await bench.restart().launch(bench.spec(argv))
        assert await bench.restart().ended(again) == Gone(Exit(3))
        await bench.runtime.discard(first)
        late = await bench.restart().launch(bench.spec(argv))
        assert isinstance((await bench.runtime.probe([late]))[0], Gone)
        assert starts.read_text() == "started\n"

    async def test_the_next_generation_is_a_new_process(self, bench: RuntimeBench) -> None:
        first = await bench.launch(["sleep", "60"])
        second = await bench.launch(["sleep", "60"], generation=2)
        assert first.pid != second.pid
        assert await bench.runtime.probe([first, second]) == [Alive(), Alive()]

    async def test_twenty_concurrent_launches_all_run(self, bench: RuntimeBench) -> None:
        handles = await asyncio.gather(*(bench.launch(["sleep", "60"], f"app-{n}") for n in range(20)))
        assert await bench.runtime.probe(handles) == [Alive()] * 20
        assert len({handle.pid for handle in handles}) == 20

    # -- state and screen

    @pytest.mark.parametrize(
        ("script", "how"),
        [
            ("exit 0", Exit(0)),
            ("exit 3", Exit(3)),
            ("exec /no/such/program", Exit(127)),
            ("kill -9 $$", Exit(signal=9)),
            ("sleep 60 & exit 4", Exit(4)),
        ],
    )
    async def test_an_end_is_reported_with_its_exit_code_or_signal(
        self, bench: RuntimeBench, script: str, how: Exit
    ) -> None:
        handle = await bench.launch(["sh", "-c", script])
        assert await bench.runtime.ended(handle) == Gone(how)
        assert await bench.restart().ended(handle) == Gone(how)
        assert await bench.runtime.probe([handle]) == [Gone(how)]

    async def test_a_missing_program_exits_with_127(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(["no-such-program-anywhere"])
        assert await bench.runtime.ended(handle) == Gone(Exit(127))
        assert "no-such-program-anywhere" in await bench.runtime.screen(handle)

    async def test_an_end_is_reported_within_half_a_second(self, bench: RuntimeBench) -> None:
        delays = []
        for generation in range(1, 8):  # a busy machine may take longer, but not each time
            handle = await bench.launch(["sleep", "60"], generation=generation)
            ended = asyncio.create_task(bench.runtime.ended(handle))
            done, _ = await asyncio.wait([ended], timeout=0.1)
            assert not done
            os.kill(handle.pid, signal.SIGKILL)
            began = time.monotonic()
            assert await ended == Gone(Exit(signal=9))
            delays.append(time.monotonic() - began)
            if delays[-1] < 0.5:
                return
        raise AssertionError(f"ends are reported late: after {delays} s")

    async def test_one_probe_checks_many_handles(self, bench: RuntimeBench) -> None:
        alive = await bench.launch(["sleep", "60"], "app-a")
        ended = await bench.launch(["sh", "-c", "exit 5"], "app-b")
        await bench.runtime.ended(ended)
        other_boot = replace(alive, boot_id="another boot")
        reused_pid = replace(ended, pid=os.getpid())
        liveness = await bench.runtime.probe([ended, alive, other_boot, reused_pid])
        assert liveness[:3] == [Gone(Exit(5)), Alive(), Gone(lost=True)]
        assert isinstance(liveness[3], Gone)

    async def test_a_handle_of_another_boot_is_lost_at_once(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(["sleep", "60"])
        other_boot = replace(handle, boot_id="another boot")
        assert await bench.runtime.ended(other_boot) == Gone(lost=True)
        assert await bench.runtime.stop(other_boot) == Gone(lost=True)
        assert isinstance(await bench.runtime.deliver(other_boot, "m1", "hello"), Undeliverable)
        assert await bench.runtime.probe([handle]) == [Alive()]

    async def test_the_screen_is_the_visible_text(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(
            ["sh", "-c", r"printf 'old\033[2J\033[H\033[31mred\033[0m fox\nsecond'; exec sleep 60"]
        )

        async def is_second_line_visible() -> bool:
            return "second" in await bench.runtime.screen(handle)

        await wait_until_true(is_second_line_visible)
        assert [line.rstrip() for line in (await bench.runtime.screen(handle)).splitlines()[:2]] == [
            "red fox",
            "second",
        ]

    async def test_the_log_is_complete(self, bench: RuntimeBench) -> None:
        # It runs until all was read: tmux may drop what a program prints at the moment it ends.
        log_read = bench.work / "seen"
        count = "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done"
        handle = await bench.launch(["sh", "-c", f"{count}; until [ -e {log_read} ]; do sleep 0.05; done"])
        log = bench.home / "sessions" / "app-fix" / "terminal.log"
        expected = b"".join(b"line %d\r\n" % n for n in range(5000))
        await wait_until_true(lambda: len(log.read_bytes()) >= len(expected))
        log_read.touch()
        assert await bench.runtime.ended(handle) == Gone(Exit(0))
        assert log.read_bytes() == expected
        assert log.stat().st_mode & 0o077 == 0

    async def test_a_resize_reaches_the_program(self, bench: RuntimeBench) -> None:
        sizes = bench.work / "sizes"
        handle = await bench.launch(python(_SIZE_RECORDER_PROGRAM, str(sizes)), columns=90, rows=33)
        await wait_until_true(lambda: sizes.exists() and sizes.read_text())
        await bench.runtime.resize(handle, 132, 50)
        await wait_until_true(lambda: "132 50" in sizes.read_text())
        assert sizes.read_text().splitlines()[0] == "90 33"

    # -- input

    async def test_a_message_is_delivered_once_per_id(self, bench: RuntimeBench) -> None:
        handle, got = await bench.launch_recorder()
        results = [
            await runtime.deliver(handle, "m1", "hello") for runtime in (bench.runtime, bench.runtime, bench.restart())
        ]
        assert results == [Delivered()] * 3
        together = await asyncio.gather(*(bench.restart().deliver(handle, "m2", "world") for _ in range(4)))
        assert together == [Delivered()] * 4
        assert await bench.runtime.deliver(handle, "m3", "end") == Delivered()
        await wait_until_true(lambda: got.read_bytes().endswith(b"end\r"))
        assert got.read_bytes() == b"hello\rworld\rend\r"

    async def test_messages_in_quick_succession_arrive_as_separate_lines(self, bench: RuntimeBench) -> None:
        out = bench.work / "lines"
        handle = await bench.launch(python(_LINE_INPUT_PROGRAM, str(out)))
        await wait_until_true(out.exists)
        for number in range(3):
            assert await bench.runtime.deliver(handle, f"m{number}", f"message {number}") == Delivered()
        await wait_until_true(lambda: out.read_text().count("\n") == 3)
        assert out.read_text() == "message 0\nmessage 1\nmessage 2\n"

    async def test_a_multi_line_message_arrives_as_one_bracketed_paste(self, bench: RuntimeBench) -> None:
        handle, got = await bench.launch_recorder(says=r"\x1b[?2004h")
        await _wait_for_text(bench, handle, "ready")
        assert await bench.runtime.deliver(handle, "m1", "first\nsecond ünï 🦊") == Delivered()
        await wait_until_true(lambda: got.read_bytes().endswith(b"~\r"))
        assert got.read_bytes() == "\x1b[200~first\rsecond ünï 🦊\x1b[201~\r".encode()

    async def test_a_message_of_50_kilobytes_arrives_whole(self, bench: RuntimeBench) -> None:
        handle, got = await bench.launch_recorder(says=r"\x1b[?2004h")
        await _wait_for_text(bench, handle, "ready")
        text = "".join(f"line {n} of a long message\n" for n in range(2000))
        assert await bench.runtime.deliver(handle, "m1", text) == Delivered()
        await wait_until_true(lambda: got.read_bytes().endswith(b"~\r"))
        assert got.read_bytes() == b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~\r"

    @pytest.mark.parametrize("text", ["-t %0 ; kill-server", "#{pid} $(id) 'x' \"y\" \\ ~ {", "ends with;", ""])
    async def test_a_message_is_never_a_command(self, bench: RuntimeBench, text: str) -> None:
        handle, got = await bench.launch_recorder()
        assert await bench.runtime.deliver(handle, "it's; a #{message} id", text) == Delivered()
        await wait_until_true(lambda: got.read_bytes().endswith(b"\r"))
        assert got.read_bytes() == text.encode() + b"\r"

    async def test_a_message_can_be_typed_without_enter(self, bench: RuntimeBench) -> None:
        handle, got = await bench.launch_recorder()
        assert await bench.runtime.deliver(handle, "m1", "half", enter=False) == Delivered()
        assert await bench.runtime.deliver(handle, "m2", " whole") == Delivered()
        await wait_until_true(lambda: got.read_bytes() == b"half whole\r")

    async def test_an_ended_agent_gets_no_message_but_delivered_ids_stay_delivered(self, bench: RuntimeBench) -> None:
        handle, got = await bench.launch_recorder()
        assert await bench.runtime.deliver(handle, "m1", "hello") == Delivered()
        await wait_until_true(lambda: got.read_bytes().endswith(b"\r"))
        os.kill(handle.pid, signal.SIGKILL)
        await bench.runtime.ended(handle)
        assert await bench.restart().deliver(handle, "m1", "hello") == Delivered()
        result = await bench.runtime.deliver(handle, "m2", "world")
        assert isinstance(result, Undeliverable)
        assert not result.ambiguous

    async def test_keys_reach_the_program(self, bench: RuntimeBench) -> None:
        handle, got = await bench.launch_recorder()
        await bench.runtime.press(handle, ["y", "Enter", "Escape", "C-c", "Up", "-x", ";", "it's"])
        expected = b"y\r\x1b\x03\x1b[A-x;it's"
        await wait_until_true(lambda: len(got.read_bytes()) >= len(expected))
        assert got.read_bytes() == expected

    async def test_keys_with_the_same_id_are_pressed_once(self, bench: RuntimeBench) -> None:
        handle, got = await bench.launch_recorder()
        for runtime in (bench.runtime, bench.runtime, bench.restart()):
            await runtime.press(handle, ["y"], once="first")
        await bench.runtime.press(handle, ["n"], once="second")
        await bench.runtime.press(handle, ["n"])
        await wait_until_true(lambda: len(got.read_bytes()) >= 3)
        assert got.read_bytes() == b"ynn"

    async def test_control_c_interrupts(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(["sleep", "60"])
        await bench.runtime.press(handle, ["C-c"])
        assert await bench.runtime.ended(handle) == Gone(Exit(signal=2))

    async def test_keys_for_an_ended_agent_are_an_error(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(["true"])
        await bench.runtime.ended(handle)
        with pytest.raises(AoError):
            await bench.runtime.press(handle, ["y"])

    # -- attached terminals

    async def test_two_attached_terminals_see_and_type(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(["sh", "-c", "echo before; exec cat"])
        await _wait_for_text(bench, handle, "before")
        first, second = await bench.attach(handle), await bench.attach(handle)
        await wait_until_true(lambda: b"before" in first.output and b"before" in second.output)
        first.type(b"from one\r")
        await wait_until_true(lambda: b"from one" in second.output)
        second.type(b"from two\r")
        await wait_until_true(lambda: b"from two" in first.output)
        await first.close()
        bench.terminals.remove(first)
        assert await bench.runtime.deliver(handle, "m1", "still here") == Delivered()
        await wait_until_true(lambda: b"still here" in second.output)
        assert await bench.runtime.probe([handle]) == [Alive()]

    async def test_resizing_an_attached_terminal_resizes_the_program(self, bench: RuntimeBench) -> None:
        sizes = bench.work / "sizes"
        handle = await bench.launch(python(_SIZE_RECORDER_PROGRAM, str(sizes)))
        await wait_until_true(lambda: sizes.exists() and sizes.read_text())
        terminal = await bench.attach(handle, 77, 21)
        await wait_until_true(lambda: sizes.read_text().splitlines()[-1].startswith("77 "))
        terminal.resize(66, 20)
        await wait_until_true(lambda: sizes.read_text().splitlines()[-1].startswith("66 "))

    async def test_a_watching_terminal_changes_neither_size_nor_input(self, bench: RuntimeBench) -> None:
        sizes = bench.work / "sizes"
        handle = await bench.launch(python(_SIZE_RECORDER_PROGRAM, str(sizes)))
        other, got = await bench.launch_recorder(session="app-other")
        person, typist = await bench.attach(handle, 77, 21), await bench.attach(other)
        await wait_until_true(lambda: sizes.exists() and sizes.read_text().splitlines()[-1].startswith("77 "))
        watcher = await bench.attach(handle, 50, 15, watch=True)
        watching = await bench.attach(other, 50, 15, watch=True)
        await wait_until_true(lambda: watcher.output and b"ready" in watching.output and b"ready" in typist.output)
        watcher.resize(44, 12)
        watching.type(b"from who may not\r")
        typist.type(b"from who may\r")
        await wait_until_true(lambda: got.read_bytes().endswith(b"\r"))
        assert got.read_bytes() == b"from who may\r"
        assert await bench.runtime.deliver(other, "m1", "hello") == Delivered()
        person.resize(66, 20)
        await wait_until_true(lambda: sizes.read_text().splitlines()[-1].startswith("66 "))
        assert {line.split()[0] for line in sizes.read_text().splitlines()} <= {"120", "80", "77", "66"}

    async def test_a_message_waits_while_a_person_has_unsent_keystrokes(self, bench: RuntimeBench) -> None:
        handle, got = await bench.launch_recorder()
        terminal = await bench.attach(handle)
        await wait_until_true(lambda: b"ready" in terminal.output)
        terminal.type(b"half a sen")
        await wait_until_true(lambda: got.read_bytes() == b"half a sen")
        held = await bench.restart().deliver(handle, "m1", "hello")
        assert held == NotReady("somebody is typing")
        terminal.type(b"tence\r")
        await wait_until_true(lambda: got.read_bytes().endswith(b"\r"))
        assert await bench.runtime.deliver(handle, "m1", "hello") == Delivered()
        await wait_until_true(lambda: got.read_bytes() == b"half a sentence\rhello\r")

    async def test_attaching_to_a_discarded_terminal_ends(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(["true"])
        await bench.runtime.ended(handle)
        await bench.runtime.discard(handle)
        terminal = await bench.attach(handle)
        await wait_until_true(lambda: terminal.has_ended)

    # -- end

    async def test_stopping_ends_children_that_ignore_signals(self, bench: RuntimeBench) -> None:
        pids = bench.work / "pids"
        handle = await bench.launch(python(_STUBBORN_PROGRAM, _STUBBORN_PROGRAM, str(pids)))
        await wait_until_true(lambda: pids.exists() and len(pids.read_text().split()) == 4)
        assert await bench.runtime.stop(handle, grace=0.2) == Gone(Exit(signal=9))
        assert [pid for pid in pids.read_text().split() if self.runs(handle, int(pid))] == []

    async def test_stopping_ends_a_child_in_another_session_that_outlives_its_parent(self, bench: RuntimeBench) -> None:
        pids = bench.work / "pids"
        handle = await bench.launch(python(_PARENT_PROGRAM, _STUBBORN_PROGRAM, str(pids)))
        await wait_until_true(lambda: pids.exists() and pids.read_text())
        assert await bench.runtime.stop(handle, grace=2.0) == Gone(Exit(signal=15))
        assert not self.runs(handle, int(pids.read_text()))

    async def test_stopping_sends_sigterm_first(self, bench: RuntimeBench) -> None:
        out = bench.work / "got"
        handle = await bench.launch(
            ["sh", "-c", f"trap 'echo bye >{out}; exit 6' TERM; echo >{out}; while :; do sleep 0.05; done"]
        )
        await wait_until_true(out.exists)
        assert await bench.runtime.stop(handle, grace=10) == Gone(Exit(6))
        assert out.read_text() == "bye\n"
        assert await bench.runtime.stop(handle) == Gone(Exit(6))

    async def test_discarding_leaves_other_launches_alone(self, bench: RuntimeBench) -> None:
        ended = await bench.launch(["true"], "app-fix")
        other = await bench.launch(["sleep", "60"], "app-fix-login")
        await bench.runtime.ended(ended)
        await bench.runtime.discard(ended)
        await bench.runtime.discard(ended)
        assert await bench.runtime.probe([other]) == [Alive()]
        assert await bench.runtime.orphaned_terminals([other]) == []

    async def test_orphaned_terminals_are_the_launches_without_a_known_handle(self, bench: RuntimeBench) -> None:
        named = await bench.launch(["sleep", "60"], "app-a")
        forgotten = await bench.launch(["sleep", "60"], "app.b:ü c")
        assert await bench.restart().orphaned_terminals([named]) == [forgotten]
        assert sorted(handle.session for handle in await bench.restart().orphaned_terminals([])) == [
            "app-a",
            "app.b:ü c",
        ]


def _is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


async def _wait_for_text(bench: RuntimeBench, handle: Handle, text: str) -> None:
    async def is_visible() -> bool:
        return text in await bench.runtime.screen(handle)

    await wait_until_true(is_visible)
