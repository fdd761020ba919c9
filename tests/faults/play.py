"""A world: a home, a repository, a daemon, agents, and the people who use them. All randomness comes from the seed."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, Unreachable
from agent_orchestrator.testing.sandbox import Sandbox
from tests.faults import daemons, evidence
from tests.faults.disk import PrivateDisk
from tests.faults.forge_server import REPO, ForgeServer
from tests.faults.user import RepositoryUser

SECRET = "s3cret"
TASKS = (
    "[[write: {mark}.txt|draft {mark}]]",
    "[[write: {mark}.txt|work {mark}]] [[commit: commit {mark}]]",
    "[[progress: 1/2 half]] [[sleep: 0.2]] [[write: {mark}.txt|slow {mark}]] [[commit: commit {mark}]]",
    "[[write: {mark}.txt|draft {mark}]] [[ask: Which one of {mark}?]] [[commit: commit {mark}]]",
    "[[write: {mark}.txt|draft {mark}]] [[block: may I do {mark}?]] [[commit: commit {mark}]]",
    "[[sleep: 0.3]] [[write: {mark}.txt|late {mark}]]",
    "[[write: {mark}.txt|work {mark}]] [[commit: commit {mark}]] [[write: {mark}-b.txt|more {mark}]]",
)
CHANGES = (
    "Change {mark}\n[[write: {mark}.txt|work {mark}]] [[commit: commit {mark}]] [[done: {mark}]]",
    "Change {mark}\n[[write: {mark}.txt|work {mark}]] [[commit: commit {mark}]] [[done: {mark}]]",
    "Break {mark}\n[[write: {mark}.txt|work {mark}]] [[write: broken.txt|{mark}]] [[commit: commit {mark}]] [[done: {mark}]]",
)
MESSAGES = (
    "[[say: heard {mark}]]",
    "[[say: heard {mark}]]",
    "[[write: {mark}.txt|told {mark}]]",
    "[[write: {mark}.txt|told {mark}]] [[commit: commit {mark}]]",
)
PLAIN_CONFIG = "defaults: {{agent: demo, runtime: {runtime}}}\n"
LOCAL_CONFIG = (
    PLAIN_CONFIG
    + """ci: {{command: 'git rev-parse "HEAD^{{tree}}" >> "{checked}"; test ! -e broken.txt'}}
reactions:
  ci-failed: {{message: "[[sh: rm -f broken.txt]] [[commit: mend]] [[done: mended]]", backoff: 1s..1s}}
  approved-and-green: {{auto: true}}
"""
)
GITHUB_CONFIG = (
    PLAIN_CONFIG
    + """projects:
  app:
    path: .
    repo: acme/app
    scm: {{plugin: github, apiUrl: "{url}", token: "{token}", poll: 1s, webhook: {{secret: {secret}}}}}
    tracker: local
reactions:
  ci-failed: {{message: "[[sh: rm -f broken.txt]] [[commit: mend]] [[done: mended]]", backoff: 1s..1s}}
  approved-and-green: {{auto: true}}
"""
)
TIMER_TRIGGERS = ("silence", "escalate")
"""Kinds of effects that wait only for time to pass."""
ACTIONS_BY_STYLE = {
    "plain": ("new", "new", "new", "send", "send", "send", "stop", "restore", "answer", "answer", "second"),
    "local": (
        "change",
        "change",
        "new",
        "send",
        "send",
        "stop",
        "restore",
        "answer",
        "approve",
        "approve",
        "merge",
        "issue",
    ),
    "github": ("change", "change", "send", "send", "stop", "restore", "approve", "approve", "discuss", "merge"),
}


@dataclass(slots=True)
class AcceptedRequests:
    """What the daemon has accepted, as recorded by the people."""

    sessions: dict[str, str] = field(default_factory=dict)
    """Session → the mark of its first turn."""
    messages: dict[str, str] = field(default_factory=dict)
    """Message → session."""
    comments: dict[str, str] = field(default_factory=dict)
    """Comment of a person at the forge → session."""
    issues: set[int] = field(default_factory=set)
    restored: set[str] = field(default_factory=set)
    """Sessions that a person restored or tried to restore."""
    refused: int = 0


class FaultWorld:
    """A home, a repository and a daemon that live through several rounds."""

    def __init__(self, folder: Path, style: str, runtime: str, *, fresh: bool, seed: str, disk: bool) -> None:
        self.folder = folder
        self.style = style
        self.runtime = runtime
        self.random = random.Random(seed)
        self.accepted = AcceptedRequests()
        self.clock = daemons.OffsetClock(folder / "clock")
        self.launcher = daemons.Launcher(folder, fresh=fresh)
        self.disk = PrivateDisk(folder / "disk") if disk else None
        self.truth, self.checked = folder / "truth.jsonl", folder / "checked"
        env = {"AO_DEMO_LOG": str(self.truth), daemons.CLOCK_VARIABLE: str(self.clock.path)}
        (folder / "disk").mkdir(exist_ok=True)
        self.box = Sandbox(folder / "disk", runtime, env)
        self.box.__enter__()
        self.forge = ForgeServer() if style == "github" else None
        self.port = _free_port(self.random)
        self._prepare()
        self.user = RepositoryUser(self.box)
        self._mark = 0
        self._log_read = 0
        self.events: list[tuple[int, str]] = []
        """The event log at the last check."""
        self.merge_requested: set[int] = set()
        """Pull requests that a person asked to merge."""
        self.refusals: list[str] = []
        """The texts of refused requests."""

    def begin(self) -> None:
        """Start the daemon."""
        self.ensure_daemon()

    def _prepare(self) -> None:
        box, forge = self.box, self.forge
        if forge is None:
            text = {"plain": PLAIN_CONFIG, "local": LOCAL_CONFIG}[self.style]
            box.repository(config=text.format(runtime=self.runtime, checked=self.checked))
            return
        url, address, token = forge.ask("addresses")
        box.repository(config=GITHUB_CONFIG.format(runtime=self.runtime, url=url, token=token, secret=SECRET))
        login = base64.b64encode(f"x:{token}".encode()).decode()
        box.git("remote", "add", "origin", address)
        box.git("-c", f"http.extraHeader=Authorization: Basic {login}", "fetch", "-q", "origin")
        box.git("reset", "-q", "--hard", "origin/main")
        forge.ask("check_pushes")
        forge.ask("add_webhook", f"http://127.0.0.1:{self.port}/api/webhooks/github", SECRET)

    def close(self) -> None:
        """End all processes and unmount the disk."""
        if self.disk is not None:
            self.disk.restore()
        self.launcher.close()
        self.box.clean_up()
        if self.forge is not None:
            self.forge.close()
        if self.disk is not None:
            self.disk.close()

    # -- use -----------------------------------------------------------------------------------------------------------

    def plan(self) -> list[tuple[str, float, float]]:
        """Return the actions of a round, each with two random numbers for choices."""
        uses = [self.random.choice(ACTIONS_BY_STYLE[self.style]) for _ in range(self.random.randint(2, 4))]
        if self.random.random() < 0.5:
            uses[0] = ACTIONS_BY_STYLE[self.style][0]
        return [(what, self.random.random(), self.random.random()) for what in uses]

    def run_actions(self, plan: Sequence[tuple[str, float, float]], done: list[str]) -> threading.Thread:
        """Run the actions in a thread and return it; `done` gets a line per action."""

        def act() -> None:
            for what, choice, other in plan:
                try:
                    done.append(getattr(self, f"_{what}")(choice, other))
                except AoError as error:
                    self.accepted.refused += 1
                    self.refusals.append(str(error))
                    done.append(f"{what}: {error}")
                except RuntimeError as error:  # the people at the forge
                    done.append(f"{what}: {error}")

        thread = threading.Thread(target=act)
        thread.start()
        return thread

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 60.0) -> Any:
        """Send a request as the command line does: start the daemon if needed, and repeat with the same key if it dies."""
        with DaemonClient(self.box.home.path) as client:
            client._spawn = self._spawn  # type: ignore[assignment, method-assign]
            headers = {"X-AO-Cwd": quote(str(self.box.repo)), "Idempotency-Key": os.urandom(16).hex()}
            return client.request(method, path, body, headers=headers, timeout=timeout).json()

    def _spawn(self, _arguments: Sequence[str], port: int | None = None) -> daemons.StartedDaemon:
        home = self.box.home
        try:
            home.path.mkdir(mode=0o700, exist_ok=True)
            with home.log.open("ab"):
                pass
        except OSError as error:
            raise Unreachable(f"the daemon could not be started: {error}") from None
        return self.launcher.launch(["--port", str(port or self.port)], self.box.env, home.log)

    def mark(self) -> str:
        self._mark += 1
        return f"mark-{self._mark}"

    def next_marks(self, number: int) -> list[str]:
        """Return the marks of the next sessions."""
        return [f"mark-{self._mark + step}" for step in range(1, number + 1)]

    def _make(self, scripts: Sequence[str], choice: float) -> str:
        mark = self.mark()
        script = scripts[int(choice * len(scripts))].format(mark=mark)
        created = self.ask("POST", "/api/sessions", {"prompt": script, "name": mark})
        self.accepted.sessions[created["id"]] = mark
        return f"new {created['id']}: {script!r}"

    def _new(self, choice: float, _other: float) -> str:
        return self._make(TASKS, choice)

    def _change(self, choice: float, _other: float) -> str:
        return self._make(CHANGES, choice)

    def _pick(self, choice: float) -> str:
        sessions = list(self.accepted.sessions)
        if not sessions:
            raise AoError("no session yet")
        return sessions[-1 - int(choice * min(len(sessions), 5))]

    def _send(self, choice: float, other: float) -> str:
        session, mark = self._pick(choice), self.mark()
        text = MESSAGES[int(other * len(MESSAGES))].format(mark=mark)
        sent = self.ask("POST", f"/api/sessions/{session}/message", {"content": text})
        self.accepted.messages[sent["messageId"]] = session
        return f"send {session} {sent['messageId']}: {text!r}"

    def _stop(self, choice: float, _other: float) -> str:
        session = self._pick(choice)
        self.ask("DELETE", f"/api/sessions/{session}")
        return f"stop {session}"

    def _restore(self, choice: float, _other: float) -> str:
        session = self._pick(choice)
        self.accepted.restored.add(session)  # even if the answer is lost
        self.ask("POST", f"/api/sessions/{session}/restore", {})
        return f"restore {session}"

    def _answer(self, choice: float, other: float) -> str:
        asking = [session for session in self.box.sessions() if session["status"] in ("needs_input", "blocked")]
        if not asking:
            return "answer: nobody asks"
        session = asking[int(choice * len(asking))]
        if session["status"] == "blocked":
            body = {"decision": "allow" if other < 0.6 else "deny"}
        else:
            body = {"text": f"[[say: the {self.mark()} one]]"}
        self.ask("POST", f"/api/sessions/{session['id']}/answer", body)
        return f"answer {session['id']} {body}"

    def _approve(self, choice: float, _other: float) -> str:
        waiting = [
            session for session in self.box.sessions() if session["pr"] and session["pr"]["state"] in ("open", "draft")
        ]
        if not waiting:
            return "approve: nothing to approve"
        session = waiting[int(choice * len(waiting))]
        if self.forge is not None:
            self.forge.ask("approve", session["pr"]["number"])
        else:
            self.ask("POST", f"/api/sessions/{session['id']}/review", {"verdict": "approve"})
        return f"approve {session['id']}"

    def _discuss(self, choice: float, _other: float) -> str:
        assert self.forge is not None
        waiting = [session for session in self.box.sessions() if session["pr"] and session["pr"]["state"] == "open"]
        if not waiting:
            return "discuss: nothing to talk about"
        session, mark = waiting[int(choice * len(waiting))], self.mark()
        file = self.accepted.sessions.get(session["id"], "README") + ".txt"
        self.forge.ask("discuss", session["pr"]["number"], file, f"Why {mark}? [[say: because {mark}]]")
        self.accepted.comments[mark] = session["id"]
        return f"discuss {session['id']} {mark}"

    def _merge(self, choice: float, _other: float) -> str:
        session = self._pick(choice)
        if pull := self.box.session(session)["pr"]:
            self.merge_requested.add(pull["number"])
        self.ask("POST", f"/api/sessions/{session}/merge", {})
        return f"merge {session}"

    def _issue(self, choice: float, _other: float) -> str:
        if self.accepted.issues and choice < 0.6:
            number = sorted(self.accepted.issues)[int(choice / 0.6 * len(self.accepted.issues))]
            self.ask("POST", f"/api/issues/{number}/comments", {"body": f"about {self.mark()}"})
            return f"comment on issue {number}"
        created = self.ask("POST", "/api/issues", {"title": f"Issue {self.mark()}", "body": "[[say: hello]]"})
        self.accepted.issues.add(created["number"])
        return f"issue {created['number']}"

    def _second(self, _choice: float, _other: float) -> str:
        """Start a second daemon, which must detect the first one."""
        if not self.launcher.live():
            return "second: there is none to be the second to"
        started = self._spawn((), _free_port(self.random))  # another port: only the first daemon's lock prevents it
        end = time.monotonic() + 15
        while started.poll() is None and time.monotonic() < end and len(self.launcher.live()) > 1:
            time.sleep(0.02)
        return f"second daemon: {started.returncode}"

    # -- log -----------------------------------------------------------------------------------------------------------

    def log(self) -> str:
        """Return the daemon's log."""
        path = self.box.home.log
        return path.read_text(errors="replace") if path.exists() else ""

    def new_log_text(self) -> str:
        """Return the part of the log since the last round."""
        return self.log()[self._log_read :]

    def mark_log_read(self) -> None:
        """Mark the current log as read."""
        self._log_read = len(self.log())

    def recent_failures(self) -> list[str]:
        """Return the data of recent events about failures."""
        events = self.box.request("GET", "/api/events?limit=200")["events"][-200:]
        return [
            str(event["data"])
            for event in events
            if event["type"] in ("session-failed", "effect-failed", "effect-delayed")
        ]

    def contains(self, commit: str, tip: str) -> bool:
        """Return whether a commit is in the history of `tip`."""
        return commit == tip or evidence.git(self, "merge-base", commit, tip).strip() == commit

    # -- rest ----------------------------------------------------------------------------------------------------------

    def wait_until_settled(self, within: float = 60.0) -> None:
        """Start the daemon if needed and wait until nothing changes; raise `TimeoutError`."""
        self.ensure_daemon()  # slow on a busy machine
        end = time.monotonic() + within
        before: Any = None
        unchanged = 0
        skipped_at = 0.0
        while True:
            self.ensure_daemon()
            sessions = self.box.sessions()
            waiting = evidence.pending_rows(self)
            state = (
                [(session["id"], session["status"], session["activity"], session["pid"]) for session in sessions],
                evidence.last_event_time(self),
                sorted(key for key, *_ in waiting),
            )
            moving = [
                session["id"]
                for session in sessions
                if session["status"] in ("queued", "starting", "working", "merging", "ci_running")
            ]
            blocked = [session["id"] for session in sessions if session["status"] == "blocked"]  # waits for a person
            soon = [
                row
                for row in waiting
                if row[3] < 400.0 and row[1] not in TIMER_TRIGGERS and not (row[1] == "deliver" and row[2] in blocked)
            ]
            unchanged = unchanged + 1 if state == before else 0
            before = state
            if unchanged >= 2 and not moving and not soon:
                return
            if time.monotonic() > end:
                unfinished = [
                    (session["id"], session["status"], session["why"])
                    for session in sessions
                    if session["id"] in moving
                ]
                raise TimeoutError(f"it did not come to rest: moving {unfinished}, pending {soon}")
            longest_wait = min((row[3] for row in soon), default=0.0)
            if unchanged >= 4 and longest_wait > 2.0 and not moving and skipped_at != state[1]:
                skipped_at = state[1]
                lead = evidence.daemon_time(self) - self.clock.now()
                self.clock.set_offset(self.clock.offset + lead + longest_wait)  # do not wait for a long pause:
                self.restart()  # the next daemon finds it over
            time.sleep(0.05 if unchanged < 2 else 0.1)

    def restart(self) -> None:
        """Stop the daemon with SIGTERM and start the next one."""
        for pid in self.launcher.live():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for daemon in self.launcher.started:
            daemon.wait(40)
        self.ensure_daemon()

    def ensure_daemon(self) -> None:
        """Make sure that a daemon runs; on a busy machine its start may need several attempts."""
        for _ in range(3):
            try:
                self.ask("GET", "/healthz")
                return
            except Unreachable as error:
                if "did not answer" not in error.text:
                    raise
        self.ask("GET", "/healthz")


def _free_port(chance: random.Random) -> int:
    """Return a free port below the range of ephemeral ports."""
    while True:
        port = 15000 + os.getpid() % 500 * 32 + chance.randrange(32)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


__all__ = ["REPO", "AcceptedRequests", "FaultWorld"]
