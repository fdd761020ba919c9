"""Helpers for tests of `ao top`: a scripted board, and the screen as text."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.style import Style
from textual.pilot import Pilot

from agent_orchestrator.cli.top.app import Top
from agent_orchestrator.client.daemon_client import DaemonClient
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon, session

NOW = datetime(2026, 1, 2, 3, 10, tzinfo=UTC)
SCREENS = Path(__file__).parent / "screens"
SCREEN = "demo agent\r\n> fix the login\nran 41 tests\tok\n\n\n\n> \n\n\n"

PULL: dict[str, Any] = {
    "number": 7,
    "url": None,
    "state": "open",
    "head": "abc",
    "checks": [{"name": "unit", "state": "success", "url": None}],
    "review": "pending",
    "mergeable": "yes",
}
REVIEW: dict[str, Any] = {
    "session": "app-docs",
    "number": 7,
    "title": "Write the [docs]",
    "state": "open",
    "base": "main",
    "review": "pending",
    "mergeable": "yes",
    "conflicts": [],
    "refused": None,
    "checks": PULL["checks"],
    "failing": [],
    "requested": [],
    "reviews": [{"author": "eve", "verdict": "commented", "body": "Hm\x1b[2J", "at": "2026-01-02T03:00:00Z"}],
    "threads": [],
}
DIFF: dict[str, Any] = {
    "diff": "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-old\n+new [bold]\x1b]0;x\x07\n",
    "stat": " a.py | 2 +-\n",
    "base": "1",
    "head": "2",
    "files": [],
    "omitted": ["big.bin"],
    "uncommitted": ["b.py"],
}


def evidence(minute: int) -> dict[str, str]:
    return {"source": "hook", "at": f"2026-01-02T03:{minute:02}:00Z"}


SESSIONS = [
    session("login", evidence=evidence(9), says="Running the tests"),
    session(
        "later",
        status="queued",
        evidence=evidence(8),
        waitingFor="a free slot (4 of 4 taken)",
        progress=None,
        usage=None,
    ),
    session("ask", status="needs_input", column="Needs you", evidence=evidence(5), waitingFor="Which database?"),
    session("clean-up", status="blocked", column="Needs you", evidence=evidence(2), waitingFor="rm -rf build"),
    session(
        "read-me",
        status="idle",
        column="Needs you",
        evidence=evidence(1),
        says="All done, have a look",
        waitingFor="your look at it",
    ),
    session("docs", status="review_pending", column="In review", evidence=evidence(7), pr=PULL, title="Write the docs"),
    session(
        "日本語-names",
        status="mergeable",
        column="Ready to merge",
        evidence=evidence(6),
        pr=PULL | {"review": "approved"},
    ),
    session("old", status="merged", column="Done", evidence=evidence(0), updatedAt="2026-01-02T03:00:00Z"),
]
QUESTION: dict[str, Any] = {
    "session": "app-ask",
    "kind": "question",
    "text": "Which database?",
    "request": None,
    "permission": None,
    "message": None,
    "offer": None,
    "since": "2026-01-02T03:05:00Z",
    "context": ["I need one."],
}
PERMISSION: dict[str, Any] = QUESTION | {
    "session": "app-clean-up",
    "kind": "permission",
    "text": "rm -rf build",
    "request": "r1",
    "permission": {"tool": "Bash", "command": "rm -rf build", "reason": "it is stale"},
    "since": "2026-01-02T03:02:00Z",
}
OVERVIEW = {"active": 1, "limit": 4, "today": {"usd": 1.5}}


class ScriptedBoard:
    """The daemon's stream: a complete frame first, then the changes sent by a test."""

    def __init__(self, daemon: ScriptedDaemon, sessions: list[dict[str, Any]] | None = None) -> None:
        self.daemon = daemon
        self.sessions = SESSIONS if sessions is None else sessions
        self.questions = [PERMISSION, QUESTION] if sessions is None else []
        self._more: queue.Queue[bytes | None] = queue.Queue()
        daemon.route("GET", "/api/live", lambda _: DaemonReply(chunks=self.frames()))
        daemon.route("GET", "/api/sessions/[^/]+/screen", DaemonReply(SCREEN.encode()))

    def send(self, *sessions: dict[str, Any], **more: Any) -> None:
        """Send a frame with these changed sessions."""
        self._more.put(_frame({"complete": False, "sessions": list(sessions), **more}))

    def end(self) -> None:
        """End the stream."""
        self._more.put(None)

    def frames(self) -> Any:
        """Yield a complete frame, then the frames sent by the test."""
        yield b"retry: 1000\n\n"
        complete_frame = {
            "complete": True,
            "sessions": self.sessions,
            "questions": self.questions,
            "overview": OVERVIEW,
        }
        yield _frame(complete_frame)
        while (more := self._more.get()) is not None:
            yield more


def _frame(frame: dict[str, Any]) -> bytes:
    return f"id: 1\nevent: live\ndata: {json.dumps(frame)}\n\n".encode()


class RecordedCommands(list[list[str]]):
    """A list of the commands that would run on the terminal; `problem` is their result."""

    problem = ""

    def __call__(self, argv: Any, no_color: bool) -> str:
        self.append([*argv[argv.index("agent_orchestrator") + 1 :], *(["NO_COLOR"] if no_color else [])])
        return self.problem


def top(project: str | None = "app", **more: Any) -> Top:
    return Top(project, connect=lambda: DaemonClient(start=False), now=lambda: NOW, **more)


def screen_lines(app: Top) -> list[str]:
    """Return the lines of the screen."""
    return ["".join(part for part, _ in line).rstrip() for line in styled_lines(app)]


def styled_lines(app: Top) -> list[list[tuple[str, Style]]]:
    """Return the lines of the screen as pieces with their styles."""
    strips = app.screen._compositor.render_strips()
    return [[(part.text, part.style or Style()) for part in strip] for strip in strips]


async def wait_until(pilot: Pilot[None], holds: Callable[[], object], what: str = "") -> None:
    """Let the application run until a condition holds."""
    assert isinstance(pilot.app, Top)
    for _ in range(3000):
        await pilot.pause(0.01)
        if holds():
            return
    raise AssertionError(f"{what or 'it'} did not come:\n" + "\n".join(screen_lines(pilot.app)))


async def wait_for_text(pilot: Pilot[None], *words: str) -> None:
    """Let the application run until all these words are on the screen."""
    app = pilot.app
    assert isinstance(app, Top)
    await wait_until(pilot, lambda: all(word in "\n".join(screen_lines(app)) for word in words), f"{words}")
