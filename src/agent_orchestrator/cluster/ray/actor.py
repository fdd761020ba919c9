"""The Ray actor of a node: keeps one process of ours running there (`worker_process.py`), and reports its state.

It is sent to the node by value and uses the standard library only, so that it can report that our package is missing there or has
another version. The process is not its child: one that an earlier actor started is adopted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

STATE_FILE = "ray-worker.json"
"""The file in the node's home that describes the running process; written by `worker_process.py`."""
CHECK_INTERVAL = 0.25
"""Seconds between two checks of the process."""
STABLE_SECONDS = 5.0
"""Seconds that a process must have run to count as stable."""
MAX_RESTART_PAUSE = 10.0
"""The longest pause in seconds before the process is started again."""


class NodeActor:
    """The actor on a node; its methods are called by the bridge."""

    def __init__(self) -> None:
        self._state_changed = threading.Condition()
        self._setup: dict[str, Any] = {}
        self._state: dict[str, Any] = {"serial": 0, "ready": False, "fit": True, "why": "is starting", "pid": 0}
        self._keeper: threading.Thread | None = None

    def work(self, setup: dict[str, Any]) -> dict[str, Any]:
        """Run the node's process with this setup from now on; a process with another setup is ended.

        Return the state.
        """
        lack = missing_requirement(setup["version"])
        with self._state_changed:
            if lack is not None:
                self._change_state(ready=False, why=lack, fit=False)
                return self._state
            self._setup = setup
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep_running, daemon=True)
                self._keeper.start()
            return self._state

    def watch(self, serial: int, patience: float) -> dict[str, Any]:
        """Return the state as soon as its serial number differs from `serial`, or after `patience` seconds."""
        with self._state_changed:
            self._state_changed.wait_for(lambda: self._state["serial"] != serial, patience)
            return self._state

    def _change_state(self, **news: Any) -> None:
        """Change the state, and wake those that watch it; do nothing if it stays the same."""
        with self._state_changed:
            if news.items() <= self._state.items():
                return
            self._state = {**self._state, **news, "serial": self._state["serial"] + 1}
            self._state_changed.notify_all()

    def _keep_running(self) -> None:
        """Start, watch and restart the process forever."""
        pause = 0.0
        while True:
            setup = self._setup
            line = json.dumps(setup, sort_keys=True)
            state = read_running_state(setup["home"])
            if state is not None and state["setup"] != hashlib.sha256(line.encode()).hexdigest():
                stop_worker(state)
                continue
            if state is not None:
                self._change_state(ready=True, fit=True, why="", pid=state["pid"])
                began = time.monotonic()
                while read_running_state(setup["home"]) == state and self._setup is setup:
                    time.sleep(CHECK_INTERVAL)
                pause = 0.0 if time.monotonic() - began > STABLE_SECONDS else pause
                if self._setup is setup:
                    self._change_state(ready=False, why=f"its worker ended: {last_log_line(setup['home'])}", pid=0)
                continue
            time.sleep(pause)
            pause = min(pause * 2 + 0.2, MAX_RESTART_PAUSE)
            try:
                start_worker(setup, line)
            except (OSError, subprocess.SubprocessError) as error:
                self._change_state(ready=False, why=f"cannot start its worker: {error}", pid=0)


def missing_requirement(version: str) -> str | None:
    """Return what this node lacks to run our worker and how to install it, or None if it lacks nothing."""
    remedy = f"pip install 'agent-orchestrator[ray]=={version}' there, for {sys.executable}"
    try:
        import agent_orchestrator
    except ImportError:
        return f"has no agent-orchestrator: {remedy}"
    if agent_orchestrator.__version__ != version:
        return f"has agent-orchestrator {agent_orchestrator.__version__}, the daemon {version}: {remedy}"
    return None


def start_worker(setup: dict[str, Any], line: str) -> None:
    """Start the process; return when it has detached itself, or failed."""
    home = setup["home"]
    os.makedirs(home, mode=0o700, exist_ok=True)  # noqa: PTH103
    log = os.open(log_path(home), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-P", "-m", "agent_orchestrator.cluster.ray.worker_process"],
            input=line.encode() + b"\n",
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd="/",
            env=environment(),
            start_new_session=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(log)


def read_running_state(home: str) -> dict[str, Any] | None:
    """Return the state file's content if the process that it describes is alive, else None."""
    try:
        with open(os.path.join(home, STATE_FILE), encoding="utf-8") as file:  # noqa: PTH123
            state: dict[str, Any] = json.load(file)
        with open(f"/proc/{state['pid']}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError, KeyError):
        return None
    return state if fields[0] not in (b"Z", b"X") and fields[19].decode() == state["started"] else None


def stop_worker(state: dict[str, Any]) -> None:
    """Stop a process, by force if it does not end, and wait for it."""
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(state["pid"], number)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            try:
                with open(f"/proc/{state['pid']}/stat", "rb") as file:  # noqa: PTH123
                    if file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                        return
            except OSError:
                return
            time.sleep(0.05)


def environment() -> dict[str, str]:
    """Return the environment of `ray start`: that of a Ray worker hides devices and has Ray's own variables."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:  # noqa: PTH123
            entries = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if b"=" in entry]
        variables = {name: value for name, _, value in entries}
    except OSError:
        variables = dict(os.environ)
    return {name: value for name, value in variables.items() if not name.startswith("RAY_")}


def log_path(home: str) -> str:
    """Return the path of the process's error log."""
    return os.path.join(home, "worker.log")


def last_log_line(home: str) -> str:
    """Return the last line of the process's error log."""
    try:
        with open(log_path(home), "rb") as file:  # noqa: PTH123
            lines = file.read()[-4096:].decode(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it does not say why"
