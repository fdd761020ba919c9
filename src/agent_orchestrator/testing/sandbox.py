"""A private home, repository and daemon for tests, demos and benchmarks. Cleans up by process id.

with Sandbox(folder) as box:
    box.repository("app", agent="demo")
    box.ao("new", "say hello")
    box.until(lambda: box.session("app-say-hello")["status"] == "idle")
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from agent_orchestrator.base.home import Home
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError

T = TypeVar("T")

_REMOVED_PREFIXES = ("AO_", "TMUX", "GIT_", "PYTHONDONTWRITEBYTECODE", "PYTEST_")

CONFIG = "defaults: {{agent: {agent}, runtime: {runtime}}}\n"


class SandboxDaemon(Protocol):
    """A daemon that this sandbox started."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def wait(self, timeout: float) -> object:
        """Wait until it has ended; raise `TimeoutExpired` if it does not in time."""
        ...


def launch_fresh(argv: Sequence[str], env: Mapping[str, str]) -> SandboxDaemon:
    """Start a daemon with these arguments and exactly this environment."""
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-P", "-m", "agent_orchestrator.daemon", *argv]
    return subprocess.Popen(command, env=env, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


launch: Callable[[Sequence[str], Mapping[str, str]], SandboxDaemon] = launch_fresh
"""Starts a daemon; `preloaded.launch` is quicker."""


def run_fresh(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, stdin: str | None
) -> subprocess.CompletedProcess[str]:
    """Run `ao` with these arguments and exactly this environment, in a new process."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "agent_orchestrator", *argv],
        cwd=cwd,
        env=env,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


run_command: Callable[[Sequence[str], Mapping[str, str], Path, str | None], subprocess.CompletedProcess[str]] = (
    run_fresh
)
"""Runs a command; `preloaded.run_command` is quicker."""


class Sandbox:
    """A home, repositories and a daemon below one folder; no file of the user is read or written."""

    def __init__(self, folder: Path, runtime: str = "process", env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.runtime = runtime
        self.user_home = folder / "user"
        self.home = Home(folder / "ao")
        self.repo = folder / "app"
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_REMOVED_PREFIXES)},
            "HOME": str(self.user_home),
            "AO_HOME": str(self.home.path),
            "GIT_CONFIG_NOSYSTEM": "1",
            "DBUS_SESSION_BUS_ADDRESS": "disabled:",  # no notification reaches the desktop of the person who runs it
            "SHELL": "/bin/sh",
            "NO_COLOR": "1",
            **(env or {}),
        }
        self._daemon: SandboxDaemon | None = None

    def __enter__(self) -> Sandbox:
        self.user_home.mkdir(parents=True, exist_ok=True)
        (self.user_home / ".gitconfig").write_text(
            "[user]\n\tname = Person\n\temail = person@example.invalid\n[init]\n\tdefaultBranch = main\n"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clean_up()

    # -- repository ----------------------------------------------------------------------------------------------------

    def repository(self, name: str = "app", *, agent: str = "demo", config: str | None = None) -> Path:
        """Create a repository with one commit and a configuration, in which later commands run; return its path."""
        repo = self.folder / name
        repo.mkdir()
        self.repo = repo
        self.git("init", "-q", "-b", "main")
        (repo / "README.md").write_text(f"# {name}\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "start")
        text = CONFIG.format(agent=agent, runtime=self.runtime) if config is None else config
        (repo / "agent-orchestrator.yaml").write_text(text)
        return repo

    def git(self, *argv: str, cwd: Path | None = None) -> str:
        """Run Git as the user would and return its output; raise `CalledProcessError` if it fails."""
        completed = subprocess.run(
            ["git", *argv], cwd=cwd or self.repo, env=self.env, capture_output=True, text=True, check=True
        )
        return completed.stdout.strip()

    # -- daemon --------------------------------------------------------------------------------------------------------

    def start(self, *argv: str, port: int | None = 0) -> int:
        """Start the daemon and wait until it answers; return its pid. Port 0 is any free port, None its usual one."""
        port_option = [] if port is None else ["--port", str(port)]
        if self._daemon is not None:  # not ended by `stop`
            self._daemon.wait(60)
        self.home.daemon_info.unlink(missing_ok=True)
        daemon = self._daemon = launch([*port_option, *argv], self.env)
        self.wait_until(lambda: self.daemon_pid() == daemon.pid, "the daemon to answer", 60)
        return daemon.pid

    def daemon_pid(self) -> int | None:
        """Return the pid of the running daemon, or None."""
        try:
            pid = int(json.loads(self.home.daemon_info.read_text())["pid"])
            os.kill(pid, 0)
        except (OSError, ValueError, KeyError):
            return None
        return pid

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send the daemon a signal and wait until it has ended."""
        pid = self.daemon_pid()
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if self._daemon is not None and self._daemon.pid == pid:
            self._daemon.wait(60)
            self._daemon = None
        else:
            self.wait_until(lambda: not _is_alive(pid), "the daemon to end", 60)

    # -- use -----------------------------------------------------------------------------------------------------------

    def ao(
        self, *argv: str, check: bool = True, stdin: str | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line as a person would; raise `CalledProcessError` if it fails and `find_bwrap` is set."""
        completed = run_command(argv, self.env, cwd or self.repo, stdin)
        if check and completed.returncode:
            error = subprocess.CalledProcessError(
                completed.returncode, completed.args, completed.stdout, completed.stderr
            )
            error.add_note(f"it said: {completed.stdout}{completed.stderr}the last events:\n{self._last_events()}")
            raise error
        return completed

    def json(self, *argv: str) -> Any:
        """Return the parsed output of a command run with `--json`."""
        return json.loads(self.ao(*argv, "--json").stdout)

    def client(self) -> DaemonClient:
        """Return the HTTP client of the command line for this home; the daemon must run."""
        return DaemonClient(self.home.path, start=False)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send an API request over the Unix socket, from the repository's folder; return the parsed answer."""
        from urllib.parse import quote

        with self.client() as client:
            return client.request(method, path, body, headers={"X-AO-Cwd": quote(str(self.repo)), **headers}).json()

    def sessions(self) -> list[dict[str, Any]]:
        """Return all sessions."""
        sessions: list[dict[str, Any]] = self.request("GET", "/api/sessions?all=1")["sessions"]
        return sessions

    def session(self, name: str) -> dict[str, Any]:
        """Return one session."""
        session: dict[str, Any] = self.request("GET", f"/api/sessions/{name}")
        return session

    def events(self, session: str | None = None) -> list[dict[str, Any]]:
        """Return the events of a session, or of all, oldest first."""
        path = f"/api/sessions/{session}/events?limit=1000&after=0" if session else "/api/events?limit=1000&after=0"
        events: list[dict[str, Any]] = self.request("GET", path)["events"]
        return events

    def wait_until(self, holds: Callable[[], T], what: str = "it", timeout: float = 60.0) -> T:
        """Poll until the condition is true and return its value; raise `TimeoutError` with the last events if it is not in time.

        The longer it lasts, the less often: the condition is mostly a request, which costs what is waited for its processor.
        """
        start = time.monotonic()
        end = start + timeout
        while True:
            if value := holds():
                return value
            if time.monotonic() > end:
                raise TimeoutError(
                    f"waited {timeout:g} s in vain for {what}; the last events:\n{self._last_events()}\n"
                    f"the daemon's log:\n{self._log_tail()}"
                )
            time.sleep(min(max(0.02, (time.monotonic() - start) / 10), 0.1))

    def _last_events(self) -> str:
        try:
            last = self.request("GET", "/api/events?limit=20")["events"][-20:]
        except (AoError, OSError):
            return "(none)"
        return "\n".join(
            f"{event['time']} {event['type']} {event['session']} {str(event['data'])[:160]}" for event in last
        )

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.home.log.read_text(errors="replace").splitlines()[-15:])
        return "(none)"

    # -- end -----------------------------------------------------------------------------------------------------------

    def processes(self) -> list[int]:
        """Return the pids of all processes that use this home: daemon, holders, agents, tmux."""
        home_variable = f"AO_HOME={self.home.path}".encode()
        socket = str(self.home.socket("tmux.sock")).encode()
        home = str(self.home.path).encode()
        pids = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                environ = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
                is_session = any(variable.startswith(b"AO_SPOOL=" + home) for variable in environ)
                pid = int(entry.name)
                is_daemon = self._daemon is not None and pid == self._daemon.pid
                if is_daemon or home_variable in environ or is_session or socket in command or home in command:
                    pids.append(pid)
        return pids

    def clean_up(self) -> None:
        """End every process that uses this home."""
        with contextlib.suppress(TimeoutError, subprocess.TimeoutExpired):
            self.stop()
        if self._daemon is not None and self.daemon_pid() != self._daemon.pid:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._daemon.wait(5)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in (pids := self.processes()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            end = time.monotonic() + 1.0
            while pids and time.monotonic() < end:
                time.sleep(0.02)
                pids = self.processes()
            if not pids:
                break
        if self._daemon is not None:
            self._daemon.wait(60)
            self._daemon = None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def have_tmux() -> bool:
    """Return whether runtime tmux can be used on this machine."""
    import shutil

    return shutil.which("tmux") is not None


def have_bwrap() -> bool:
    """Return whether `sandbox: bwrap` can be used on this machine."""
    import asyncio

    from agent_orchestrator.base.host import LocalHost
    from agent_orchestrator.errors import Missing
    from agent_orchestrator.plugins.runtimes.bubblewrap import find_bwrap

    try:
        asyncio.run(find_bwrap(LocalHost()))
    except Missing:
        return False
    return True


RUNTIMES: Sequence[str] = ("tmux", "process")
