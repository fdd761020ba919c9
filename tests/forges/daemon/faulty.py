"""A session at a forge that misbehaves: shared by tests of faults that run a real daemon."""

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
from tests.acceptance.session_states import TIMEOUT, Json, has_finished_turns, rule_messages, wait_for_session

Forge = GitHubServer | GitLabServer
REPO = "acme/app"
SCRIPT = "[[write: b.txt|one]] [[commit: one]] [[done: made]]"
GIT_PATHS = r"^/acme/"
"""The paths of requests by Git."""
API_PATHS = r"^/(?!acme/)"
"""The paths of requests to the API."""

CONFIG = """
defaults: {{agent: demo, runtime: process}}
projects:
  app:
    path: .
    repo: acme/app
    scm: {{plugin: {kind}, apiUrl: "{url}", token: "{token}", poll: 1s, webhook: {{secret: s3cret}}}}
    tracker: {tracker}
"""


class ForgeDaemon:
    """A daemon with a project at a test forge, and what a person can do and see there."""

    def __init__(self, box: Sandbox, forge: Forge, kind: str, token: str) -> None:
        self.box = box
        self.forge = forge
        self.kind = kind
        self.token = token

    @property
    def address(self) -> str:
        return f"{json.loads(self.box.home.daemon_info.read_text())['url']}/api/webhooks/{self.kind}"

    def configure(self, token: str, tracker: str = "local") -> None:
        text = CONFIG.format(kind=self.kind, url=self.forge.url, token=token, tracker=tracker)
        (self.box.repo / "agent-orchestrator.yaml").write_text(text)

    def git(self, *argv: str) -> None:
        """Run Git with a token of the user `dev`."""
        login = base64.b64encode(f"x:{self.forge.token('dev')}".encode()).decode()
        self.box.git("-c", f"http.extraHeader=Authorization: Basic {login}", *argv)

    def start_session(self, script: str = SCRIPT, name: str = "one") -> None:
        self.box.request("POST", "/api/sessions", {"name": name, "title": f"Work on {name}", "prompt": script})

    def new_pull_request(self) -> Any:
        """Start a session and return its pull request once the daemon shows it as open."""
        self.start_session()
        return self.open_pull_request()

    def open_pull_request(self, state: str = "open") -> Any:
        ready = wait_for_session(
            self.box, "one", lambda now: now["pr"] and now["pr"]["state"] == state, "a pull request"
        )
        return self.forge.find_pull(REPO, ready["pr"]["number"])

    def comment_on_line(self, pull: Any, text: str) -> None:
        """Add a comment by `rev` on a line of the pull request."""
        self.forge.thread(pull, "b.txt", 1, text, by="rev")

    def wait_until_sent(self, *texts: str) -> None:
        """Wait until the agent was sent each of these texts; check that it was sent once."""
        self.box.wait_until(
            lambda: all(text in "".join(self.sent_messages()) for text in texts), f"{texts} to be sent", 2 * TIMEOUT
        )
        for text in texts:
            assert "".join(self.sent_messages()).count(text) == 1, self.sent_messages()

    def sent_messages(self) -> list[str]:
        return rule_messages(self.box, "one")

    def check_and_merge(self, pull: Any) -> None:
        """Report passing checks, approve the pull request and merge it, as without any fault."""
        checked_commits: set[str] = set()

        def is_mergeable() -> bool:  # the agent may still commit what came of the last message
            if pull.head_sha not in checked_commits:
                checked_commits.add(pull.head_sha)
                self.forge.check(REPO, pull.head_sha, "tests", "success")
            if self._has_pending_messages() or not has_finished_turns(self.box, "one", 0):
                return False
            now = self.box.session("one")
            return bool(now["status"] == "mergeable" and now["head"] == pull.head_sha)

        self.forge.review(pull, "APPROVE", by="rev")
        self.box.wait_until(is_mergeable, "one to be mergeable", TIMEOUT)
        self.box.ao("merge", "one")
        assert pull.merged

    def _has_pending_messages(self) -> bool:
        sent_messages = self.box.request("GET", "/api/sessions/one/messages")["messages"]
        return any(message["state"] != "acknowledged" for message in sent_messages)

    def wait_for_event(self, kind: str) -> None:
        """Wait until an event of this type is recorded."""
        self.box.wait_until(lambda: any(event["type"] == kind for event in self.box.events()), kind, TIMEOUT)

    def wait_for_doctor(self, text: str) -> Json:
        """Wait for a failing check of the doctor whose detail contains the text, and return it."""

        def matching_check() -> Json:
            checks = self.box.request("GET", "/api/doctor")["checks"]
            return next((check for check in checks if text in check["detail"] and check["state"] != "ok"), {})

        return self.box.wait_until(matching_check, f"the doctor to say {text!r}", TIMEOUT)

    def wait_for_delay(self, kind: str, text: str) -> Json:
        """Wait until the session's events and `ao why` say why an effect is delayed; return the event's data."""

        def matching_delay() -> Json:
            delays = [event["data"] for event in self.box.events("one") if event["type"] == "effect-delayed"]
            return next(
                (
                    event
                    for event in delays
                    if event["intent"] == kind and text in f"{event['error']}: {event['remedy']}"
                ),
                {},
            )

        delays = self.box.wait_until(matching_delay, f"{kind} to be delayed for {text!r}", TIMEOUT)
        assert any(line.startswith(f"Effect {kind}: pending, ") for line in self.box.json("why", "one")["lines"])
        return delays

    def count_requests(self, seconds: float, *, git: bool = False) -> int:
        """Return how many requests the forge gets within so many seconds."""
        before = self._count(git)
        time.sleep(seconds)
        return self._count(git) - before

    def _count(self, git: bool) -> int:
        return sum(request.kind != "git" or git for request in list(self.forge.ledger.requests))

    def log(self) -> str:
        return self.box.home.log.read_text(errors="replace")

    def memory(self, field: str = "VmRSS") -> float:
        """Return the daemon's memory in MB: now (`VmRSS`), or at its highest (`VmHWM`)."""
        text = Path(f"/proc/{self.box.daemon_pid()}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(field)) / 1024


@contextlib.contextmanager
def forge_daemon(
    folder: Path, forge: Forge, kind: str, updates: str = "polling", token: str = ""
) -> Iterator[ForgeDaemon]:
    """Yield a daemon with a clone of a repository at the forge; at the end check that it logged no error."""
    forge.repository(REPO, {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
    token = token or forge.token("dev")
    with Sandbox(folder, "process") as box:
        daemon = ForgeDaemon(box, forge, kind, token)
        box.repository(config="")
        daemon.configure(token)
        box.git("remote", "add", "origin", forge.git_url(REPO))
        daemon.git("fetch", "-q", "origin")
        box.git("reset", "-q", "--hard", "origin/main")
        box.start()
        box.ao("add-project", str(box.repo))
        if updates == "webhooks":
            forge.hook(REPO, daemon.address, "s3cret")
        yield daemon
        log_text = daemon.log()
        assert "Traceback" not in log_text and '"level": "error"' not in log_text and "[error" not in log_text, log_text
