"""Start commands and daemons by a fork instead of a new interpreter: there are thousands, and imports are most of their cost."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator import cli
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.daemon import __main__ as the_daemon
from tests.faults.crash_points import install_planned

COMMAND_TIMEOUT = 180.0


@dataclass(slots=True)
class ForkedProcess:
    """A child process, with the interface of `subprocess.Popen`."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


@dataclass(frozen=True, slots=True)
class ForkedCommandResult:
    """The result of a command."""

    code: int
    out: str
    err: str


def fork_daemon(env: Mapping[str, str], log: Path) -> ForkedProcess:
    """Start a daemon that counts statements and is killed where the plan says."""

    def serve() -> int:
        os.setsid()
        sys.argv = ["agent_orchestrator.daemon", "--port", "0"]
        install_planned()
        return the_daemon.main()

    return _start(serve, env, log.parent, log, log)


def fork_command(argv: Sequence[str], env: Mapping[str, str], cwd: Path, folder: Path) -> ForkedCommandResult:
    """Run `ao` with these arguments; a daemon that it starts counts statements."""
    out, err = folder / "out", folder / "err"
    out.write_text("")
    err.write_text("")

    def run() -> int:
        def spawn(client: DaemonClient, _arguments: Sequence[str]) -> Any:
            os.makedirs(client.home, mode=0o700, exist_ok=True)  # noqa: PTH103 - as the client does
            return fork_daemon(client.daemon_environment(), Path(client.log_path))

        DaemonClient._spawn = spawn  # type: ignore[assignment, method-assign]
        return cli.main(argv)

    child, end = _start(run, env, cwd, out, err), time.monotonic() + COMMAND_TIMEOUT
    while (code := child.poll()) is None:
        if time.monotonic() > end:
            os.kill(child.pid, 9)
        time.sleep(0.005)
    return ForkedCommandResult(code, out.read_text(errors="replace"), err.read_text(errors="replace"))


def _start(work: Callable[[], int], env: Mapping[str, str], cwd: Path, out: Path, err: Path) -> ForkedProcess:
    pid = os.fork()
    if pid:
        return ForkedProcess(pid)
    code = 1
    try:
        appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        ends = (os.open(os.devnull, os.O_RDONLY), os.open(out, appending, 0o600), os.open(err, appending, 0o600))
        for standard, end in enumerate(ends):
            os.dup2(end, standard)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
