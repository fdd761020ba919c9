"""One world of sessions that people use and something kills parts of. Everything random comes from the seed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.client import Client
from agent_orchestrator.errors import AoError
from agent_orchestrator.testing.sandbox import Sandbox

SCRIPTS = (
    "[[write: {mark}.txt|draft {mark}]]",
    "[[write: {mark}.txt|work {mark}]] [[commit: commit {mark}]]",
    "[[progress: 1/2 half]] [[sleep: 0.2]] [[write: {mark}.txt|slow {mark}]] [[commit: commit {mark}]] [[progress: 2/2 all]]",
    "[[write: {mark}.txt|draft {mark}]] [[ask: Which one?]] [[commit: commit {mark}]]",
    "[[sleep: 0.3]] [[write: {mark}.txt|late {mark}]]",
)


@dataclass(slots=True)
class Known:
    """What the players themselves know to have been accepted."""

    sessions: dict[str, str] = field(default_factory=dict)
    """Session → the mark of its first turn."""
    messages: dict[str, str] = field(default_factory=dict)
    """Message → session."""
    killed_agents: set[int] = field(default_factory=set)


class World:
    """A sandbox, its players and its killer."""

    def __init__(self, box: Sandbox, seed: int) -> None:
        self.box = box
        self.random = random.Random(seed)
        self.known = Known()
        self.truth = box.folder / "truth.jsonl"
        self._mark = 0
        self._lock = threading.Lock()

    def round(self) -> list[str]:
        """Use the product for a while, kill something in the midst of it, then look at everything; returns what was done."""
        done: list[str] = []
        plan = [
            self.random.choice(("new", "new", "send", "send", "send", "stop", "restore"))
            for _ in range(self.random.randint(2, 6))
        ]
        kills = [
            self.random.choice(("daemon", "daemon", "agent", "terminal", "nothing"))
            for _ in range(self.random.randint(1, 2))
        ]
        pauses = [self.random.uniform(0.0, 0.5) for _ in kills]
        choices = [self.random.random() for _ in range(len(plan) * 2)]
        player = threading.Thread(target=self._use, args=(plan, choices, done))
        player.start()
        for what, pause in zip(kills, pauses, strict=True):
            time.sleep(pause)
            done.append(f"kill {what} {self._kill(what)}")
        player.join(120)
        return done

    # -- use -----------------------------------------------------------------------------------------------------------

    def _use(self, plan: list[str], choices: list[float], done: list[str]) -> None:
        for index, what in enumerate(plan):
            choice, other = choices[2 * index], choices[2 * index + 1]
            try:
                done.append(getattr(self, f"_{what}")(choice, other))
            except AoError as error:
                done.append(f"{what}: {error.text}")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """As the command line does: starts the daemon, and repeats with the same key when it dies on the request."""
        from urllib.parse import quote

        with Client(self.box.home.path) as client:
            client.daemon_environment = lambda: dict(self.box.env)  # type: ignore[method-assign]
            headers = {"X-AO-Cwd": quote(str(self.box.repo)), "Idempotency-Key": os.urandom(16).hex()}
            return client.request(method, path, body, headers=headers, timeout=90).json()

    def _new(self, choice: float, _other: float) -> str:
        with self._lock:
            self._mark += 1
            mark = f"mark-{self._mark}"
        script = SCRIPTS[int(choice * len(SCRIPTS))].format(mark=mark)
        made = self._ask("POST", "/api/sessions", {"prompt": script, "name": mark})
        self.known.sessions[made["id"]] = mark
        return f"new {made['id']}"

    def _pick(self, choice: float) -> str:
        sessions = sorted(self.known.sessions)
        if not sessions:
            raise AoError("no session yet")
        return sessions[-1 - int(choice * min(len(sessions), 6))]

    def _send(self, choice: float, _other: float) -> str:
        session = self._pick(choice)
        sent = self._ask("POST", f"/api/sessions/{session}/message", {"content": "[[say: heard]]"})
        self.known.messages[sent["messageId"]] = session
        return f"send {session} {sent['messageId']}"

    def _stop(self, choice: float, _other: float) -> str:
        session = self._pick(choice)
        self._ask("DELETE", f"/api/sessions/{session}")
        return f"stop {session}"

    def _restore(self, choice: float, _other: float) -> str:
        session = self._pick(choice)
        self._ask("POST", f"/api/sessions/{session}/restore", {})
        return f"restore {session}"

    # -- kill ----------------------------------------------------------------------------------------------------------

    def _kill(self, what: str) -> str:
        pid = {"daemon": self.box.daemon_pid, "agent": self._an_agent, "terminal": self._a_terminal}.get(
            what, lambda: None
        )()
        if pid is None:
            return "(none)"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return str(pid)

    def _an_agent(self) -> int | None:
        agents = self.agents()
        return self.random.choice(sorted(pid for pids in agents.values() for pid in pids)) if agents else None

    def _a_terminal(self) -> int | None:
        """The tmux server, or one of the holders."""
        socket, home = str(self.box.home.socket("tmux.sock")).encode(), str(self.box.home.path).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    command = (entry / "cmdline").read_bytes()
                    holder = b"holder.py" in command and home in command
                    if holder or (command.startswith(b"tmux") and socket in command):
                        found.append(int(entry.name))
        return self.random.choice(sorted(found)) if found else None

    # -- evidence ------------------------------------------------------------------------------------------------------

    def agents(self) -> dict[str, list[int]]:
        """Live demo agents by session, as the kernel knows them."""
        found: dict[str, list[int]] = {}
        home = str(self.box.home.path).encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if b"demo_agent.py" not in command or b"holder.py" in command or b"/sh\0" in command[:9]:
                    continue
                environ = dict(one.partition(b"=")[::2] for one in (entry / "environ").read_bytes().split(b"\0"))
                if (
                    environ.get(b"AO_SPOOL", b"").startswith(home)
                    and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                ):
                    found.setdefault(environ[b"AO_SESSION"].decode(), []).append(int(entry.name))
        return found

    def heard(self) -> list[dict[str, Any]]:
        """What the agents themselves say happened."""
        if not self.truth.exists():
            return []
        entries = []
        for line in self.truth.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        return entries
