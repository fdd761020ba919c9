"""A contract bench for each built-in runtime."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.runtimes.process import ProcessRuntime
from agent_orchestrator.plugins.runtimes.tmux import TmuxRuntime
from agent_orchestrator.protocols import Runtime
from agent_orchestrator.testing.contracts.runtime import RuntimeBench, RuntimeContract


class OnTmux(RuntimeContract):
    def new_runtime(self, home: Path) -> Runtime:
        return TmuxRuntime({"home": str(home)}, LocalHost())

    async def close_runtime(self, runtime: Runtime, home: Path) -> None:  # noqa: ARG002 - the contract's
        if pid := await server_pid(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class OnProcess(RuntimeContract):
    def new_runtime(self, home: Path) -> Runtime:
        return ProcessRuntime({"home": str(home)}, LocalHost())


async def server_pid(home: Path) -> int:
    """Return the pid of the tmux server, or 0 if there is none."""
    answer = await LocalHost().run(["tmux", "-N", "-S", str(Home(home).socket("tmux.sock")), "display", "-p", "#{pid}"])
    return int(answer.text) if answer.code == 0 else 0


async def _bench(contract: RuntimeContract) -> AsyncIterator[RuntimeBench]:
    bench = RuntimeBench(contract)
    try:
        yield bench
    finally:
        await bench.close()


@pytest.fixture
async def tmux() -> AsyncIterator[RuntimeBench]:
    if not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    async for bench in _bench(OnTmux()):
        yield bench


@pytest.fixture
async def process() -> AsyncIterator[RuntimeBench]:
    async for bench in _bench(OnProcess()):
        yield bench


@pytest.fixture(params=["tmux", "process"])
async def any_bench(request: pytest.FixtureRequest) -> AsyncIterator[RuntimeBench]:
    if request.param == "tmux" and not shutil.which("tmux"):
        pytest.skip("tmux is not installed")
    async for bench in _bench(OnTmux() if request.param == "tmux" else OnProcess()):
        yield bench
