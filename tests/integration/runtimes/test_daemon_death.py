"""Agents survive a crash of the daemon, and messages are not duplicated."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from agent_orchestrator.protocols import Alive, Delivered, Exit, Gone
from agent_orchestrator.testing.contracts.runtime import RuntimeBench
from agent_orchestrator.testing.terminals import wait_until_true

pytestmark = pytest.mark.anyio

_DAEMON = """
import asyncio, json, sys
from pathlib import Path
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.runtimes.process import ProcessRuntime
from agent_orchestrator.plugins.runtimes.tmux import TmuxRuntime
from agent_orchestrator.protocols import Handle, LaunchSpec

kind, home, private, order = sys.argv[1:5]
runtime = {"TmuxRuntime": TmuxRuntime, "ProcessRuntime": ProcessRuntime}[kind]({"home": home}, LocalHost())

async def main():
    if order == "launch":
        spec = LaunchSpec("app-fix", 1, ("sleep", "60"), Path("/"), {"PATH": "/bin:/usr/bin"}, Path(private), Path(private, "terminal.log"))
        await runtime.launch(spec)
    else:
        print("ready", flush=True)
        await runtime.deliver(Handle(**json.loads(sys.argv[5])), sys.argv[6], sys.argv[7])
    print("done", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def _daemon(bench: RuntimeBench, *arguments: str) -> subprocess.Popen[bytes]:
    private = bench.home / "sessions" / "app-fix"
    command = [sys.executable, "-c", _DAEMON, type(bench.runtime).__name__, str(bench.home), str(private), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)


def _kill(daemon: subprocess.Popen[bytes]) -> None:
    os.killpg(daemon.pid, signal.SIGKILL)
    daemon.wait()
    assert daemon.stdout is not None
    daemon.stdout.close()


async def _line(daemon: subprocess.Popen[bytes]) -> bytes:
    assert daemon.stdout is not None
    return await asyncio.to_thread(daemon.stdout.readline)


async def test_an_agent_survives_its_daemon_and_is_adopted(any_bench: RuntimeBench) -> None:
    daemon = _daemon(any_bench, "launch")
    assert await _line(daemon) == b"done\n"
    _kill(daemon)
    adopted = await any_bench.launch(["sleep", "60"], cwd=Path("/"))
    assert await any_bench.runtime.orphaned_terminals([adopted]) == []
    assert await any_bench.runtime.probe([adopted]) == [Alive()]
    assert await any_bench.runtime.deliver(adopted, "m1", "hello") == Delivered()
    os.kill(adopted.pid, signal.SIGTERM)
    assert await any_bench.runtime.ended(adopted) == Gone(Exit(signal=15))


async def test_a_message_is_delivered_completely_and_once_despite_a_crash(any_bench: RuntimeBench) -> None:
    handle, received = await any_bench.launch_recorder()
    handle_fields = asdict(handle)
    expected = b""
    for number, pause in enumerate((0.0, 0.004, 0.008, 0.012, 0.02)):
        text = f"message {number} " + "x" * 60_000
        daemon = _daemon(any_bench, "deliver", json.dumps(handle_fields), f"m{number}", text)
        assert await _line(daemon) == b"ready\n"
        await asyncio.sleep(pause)
        _kill(daemon)
        assert await any_bench.restart().deliver(handle, f"m{number}", text) == Delivered()
        expected += text.encode() + b"\r"
        await wait_until_true(lambda: len(received.read_bytes()) >= len(expected))  # noqa: B023 - awaited here
        assert received.read_bytes() == expected
