"""The built-in runtimes against the contract of runtimes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.runtimes.process import ProcessRuntime
from agent_orchestrator.plugins.runtimes.tmux import TmuxRuntime
from agent_orchestrator.protocols import Runtime
from agent_orchestrator.testing.contracts.runtime import RuntimeContract


@pytest.mark.tmux
@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
class TestTmux(RuntimeContract):
    def new_runtime(self, home: Path) -> Runtime:
        return TmuxRuntime({"home": str(home)}, LocalHost())

    async def close_runtime(self, runtime: Runtime, home: Path) -> None:  # noqa: ARG002 - the contract's
        answer = await LocalHost().run(
            ["tmux", "-N", "-S", str(Home(home).socket("tmux.sock")), "display", "-p", "#{pid}"]
        )
        if answer.code == 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(answer.text), signal.SIGKILL)


class TestProcess(RuntimeContract):
    def new_runtime(self, home: Path) -> Runtime:
        return ProcessRuntime({"home": str(home)}, LocalHost())
