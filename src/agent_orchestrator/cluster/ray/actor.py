"""The actor of a node: keeps one process of ours running there (`node.py`), and says how it does.

It is sent to the node by value and uses the standard library alone, so that it can tell that our package is not installed there, or in
another version. The process is not its child: one that an earlier actor started is taken up again.
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

STATE = "ray-worker.json"
LOOK_EVERY = 0.25
SETTLED = 5.0
"""Seconds that a process must have run to count as running well."""
LONGEST_PAUSE = 10.0


class NodeActor:
    """One on each node; its methods are called by the bridge."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._setup: dict[str, Any] = {}
        self._state: dict[str, Any] = {"serial": 0, "ready": False, "fit": True, "why": "is starting", "pid": 0}
        self._keeper: threading.Thread | None = None

    def work(self, setup: dict[str, Any]) -> dict[str, Any]:
        """Run the node's process with this, from now on; one that runs with something else is ended."""
        lack = lacking(setup["version"])
        with self._news:
            if lack is not None:
                self._tell(ready=False, why=lack, fit=False)
                return self._state
            self._setup = setup
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, daemon=True)
                self._keeper.start()
            return self._state

    def watch(self, serial: int, patience: float) -> dict[str, Any]:
        """How it does, as soon as that is something else than what is known already."""
        with self._news:
            self._news.wait_for(lambda: self._state["serial"] != serial, patience)
            return self._state

    def _tell(self, **news: Any) -> None:
        with self._news:
            if news.items() <= self._state.items():
                return
            self._state = {**self._state, **news, "serial": self._state["serial"] + 1}
            self._news.notify_all()

    def _keep(self) -> None:
        pause = 0.0
        while True:
            setup = self._setup
            line = json.dumps(setup, sort_keys=True)
            found = running(setup["home"])
            if found is not None and found["setup"] != hashlib.sha256(line.encode()).hexdigest():
                end(found)
                continue
            if found is not None:
                self._tell(ready=True, fit=True, why="", pid=found["pid"])
                began = time.monotonic()
                while running(setup["home"]) == found and self._setup is setup:
                    time.sleep(LOOK_EVERY)
                pause = 0.0 if time.monotonic() - began > SETTLED else pause
                if self._setup is setup:
                    self._tell(ready=False, why=f"its worker ended: {last_words(setup['home'])}", pid=0)
                continue
            time.sleep(pause)
            pause = min(pause * 2 + 0.2, LONGEST_PAUSE)
            try:
                start(setup, line)
            except (OSError, subprocess.SubprocessError) as error:
                self._tell(ready=False, why=f"cannot start its worker: {error}", pid=0)


def lacking(version: str) -> str | None:
    """What this node lacks to run our worker."""
    remedy = f"pip install 'agent-orchestrator[ray]=={version}' there, for {sys.executable}"
    try:
        import agent_orchestrator
    except ImportError:
        return f"has no agent-orchestrator: {remedy}"
    if agent_orchestrator.__version__ != version:
        return f"has agent-orchestrator {agent_orchestrator.__version__}, the daemon {version}: {remedy}"
    return None


def start(setup: dict[str, Any], line: str) -> None:
    """Returns when it runs by itself, or not at all."""
    home = setup["home"]
    os.makedirs(home, mode=0o700, exist_ok=True)  # noqa: PTH103
    log = os.open(log_of(home), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-P", "-m", "agent_orchestrator.cluster.ray.node"],
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


def running(home: str) -> dict[str, Any] | None:
    """The process that lives there, whoever started it."""
    try:
        with open(os.path.join(home, STATE), encoding="utf-8") as file:  # noqa: PTH123
            state: dict[str, Any] = json.load(file)
        with open(f"/proc/{state['pid']}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError, KeyError):
        return None
    return state if fields[0] not in (b"Z", b"X") and fields[19].decode() == state["started"] else None


def end(found: dict[str, Any]) -> None:
    """Ask it to end, and wait for that."""
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(found["pid"], number)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            try:
                with open(f"/proc/{found['pid']}/stat", "rb") as file:  # noqa: PTH123
                    if file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                        return
            except OSError:
                return
            time.sleep(0.05)


def environment() -> dict[str, str]:
    """What `ray start` was started with: a Ray worker's own hides devices, and names things of Ray's."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:  # noqa: PTH123
            entries = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if b"=" in entry]
        found = {name: value for name, _, value in entries}
    except OSError:
        found = dict(os.environ)
    return {name: value for name, value in found.items() if not name.startswith("RAY_")}


def log_of(home: str) -> str:
    """Where the process complains."""
    return os.path.join(home, "worker.log")


def last_words(home: str) -> str:
    """The last line of its complaints."""
    try:
        with open(log_of(home), "rb") as file:  # noqa: PTH123
            lines = file.read()[-4096:].decode(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it does not say why"
