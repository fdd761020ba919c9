"""The stage of a scenario: a home, a repository, a daemon that is killed, and the evidence of what happened."""

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

from agent_orchestrator.base.processes import is_process_running
from agent_orchestrator.errors import AoError, Unreachable
from agent_orchestrator.testing.sandbox import Sandbox
from tests.faults import forked_processes
from tests.faults.crash_points import KILL_MARK

T = TypeVar("T")

TIMEOUT = 90.0
TEMPORARY_PREFIXES = ("launch.", "spec.", "message.")
"""Prefixes of files with an environment or a message, which are read once and removed."""
PROGRAMS = (b"from demo_agent.", b"reader_agent.py")
"""Parts of the command lines of agents."""
LOGGED_FAULTS = ("Traceback", "unexpectedly", "level=error")


class CrashStage:
    """A home, a repository, a daemon that is killed at a statement, and the person who continues as if nothing had happened."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.agent_log = Path(box.env["AO_DEMO_LOG"])
        self.plan, self.trace = box.folder / "plan", box.folder / "trace"
        box.env["AO_CRASH_PLAN"] = str(self.plan)
        self.daemon: forked_processes.ForkedProcess | None = None
        self.refused: list[str] = []

    # -- the daemon ----------------------------------------------------------------------------------------------------

    def start(self, plan: Sequence[str]) -> None:
        """Start the first daemon; each is killed where the plan says, daemons after the plan's end are not killed."""
        self.plan.write_text("\n".join(plan))
        self._fork()

    def _fork(self) -> None:
        """Start a daemon and wait until it serves or is dead."""
        self.box.home.daemon_info.unlink(missing_ok=True)
        self.daemon = started = forked_processes.fork_daemon(self.box.env, self.box.folder / "early.log")
        self.box.wait_until(
            lambda: not self.is_running() or self.box.daemon_pid() == started.pid, "the daemon to serve or die", 30
        )

    def is_running(self) -> bool:
        """Return whether the last started daemon runs."""
        return self.daemon is not None and self.daemon.poll() is None

    def statements_and_kills(self) -> tuple[list[str], list[str]]:
        """Return all statements so far, and those at which a daemon was killed."""
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        entries = [line.partition(" ")[::2] for line in lines]
        return [words for first, words in entries if first != KILL_MARK], [
            words for first, words in entries if first == KILL_MARK
        ]

    def end(self) -> None:
        """Stop the daemon with SIGTERM if it runs; it may be killed meanwhile."""
        if self.daemon is not None and self.is_running():
            os.kill(self.daemon.pid, signal.SIGTERM)
            self.box.wait_until(lambda: not self.is_running(), "the daemon to end", 60)

    def close(self) -> None:
        """Kill the daemon that serves."""
        own = self.daemon.pid if self.daemon is not None and self.is_running() else None
        for pid in {own, self.box.daemon_pid()}:
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.box.wait_until(lambda: not self.is_running(), "the daemon to end")
        self.box.home.daemon_info.unlink(missing_ok=True)

    # -- the person ----------------------------------------------------------------------------------------------------

    def ao(self, *argv: str) -> str:
        """Run a command and return its output; failures are recorded in `refused`."""
        completed = forked_processes.fork_command(argv, self.box.env, self.box.repo, self.box.folder)
        if completed.code:
            self.refused.append(f"ao {' '.join(argv)}: exit {completed.code}: {completed.err.strip()}")
        return completed.out

    def ask(self, path: str) -> Any:
        """Send a GET request, starting the daemon again if it is dead."""
        end = time.monotonic() + TIMEOUT
        while True:
            pid = self.box.daemon_pid()
            if not self.is_running() and (pid is None or not is_process_running(pid)):
                self._fork()
            try:
                return self.box.request("GET", path)
            except Unreachable:  # it is dying, or the next one is starting
                if time.monotonic() > end:
                    raise TimeoutError(f"no daemon answers within {TIMEOUT:g} s") from None
                time.sleep(0.05)

    def session(self, name: str) -> dict[str, Any]:
        session: dict[str, Any] = self.ask(f"/api/sessions/{name}")
        return session

    def messages(self, name: str) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.ask(f"/api/sessions/{name}/messages")["messages"]
        return messages

    def wait_until(self, condition: Callable[[], T], what: str) -> T:
        """Poll until the condition is true and return its value; raise `TimeoutError`."""
        end = time.monotonic() + TIMEOUT
        while True:
            with contextlib.suppress(AoError):
                if value := condition():
                    return value
            if time.monotonic() > end:
                states = [
                    (session["id"], session["status"], session["why"])
                    for session in self.ask("/api/sessions?all=1")["sessions"]
                ]
                raise TimeoutError(f"waited {TIMEOUT:g} s in vain for {what}; the sessions: {states}")
            time.sleep(0.05)

    # -- evidence ------------------------------------------------------------------------------------------------------

    def log(self, event: str) -> list[dict[str, Any]]:
        """Return the records of one event in the agents' log."""
        lines = self.agent_log.read_text(errors="replace").splitlines() if self.agent_log.exists() else []
        return [entry for line in lines if (entry := json.loads(line))["event"] == event]

    def delivered_messages(self) -> list[str]:
        """Return the messages that reached an agent, in order."""
        return [entry["text"] for entry in self.log("message")]

    def agents(self) -> dict[str, list[int]]:
        """Return the pids of live agents by session, from /proc."""
        pids_by_session: dict[str, list[int]] = {}
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
                    variable = next(v for v in environ if v.startswith(b"AO_SESSION="))
                    pids_by_session.setdefault(variable.partition(b"=")[2].decode(), []).append(int(entry.name))
        return pids_by_session

    def problems(self) -> list[str]:
        """Return the problems that are independent of the scenario."""
        wrong = list(self.refused)
        agents = self.agents()
        sessions = self.ask("/api/sessions?all=1")["sessions"]
        pids_by_session = {each["id"]: each["pid"] for each in sessions}
        for session in pids_by_session.keys() | agents.keys():
            pids, pid = agents.get(session, []), pids_by_session.get(session)
            if pids != ([] if pid is None else [pid]):
                wrong.append(f"{session}: agents {pids} live, {pid} is shown")
        events = [each for page in self.event_pages() for each in page]
        if [each["seq"] for each in events] != list(range(1, len(events) + 1)):
            wrong.append("the event log has gaps")
        twice = [key for key, count in Counter(each["key"] for each in events).items() if count > 1]
        wrong += [f"event {key} is in the log twice" for key in twice]
        text = self.box.home.log.read_text(errors="replace") if self.box.home.log.exists() else ""
        wrong += [
            f"the daemon's log: {line}" for line in text.splitlines() if any(word in line for word in LOGGED_FAULTS)
        ]
        changed = self.box.git("status", "--porcelain", "--untracked-files=no")
        wrong += [f"the user's checkout is changed: {changed}"] if changed else []
        expected = {each["workspacePath"] for each in sessions if each["workspacePath"]} | {str(self.box.repo)}
        listed = self.box.git("worktree", "list", "--porcelain").splitlines()
        worktrees = {line.removeprefix("worktree ") for line in listed if line.startswith("worktree ")}
        wrong += [f"the worktrees are {sorted(worktrees)}, not {sorted(expected)}"] * (worktrees != expected)
        links = [path for path in self.box.repo.glob(".worktrees/*") if not path.exists()]
        wrong += [f"links to nowhere are left behind: {links}"] * bool(links)
        locks = [str(path) for path in (self.box.repo / ".git").rglob("*.lock")]
        wrong += [f"locks are left behind: {locks}"] * bool(locks)
        litter = [
            path.name for path in self.box.home.path.glob("sessions/*/*") if path.name.startswith(TEMPORARY_PREFIXES)
        ]
        return wrong + [f"files with secrets or messages are left behind: {litter}"] * bool(litter)

    def event_pages(self) -> Any:
        """Yield all events in pages."""
        last = 0
        while page := self.ask(f"/api/events?after={last}&limit=1000")["events"]:
            yield page
            last = page[-1]["seq"]

    def delivery_problems(self, session: str, expected: list[str], starts: tuple[int, int] = (1, 0)) -> list[str]:
        """Return the differences from the expected messages, starts and resumes of an agent."""
        wrong = []
        if self.delivered_messages() != expected:
            wrong.append(f"{session} heard {self.delivered_messages()}, not {expected}")
        start_counts = Counter(bool(entry["resume"]) for entry in self.log("start"))
        if (start_counts[False], start_counts[True]) != starts:
            wrong.append(
                f"{session} was started {start_counts[False]} times and resumed {start_counts[True]} times, not {starts}"
            )
        undelivered = [
            message for message in self.messages(session) if message["state"] not in ("delivered", "acknowledged")
        ]
        return wrong + [
            f"{session}: message {message['messageId']} is {message['state']}: {message['reason']}"
            for message in undelivered
        ]
