"""Where a story is played: a home, a repository, a daemon that is killed, and the evidence of what happened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agent_orchestrator.client.daemon_client import alive
from agent_orchestrator.errors import AoError, Unreachable
from agent_orchestrator.testing.sandbox import Sandbox
from tests.faults import forking
from tests.faults.crashing import KILLED

T = TypeVar("T")

PATIENCE = 90.0
LITTER = ("launch.", "spec.", "message.")
"""What a terminal is started with, and what is to be typed into it: meant for one reading."""
PROGRAMS = (b"from demo_agent.", b"reader_agent.py")
"""What the command lines of agents contain."""
LOST = ("Traceback", "unexpectedly", "level=error")


class Stage:
    """A home, a repository, a daemon that is killed at one statement, and the person who goes on as if nothing had been."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.truth = Path(box.env["AO_DEMO_LOG"])
        self.plan, self.trace = box.folder / "plan", box.folder / "trace"
        box.env["AO_CRASH_PLAN"] = str(self.plan)
        self.daemon: forking.Child | None = None
        self.refused: list[str] = []

    # -- the daemon ----------------------------------------------------------------------------------------------------

    def start(self, plan: Sequence[str]) -> None:
        """Start the first daemon; each dies where the plan says, those that come after it not at all."""
        self.plan.write_text("\n".join(plan))
        self._fork()

    def _fork(self) -> None:
        """Start a daemon, and wait until it serves or is dead."""
        self.box.home.info.unlink(missing_ok=True)
        self.daemon = started = forking.daemon(self.box.env, self.box.folder / "early.log")
        self.box.until(
            lambda: not self.lives() or self.box.daemon_pid() == started.pid, "the daemon to serve or die", 30
        )

    def lives(self) -> bool:
        """Does the daemon that was started here live?"""
        return self.daemon is not None and self.daemon.poll() is None

    def traced(self) -> tuple[list[str], list[str]]:
        """All statements so far, and those at which a daemon was killed."""
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        told = [line.partition(" ")[::2] for line in lines]
        return [words for first, words in told if first != KILLED], [words for first, words in told if first == KILLED]

    def end(self) -> None:
        """End the daemon in good order, if it still lives; it may be killed while it does."""
        if self.daemon is not None and self.lives():
            os.kill(self.daemon.pid, signal.SIGTERM)
            self.box.until(lambda: not self.lives(), "the daemon to end", 60)

    def close(self) -> None:
        """The play is over: whichever daemon serves is killed."""
        own = self.daemon.pid if self.daemon is not None and self.lives() else None
        for pid in {own, self.box.daemon_pid()}:
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.box.until(lambda: not self.lives(), "the daemon to end")
        self.box.home.info.unlink(missing_ok=True)

    # -- the person ----------------------------------------------------------------------------------------------------

    def ao(self, *argv: str) -> str:
        """A command; one that is refused is told at the end."""
        done = forking.command(argv, self.box.env, self.box.repo, self.box.folder)
        if done.code:
            self.refused.append(f"ao {' '.join(argv)}: exit {done.code}: {done.err.strip()}")
        return done.out

    def ask(self, path: str) -> Any:
        """Read something; a dead daemon is started anew."""
        end = time.monotonic() + PATIENCE
        while True:
            pid = self.box.daemon_pid()
            if not self.lives() and (pid is None or not alive(pid)):
                self._fork()
            try:
                return self.box.request("GET", path)
            except Unreachable:  # it dies, or another one is on its way
                if time.monotonic() > end:
                    raise TimeoutError(f"no daemon answers within {PATIENCE:g} s") from None
                time.sleep(0.05)

    def session(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"/api/sessions/{name}")
        return found

    def messages(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(f"/api/sessions/{name}/messages")["messages"]
        return found

    def until(self, holds: Callable[[], T], what: str) -> T:
        """Look until something is so."""
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(AoError):
                if value := holds():
                    return value
            if time.monotonic() > end:
                shown = [(one["id"], one["status"], one["why"]) for one in self.ask("/api/sessions?all=1")["sessions"]]
                raise TimeoutError(f"waited {PATIENCE:g} s in vain for {what}; the sessions: {shown}")
            time.sleep(0.05)

    # -- evidence ------------------------------------------------------------------------------------------------------

    def log(self, event: str) -> list[dict[str, Any]]:
        """What the agents wrote down themselves."""
        lines = self.truth.read_text(errors="replace").splitlines() if self.truth.exists() else []
        return [entry for line in lines if (entry := json.loads(line))["event"] == event]

    def heard(self) -> list[str]:
        """The messages that reached an agent, in order."""
        return [entry["text"] for entry in self.log("message")]

    def agents(self) -> dict[str, list[int]]:
        """Live agents by session, as the kernel knows them."""
        found: dict[str, list[int]] = {}
        spool = f"AO_SPOOL={self.box.home.path}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                environ = (entry / "environ").read_bytes().split(b"\0")
                if (
                    not any(program in command for program in PROGRAMS)
                    or b"pty_holder" in command
                    or not any(v.startswith(spool) for v in environ)
                ):
                    continue
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    named = next(v for v in environ if v.startswith(b"AO_SESSION="))
                    found.setdefault(named.partition(b"=")[2].decode(), []).append(int(entry.name))
        return found

    def wrong(self) -> list[str]:
        """What is wrong whatever was played."""
        wrong = list(self.refused)
        agents = self.agents()
        sessions = self.ask("/api/sessions?all=1")["sessions"]
        shown = {one["id"]: one["pid"] for one in sessions}
        for session in shown.keys() | agents.keys():
            pids, pid = agents.get(session, []), shown.get(session)
            if pids != ([] if pid is None else [pid]):
                wrong.append(f"{session}: agents {pids} live, {pid} is shown")
        events = [one for page in self.pages() for one in page]
        if [one["seq"] for one in events] != list(range(1, len(events) + 1)):
            wrong.append("the event log has gaps")
        twice = [key for key, count in Counter(one["key"] for one in events).items() if count > 1]
        wrong += [f"event {key} is in the log twice" for key in twice]
        text = self.box.home.log.read_text(errors="replace") if self.box.home.log.exists() else ""
        wrong += [f"the daemon's log: {line}" for line in text.splitlines() if any(word in line for word in LOST)]
        changed = self.box.git("status", "--porcelain", "--untracked-files=no")
        wrong += [f"the user's checkout is changed: {changed}"] if changed else []
        places = {one["workspacePath"] for one in sessions if one["workspacePath"]} | {str(self.box.repo)}
        listed = self.box.git("worktree", "list", "--porcelain").splitlines()
        known = {line.removeprefix("worktree ") for line in listed if line.startswith("worktree ")}
        wrong += [f"the worktrees are {sorted(known)}, not {sorted(places)}"] * (known != places)
        links = [path for path in self.box.repo.glob(".worktrees/*") if not path.exists()]
        wrong += [f"links to nowhere are left behind: {links}"] * bool(links)
        locks = [str(path) for path in (self.box.repo / ".git").rglob("*.lock")]
        wrong += [f"locks are left behind: {locks}"] * bool(locks)
        litter = [path.name for path in self.box.home.path.glob("sessions/*/*") if path.name.startswith(LITTER)]
        return wrong + [f"files with secrets or messages are left behind: {litter}"] * bool(litter)

    def pages(self) -> Any:
        """All events, many at a time."""
        last = 0
        while page := self.ask(f"/api/events?after={last}&limit=1000")["events"]:
            yield page
            last = page[-1]["seq"]

    def once(self, session: str, expected: list[str], starts: tuple[int, int] = (1, 0)) -> list[str]:
        """Were exactly these messages heard, each once and in order, and its agent started and resumed so often?"""
        wrong = []
        if self.heard() != expected:
            wrong.append(f"{session} heard {self.heard()}, not {expected}")
        begun = Counter(bool(entry["resume"]) for entry in self.log("start"))
        if (begun[False], begun[True]) != starts:
            wrong.append(f"{session} was started {begun[False]} times and resumed {begun[True]} times, not {starts}")
        bad = [one for one in self.messages(session) if one["state"] not in ("delivered", "acknowledged")]
        return wrong + [f"{session}: message {one['messageId']} is {one['state']}: {one['reason']}" for one in bad]
