"""One world: a home, a repository, a daemon, agents, and the people who use them. Everything random comes from the seed."""

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

from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError, Unreachable
from agent_orchestrator.testing.sandbox import Sandbox
from tests.faults import daemons, evidence
from tests.faults.disk import Disk
from tests.faults.forge_server import REPO, ForgeServer
from tests.faults.user import User

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
WORDS = (
    "[[say: heard {mark}]]",
    "[[say: heard {mark}]]",
    "[[write: {mark}.txt|told {mark}]]",
    "[[write: {mark}.txt|told {mark}]] [[commit: commit {mark}]]",
)
PLAIN = "defaults: {{agent: demo, runtime: {runtime}}}\n"
LOCAL = (
    PLAIN
    + """ci: {{command: 'git rev-parse "HEAD^{{tree}}" >> "{checked}"; test ! -e broken.txt'}}
reactions:
  ci-failed: {{message: "[[sh: rm -f broken.txt]] [[commit: mend]] [[done: mended]]", backoff: 1s..1s}}
  approved-and-green: {{auto: true}}
"""
)
GITHUB = (
    PLAIN
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
TIMERS = ("silence", "escalate")
"""What waits for time to pass, and not for anything to become possible."""
USES = {
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
class Known:
    """What the players themselves know to have been accepted."""

    sessions: dict[str, str] = field(default_factory=dict)
    """Session → the mark of its first turn."""
    messages: dict[str, str] = field(default_factory=dict)
    """Message → session."""
    comments: dict[str, str] = field(default_factory=dict)
    """What a person said at the forge about a session's change → that session."""
    issues: set[int] = field(default_factory=set)
    restored: set[str] = field(default_factory=set)
    """Sessions that a person restored, or tried to."""
    refused: int = 0


class World:
    """What one round after the other happens to."""

    def __init__(self, folder: Path, style: str, runtime: str, *, fresh: bool, seed: str, disk: bool) -> None:
        self.folder = folder
        self.style = style
        self.runtime = runtime
        self.random = random.Random(seed)
        self.known = Known()
        self.clock = daemons.Clock(folder / "clock")
        self.launcher = daemons.Launcher(folder, fresh=fresh)
        self.disk = Disk(folder / "disk") if disk else None
        self.truth, self.checked = folder / "truth.jsonl", folder / "checked"
        env = {"AO_DEMO_LOG": str(self.truth), daemons.CLOCK: str(self.clock.path)}
        (folder / "disk").mkdir(exist_ok=True)
        self.box = Sandbox(folder / "disk", runtime, env)
        self.box.__enter__()
        self.forge = ForgeServer() if style == "github" else None
        self.port = _free_port(self.random)
        self._prepare()
        self.user = User(self.box)
        self._mark = 0
        self._log_read = 0
        self.events: list[tuple[int, str]] = []
        """The event log as it was when everything was last compared."""
        self.asked: set[int] = set()
        """Pull requests that a person let land by his word."""
        self.said: list[str] = []
        """What was refused, and why."""

    def begin(self) -> None:
        """Start its daemon."""
        self.wake()

    def _prepare(self) -> None:
        box, forge = self.box, self.forge
        if forge is None:
            text = {"plain": PLAIN, "local": LOCAL}[self.style]
            box.repository(config=text.format(runtime=self.runtime, checked=self.checked))
            return
        url, address, token = forge.ask("place")
        box.repository(config=GITHUB.format(runtime=self.runtime, url=url, token=token, secret=SECRET))
        login = base64.b64encode(f"x:{token}".encode()).decode()
        box.git("remote", "add", "origin", address)
        box.git("-c", f"http.extraHeader=Authorization: Basic {login}", "fetch", "-q", "origin")
        box.git("reset", "-q", "--hard", "origin/main")
        forge.ask("judge_pushes")
        forge.ask("tell", f"http://127.0.0.1:{self.port}/api/webhooks/github", SECRET)

    def close(self) -> None:
        """Nothing of it is left."""
        if self.disk is not None:
            self.disk.mend()
        self.launcher.close()
        self.box.clean_up()
        if self.forge is not None:
            self.forge.close()
        if self.disk is not None:
            self.disk.close()

    # -- use -----------------------------------------------------------------------------------------------------------

    def plan(self) -> list[tuple[str, float, float]]:
        """What is done in a round: what, and two numbers that choose."""
        uses = [self.random.choice(USES[self.style]) for _ in range(self.random.randint(2, 4))]
        if self.random.random() < 0.5:
            uses[0] = USES[self.style][0]
        return [(what, self.random.random(), self.random.random()) for what in uses]

    def use(self, plan: Sequence[tuple[str, float, float]], done: list[str]) -> threading.Thread:
        """Do that, beside whatever else happens."""

        def act() -> None:
            for what, choice, other in plan:
                try:
                    done.append(getattr(self, f"_{what}")(choice, other))
                except AoError as error:
                    self.known.refused += 1
                    self.said.append(str(error))
                    done.append(f"{what}: {error}")
                except RuntimeError as error:  # the people at the forge
                    done.append(f"{what}: {error}")

        thread = threading.Thread(target=act)
        thread.start()
        return thread

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 60.0) -> Any:
        """As the command line does: starts the daemon, and repeats with the same key when it dies on the request."""
        with Client(self.box.home.path) as client:
            client._spawn = self._spawn  # type: ignore[assignment, method-assign]
            headers = {"X-AO-Cwd": quote(str(self.box.repo)), "Idempotency-Key": os.urandom(16).hex()}
            return client.request(method, path, body, headers=headers, timeout=timeout).json()

    def _spawn(self, _arguments: Sequence[str], port: int | None = None) -> daemons.Started:
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
        """Those that the next sessions will have."""
        return [f"mark-{self._mark + more}" for more in range(1, number + 1)]

    def _make(self, scripts: Sequence[str], choice: float) -> str:
        mark = self.mark()
        script = scripts[int(choice * len(scripts))].format(mark=mark)
        made = self.ask("POST", "/api/sessions", {"prompt": script, "name": mark})
        self.known.sessions[made["id"]] = mark
        return f"new {made['id']}: {script!r}"

    def _new(self, choice: float, _other: float) -> str:
        return self._make(TASKS, choice)

    def _change(self, choice: float, _other: float) -> str:
        return self._make(CHANGES, choice)

    def _pick(self, choice: float) -> str:
        sessions = list(self.known.sessions)
        if not sessions:
            raise AoError("no session yet")
        return sessions[-1 - int(choice * min(len(sessions), 5))]

    def _send(self, choice: float, other: float) -> str:
        session, mark = self._pick(choice), self.mark()
        text = WORDS[int(other * len(WORDS))].format(mark=mark)
        sent = self.ask("POST", f"/api/sessions/{session}/message", {"content": text})
        self.known.messages[sent["messageId"]] = session
        return f"send {session} {sent['messageId']}: {text!r}"

    def _stop(self, choice: float, _other: float) -> str:
        session = self._pick(choice)
        self.ask("DELETE", f"/api/sessions/{session}")
        return f"stop {session}"

    def _restore(self, choice: float, _other: float) -> str:
        session = self._pick(choice)
        self.known.restored.add(session)  # also if the answer is lost
        self.ask("POST", f"/api/sessions/{session}/restore", {})
        return f"restore {session}"

    def _answer(self, choice: float, other: float) -> str:
        open_ones = [one for one in self.box.sessions() if one["status"] in ("needs_input", "blocked")]
        if not open_ones:
            return "answer: nobody asks"
        one = open_ones[int(choice * len(open_ones))]
        if one["status"] == "blocked":
            body = {"decision": "allow" if other < 0.6 else "deny"}
        else:
            body = {"text": f"[[say: the {self.mark()} one]]"}
        self.ask("POST", f"/api/sessions/{one['id']}/answer", body)
        return f"answer {one['id']} {body}"

    def _approve(self, choice: float, _other: float) -> str:
        waiting = [one for one in self.box.sessions() if one["pr"] and one["pr"]["state"] in ("open", "draft")]
        if not waiting:
            return "approve: nothing to approve"
        one = waiting[int(choice * len(waiting))]
        if self.forge is not None:
            self.forge.ask("approve", one["pr"]["number"])
        else:
            self.ask("POST", f"/api/sessions/{one['id']}/review", {"verdict": "approve"})
        return f"approve {one['id']}"

    def _discuss(self, choice: float, _other: float) -> str:
        assert self.forge is not None
        waiting = [one for one in self.box.sessions() if one["pr"] and one["pr"]["state"] == "open"]
        if not waiting:
            return "discuss: nothing to talk about"
        one, mark = waiting[int(choice * len(waiting))], self.mark()
        file = self.known.sessions.get(one["id"], "README") + ".txt"
        self.forge.ask("discuss", one["pr"]["number"], file, f"Why {mark}? [[say: because {mark}]]")
        self.known.comments[mark] = one["id"]
        return f"discuss {one['id']} {mark}"

    def _merge(self, choice: float, _other: float) -> str:
        session = self._pick(choice)
        if pull := self.box.session(session)["pr"]:
            self.asked.add(pull["number"])
        self.ask("POST", f"/api/sessions/{session}/merge", {})
        return f"merge {session}"

    def _issue(self, choice: float, _other: float) -> str:
        if self.known.issues and choice < 0.6:
            number = sorted(self.known.issues)[int(choice / 0.6 * len(self.known.issues))]
            self.ask("POST", f"/api/issues/{number}/comments", {"body": f"about {self.mark()}"})
            return f"comment on issue {number}"
        made = self.ask("POST", "/api/issues", {"title": f"Issue {self.mark()}", "body": "[[say: hello]]"})
        self.known.issues.add(made["number"])
        return f"issue {made['number']}"

    def _second(self, _choice: float, _other: float) -> str:
        """Somebody starts another daemon: it must find the first."""
        if not self.launcher.live():
            return "second: there is none to be the second to"
        started = self._spawn((), _free_port(self.random))  # of its own: nothing but the first's lock is in its way
        end = time.monotonic() + 15
        while started.poll() is None and time.monotonic() < end and len(self.launcher.live()) > 1:
            time.sleep(0.02)
        return f"second daemon: {started.returncode}"

    # -- what is known -------------------------------------------------------------------------------------------------

    def log(self) -> str:
        """The daemon's log."""
        path = self.box.home.log
        return path.read_text(errors="replace") if path.exists() else ""

    def news(self) -> str:
        """What is new in it since the last round."""
        return self.log()[self._log_read :]

    def round_is_over(self) -> None:
        """What is in the log now was looked at."""
        self._log_read = len(self.log())

    def reasons(self) -> list[str]:
        """What the newest events say went wrong."""
        found = self.box.request("GET", "/api/events?limit=200")["events"][-200:]
        return [
            str(one["data"]) for one in found if one["type"] in ("session-failed", "effect-failed", "effect-delayed")
        ]

    def contains(self, commit: str, tip: str) -> bool:
        """Is this commit part of that history?"""
        return commit == tip or evidence.git(self, "merge-base", commit, tip).strip() == commit

    # -- rest ----------------------------------------------------------------------------------------------------------

    def settle(self, within: float = 60.0) -> None:
        """Start the daemon if it is dead, and wait until nothing moves any more."""
        self.wake()  # which may take long where many others start programs too
        end = time.monotonic() + within
        before: Any = None
        same = 0
        looked = 0.0
        while True:
            self.wake()
            sessions = self.box.sessions()
            waiting = evidence.pending(self)
            now = (
                [(one["id"], one["status"], one["activity"], one["pid"]) for one in sessions],
                evidence.last_event(self),
                sorted(key for key, *_ in waiting),
            )
            moving = [
                one["id"]
                for one in sessions
                if one["status"] in ("queued", "starting", "working", "merging", "ci_running")
            ]
            blocked = [one["id"] for one in sessions if one["status"] == "blocked"]  # a person's word is waited for
            soon = [
                row
                for row in waiting
                if row[3] < 400.0 and row[1] not in TIMERS and not (row[1] == "deliver" and row[2] in blocked)
            ]
            same = same + 1 if now == before else 0
            before = now
            if same >= 2 and not moving and not soon:
                return
            if time.monotonic() > end:
                rest = [(one["id"], one["status"], one["why"]) for one in sessions if one["id"] in moving]
                raise TimeoutError(f"it did not come to rest: moving {rest}, pending {soon}")
            far = min((row[3] for row in soon), default=0.0)
            if same >= 4 and far > 2.0 and not moving and looked != now[1]:
                looked = now[1]
                ahead = evidence.time_there(self) - self.clock.now()
                self.clock.put(self.clock.offset + ahead + far)  # nobody need wait for a long pause's end:
                self.restart()  # the next daemon sees that it is over
            time.sleep(0.05 if same < 2 else 0.1)

    def restart(self) -> None:
        """End the daemon in good order, and start the next one."""
        for pid in self.launcher.live():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for one in self.launcher.started:
            one.wait(40)
        self.wake()

    def wake(self) -> None:
        """See that a daemon runs; on a busy machine its start may take longer than a person would wait."""
        for _ in range(3):
            try:
                self.ask("GET", "/healthz")
                return
            except Unreachable as error:
                if "did not answer" not in error.text:
                    raise
        self.ask("GET", "/healthz")


def _free_port(chance: random.Random) -> int:
    """One that no connection of anybody's is given by chance."""
    while True:
        port = 15000 + os.getpid() % 500 * 32 + chance.randrange(32)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


__all__ = ["REPO", "Known", "World"]
