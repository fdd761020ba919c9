"""The contract of runtimes for commands in bubblewrap, with the differences of pids and signals."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.runtimes import bubblewrap
from agent_orchestrator.plugins.runtimes.process import ProcessRuntime
from agent_orchestrator.plugins.runtimes.tmux import TmuxRuntime
from agent_orchestrator.protocols import Exit, Gone, Handle, LaunchSpec, Runtime
from agent_orchestrator.protocols.host import ProcessId
from agent_orchestrator.testing.contracts.runtime import RuntimeBench, RuntimeContract, python
from agent_orchestrator.testing.sandbox import have_bwrap
from agent_orchestrator.testing.terminals import wait_until_true

BWRAP = shutil.which("bwrap") or ""

_REPORT_SCRIPT = """
import json, os, signal, sys
ignored = [n.name for n in signal.Signals if n not in (9, 19) and signal.getsignal(n) == signal.SIG_IGN]
json.dump([sys.argv[1:], dict(os.environ), os.getcwd(), os.getpid(), ignored], open('report.new', 'w'))
os.rename('report.new', 'report')
"""
_APART = "setsid sleep 600 & trap '' TERM; echo ready; while :; do sleep 0.1; done"


class SandboxedProcess(ProcessRuntime):
    async def launch(self, spec: LaunchSpec) -> Handle:
        return await super().launch(
            bubblewrap.sandbox_launch(spec, bubblewrap.SandboxMounts(writable=(spec.cwd,)), BWRAP)
        )


class SandboxedTmux(TmuxRuntime):
    async def launch(self, spec: LaunchSpec) -> Handle:
        return await super().launch(
            bubblewrap.sandbox_launch(spec, bubblewrap.SandboxMounts(writable=(spec.cwd,)), BWRAP)
        )


@pytest.mark.skipif(not have_bwrap(), reason="bubblewrap cannot make a sandbox here")
class Sandboxed:
    pytestmark = pytest.mark.anyio
    bench = RuntimeContract.bench
    close_runtime = RuntimeContract.close_runtime
    test_standard_input_can_be_a_file = RuntimeContract.test_standard_input_can_be_a_file
    test_launching_again_returns_the_same_process = RuntimeContract.test_launching_again_returns_the_same_process
    test_an_end_is_reported_within_half_a_second = RuntimeContract.test_an_end_is_reported_within_half_a_second
    test_a_resize_reaches_the_program = RuntimeContract.test_a_resize_reaches_the_program
    test_keys_reach_the_program = RuntimeContract.test_keys_reach_the_program
    test_stopping_sends_sigterm_first = RuntimeContract.test_stopping_sends_sigterm_first
    test_orphaned_terminals_are_the_launches_without_a_known_handle = (
        RuntimeContract.test_orphaned_terminals_are_the_launches_without_a_known_handle
    )

    async def test_arguments_environment_and_signals_are_passed_on(self, bench: RuntimeBench) -> None:
        hostile, env_given = (
            ["", "a b", "--", "$(id)", "ü\n"],
            {"PATH": os.environ["PATH"], "TERM": "xterm", "A": "x'\n"},
        )
        away = {"SSH_AUTH_SOCK": "/run/agent", "DISPLAY": ":0"}
        await bench.launch(python(_REPORT_SCRIPT, *hostile), env={**env_given, **away})
        await wait_until_true((bench.work / "report").exists)
        arguments, environment, folder, pid, ignored = json.loads((bench.work / "report").read_text())
        environment.pop("LC_CTYPE", None)  # set by its own start
        assert (arguments, folder, pid) == (hostile, str(bench.work.resolve()), 2)
        assert environment == {**env_given, "TMPDIR": "/tmp", "PWD": folder}
        assert not {"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGTSTP"} & set(ignored)

    @pytest.mark.parametrize(
        ("script", "how"), [("exit 3", 3), ("exec /no/such", 127), ("kill -9 $$", 137), ("sleep 60 & exit 4", 4)]
    )
    async def test_an_end_is_reported_as_an_exit_code(self, bench: RuntimeBench, script: str, how: int) -> None:
        handle = await bench.launch(["sh", "-c", script])
        assert await bench.runtime.ended(handle) == Gone(Exit(how))
        await wait_until_true(lambda: not _inside(handle))

    async def test_a_missing_program_is_named(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(["no-such-program-anywhere"])
        assert await bench.runtime.ended(handle) == Gone(Exit(127))
        assert "no-such-program-anywhere" in await bench.runtime.screen(handle)

    async def test_ctrl_c_reaches_the_agent_but_not_its_sandbox(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(
            ["sh", "-c", "trap 'echo held; exit 5' INT; echo ready; while :; do sleep 0.1; done"]
        )
        await _shows(bench, handle, "ready")
        await bench.runtime.press(handle, ["C-c"])
        assert await bench.runtime.ended(handle) == Gone(Exit(5))

    async def test_stopping_ends_every_process_inside(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(["sh", "-c", _APART])
        await _shows(bench, handle, "ready")
        inside = _inside(handle)
        assert len(inside) >= 4
        await bench.runtime.stop(handle, grace=0.1)
        await wait_until_true(
            lambda: not [process for process in inside if LocalHost().process(process.pid) == process]
        )

    async def test_the_sandbox_ends_with_the_holder_of_its_terminal(self, bench: RuntimeBench) -> None:
        handle = await bench.launch(["sh", "-c", "trap '' HUP; " + _APART])
        await _shows(bench, handle, "ready")
        inside = _inside(handle)
        os.kill(_parent(handle.pid), signal.SIGKILL)
        await wait_until_true(
            lambda: not [process for process in inside if LocalHost().process(process.pid) == process]
        )


@pytest.mark.tmux
@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
class TestTmux(Sandboxed):
    def new_runtime(self, home: Path) -> Runtime:
        return SandboxedTmux({"home": str(home)}, LocalHost())

    async def close_runtime(self, runtime: Runtime, home: Path) -> None:  # noqa: ARG002 - the contract's
        answer = await LocalHost().run(
            ["tmux", "-N", "-S", str(Home(home).socket("tmux.sock")), "display", "-p", "#{pid}"]
        )
        if answer.code == 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(answer.text), signal.SIGKILL)


class TestProcess(Sandboxed):
    def new_runtime(self, home: Path) -> Runtime:
        return SandboxedProcess({"home": str(home)}, LocalHost())


def _inside(handle: Handle) -> list[ProcessId]:
    return LocalHost().family(ProcessId(handle.pid, handle.started))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def _shows(bench: RuntimeBench, handle: Handle, text: str) -> None:
    async def is_visible() -> bool:
        return text in await bench.runtime.screen(handle)

    await wait_until_true(is_visible)
