"""A session at a forge that misbehaves: what tests of faults through a real daemon share."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import TIMEOUT, Json, rule_messages, wait_for_session

Forge = GitHubServer | GitLabServer
REPO = "acme/app"
MADE = "[[write: b.txt|one]] [[commit: one]] [[done: made]]"
GIT = r"^/acme/"
"""The paths of Git's requests."""
NOT_GIT = r"^/(?!acme/)"
"""Those of the API's."""

CONFIG = """
defaults: {{agent: demo, runtime: process}}
projects:
  app:
    path: .
    repo: acme/app
    scm: {{plugin: {kind}, apiUrl: "{url}", token: "{token}", poll: 1s, webhook: {{secret: s3cret}}}}
    tracker: {tracker}
"""


class Play:
    """A daemon whose project is at a test forge, and what a person sees of it."""

    def __init__(self, box: Sandbox, forge: Forge, kind: str, token: str) -> None:
        self.box = box
        self.forge = forge
        self.kind = kind
        self.token = token

    @property
    def address(self) -> str:
        return f"{json.loads(self.box.home.info.read_text())['url']}/api/webhooks/{self.kind}"

    def configure(self, token: str, tracker: str = "local") -> None:
        text = CONFIG.format(kind=self.kind, url=self.forge.url, token=token, tracker=tracker)
        (self.box.repo / "agent-orchestrator.yaml").write_text(text)

    def git(self, *argv: str) -> None:
        """Git as a person with his own token uses it."""
        login = base64.b64encode(f"x:{self.forge.token('dev')}".encode()).decode()
        self.box.git("-c", f"http.extraHeader=Authorization: Basic {login}", *argv)

    def begin(self, script: str = MADE, name: str = "one") -> None:
        self.box.request("POST", "/api/sessions", {"name": name, "title": f"Work on {name}", "prompt": script})

    def made(self) -> Any:
        """The pull request of a new session, once it is ready and was read."""
        self.begin()
        return self.opened()

    def opened(self, state: str = "open") -> Any:
        ready = wait_for_session(
            self.box, "one", lambda now: now["pr"] and now["pr"]["state"] == state, "a pull request"
        )
        return self.forge.find_pull(REPO, ready["pr"]["number"])

    def said(self, pull: Any, text: str) -> None:
        """Somebody comments on a line."""
        self.forge.thread(pull, "b.txt", 1, text, by="rev")

    def heard(self, *texts: str) -> None:
        """The agent was sent each of these, once."""
        self.box.until(lambda: all(text in "".join(self.sent()) for text in texts), f"{texts} to be sent", 2 * TIMEOUT)
        for text in texts:
            assert "".join(self.sent()).count(text) == 1, self.sent()

    def sent(self) -> list[str]:
        return rule_messages(self.box, "one")

    def lands(self, pull: Any) -> None:
        """It passes, is approved and lands, as it would without any fault."""
        checked: set[str] = set()

        def passed() -> bool:  # the agent may still commit what came of the last message
            if pull.head_sha not in checked:
                checked.add(pull.head_sha)
                self.forge.check(REPO, pull.head_sha, "tests", "success")
            now = self.box.session("one")
            return now["status"] == "mergeable" and now["head"] == pull.head_sha and not self._pending()

        self.forge.review(pull, "APPROVE", by="rev")
        self.box.until(passed, "one to be mergeable", TIMEOUT)
        self.box.ao("merge", "one")
        assert pull.merged

    def _pending(self) -> bool:
        sent = self.box.request("GET", "/api/sessions/one/messages")["messages"]
        return any(one["state"] != "acknowledged" for one in sent)

    def doctor(self, words: str) -> Json:
        """The finding of the doctor with these words, as soon as there is one."""

        def found() -> Json:
            checks = self.box.request("GET", "/api/doctor")["checks"]
            return next((one for one in checks if words in one["detail"] and one["state"] != "ok"), {})

        return self.box.until(found, f"the doctor to say {words!r}", TIMEOUT)

    def delayed(self, kind: str, words: str) -> Json:
        """The session's timeline says why something waits, and so does `ao why`."""

        def found() -> Json:
            told = [one["data"] for one in self.box.events("one") if one["type"] == "effect-delayed"]
            return next(
                (one for one in told if one["intent"] == kind and words in f"{one['error']}: {one['remedy']}"), {}
            )

        told = self.box.until(found, f"{kind} to be delayed for {words!r}", TIMEOUT)
        assert any(line.startswith(f"Effect {kind}: pending, ") for line in self.box.json("why", "one")["lines"])
        return told

    def asked(self, seconds: float, *, git: bool = False) -> int:
        """How often the forge is asked within so many seconds."""
        before = self._count(git)
        time.sleep(seconds)
        return self._count(git) - before

    def _count(self, git: bool) -> int:
        return sum(one.kind != "git" or git for one in list(self.forge.ledger.requests))

    def log(self) -> str:
        return self.box.home.log.read_text(errors="replace")

    def memory(self, what: str = "VmRSS") -> float:
        """Megabytes of the daemon: what it has (`VmRSS`), or the most that it ever had (`VmHWM`)."""
        text = Path(f"/proc/{self.box.daemon_pid()}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(what)) / 1024


@contextlib.contextmanager
def played(folder: Path, forge: Forge, kind: str, way: str = "polling", token: str = "") -> Iterator[Play]:
    """A clone of a repository at the forge, and its daemon, which in the end has logged no fault of its own."""
    forge.repository(REPO, {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
    token = token or forge.token("dev")
    with Sandbox(folder, "process") as box:
        play = Play(box, forge, kind, token)
        box.repository(config="")
        play.configure(token)
        box.git("remote", "add", "origin", forge.git_url(REPO))
        play.git("fetch", "-q", "origin")
        box.git("reset", "-q", "--hard", "origin/main")
        box.start()
        box.ao("add-project", str(box.repo))
        if way == "webhooks":
            forge.hook(REPO, play.address, "s3cret")
        yield play
        written = play.log()
        assert "Traceback" not in written and '"level": "error"' not in written and "[error" not in written, written
