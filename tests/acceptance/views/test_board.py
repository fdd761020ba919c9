"""The dashboard's data: the live board, a session's timeline, and where its work is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {agent: demo, runtime: process}
orchestrator: {maxParallelAgents: 3}
budget: {perDay: 5 USD}
ci: {command: "test ! -e broken.txt"}
reactions:
  ci-failed: {message: "MEND {{errors}}", retries: 2, backoff: 1s..1s}
  agent-stuck: {threshold: 5s, auto: false}
"""
FIX_SCRIPT = "[[wait]] [[sh: rm broken.txt]] [[commit: mend]] [[done: mended]]"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


class Board:
    """Reads the live stream over TCP as a browser does and applies it to a board."""

    def __init__(self, box: Sandbox, token: str | None = None) -> None:
        self.box = box
        self.token = token
        self.sessions: dict[str, Any] = {}
        self.parts: dict[str, Any] = {}
        self.last_id = ""
        self.blocks: list[bytes] = []
        self.frames: list[dict[str, Any]] = []
        self.open()

    def open(self, *, by_header: bool = False) -> None:
        """Request the stream from the start, or after the last frame."""
        info = json.loads(self.box.home.daemon_info.read_text())
        after = f"?after={self.last_id}" if self.last_id and not by_header else ""
        headers = {"Authorization": f"Bearer {self.token or self.box.home.token.read_text().strip()}"}
        if self.last_id and by_header:
            headers["Last-Event-ID"] = self.last_id
        self.line = HTTPConnection(info["url"].removeprefix("http://"), timeout=60)
        self.line.request("GET", f"/api/live{after}", headers=headers)
        self.answer = self.line.getresponse()
        assert (self.answer.status, self.answer.headers.get_content_type()) == (200, "text/event-stream")
        assert self._block() == b"retry: 1000\n"
        self.read()

    def close(self) -> None:
        self.answer.close()
        self.line.close()

    def _block(self) -> bytes:
        block = b""
        while line := self.answer.readline().rstrip(b"\n"):
            block += line + b"\n"
        assert block, "the stream ended"
        return block

    def read(self) -> dict[str, Any]:
        """Read, apply and return the next frame."""
        block = self._block()
        number, kind, data = block.decode().rstrip("\n").split("\n")
        assert kind == "event: live"
        frame: dict[str, Any] = json.loads(data.removeprefix("data: "))
        self.blocks.append(block)
        self.frames.append(frame)
        self.last_id = number.removeprefix("id: ")
        if frame["complete"]:
            self.sessions = {}
        self.sessions.update({session["id"]: session for session in frame["sessions"]})
        self.parts.update({part: frame[part] for part in ("questions", "queue", "overview") if frame[part] is not None})
        return frame

    def until(self, name: str, status: str) -> dict[str, Any]:
        """Read until a session has a status."""
        while self.sessions.get(f"app-{name}", {}).get("status") != status:
            self.read()
        session: dict[str, Any] = self.sessions[f"app-{name}"]
        return session

    def wait_for_event(self, name: str, kind: str) -> None:
        """Read until an event of this kind was reported for a session."""
        while not any(kind in frame["touched"].get(f"app-{name}", ()) for frame in self.frames):
            self.read()

    def assert_up_to_date(self) -> None:
        """Wait until the board shows the same state as the API."""
        end = time.monotonic() + 60
        while (actual := self.board_state()) != (expected := self.api_state()):
            assert time.monotonic() < end, (actual, expected)
            self.read()

    def board_state(self) -> dict[str, Any]:
        return {"sessions": {key: _without_says(session) for key, session in self.sessions.items()}, **self.parts}

    def api_state(self) -> dict[str, Any]:
        ask = self.box.request
        return {
            "sessions": {session["id"]: session for session in self.box.sessions()},
            "questions": ask("GET", "/api/questions?all=1")["questions"],
            "queue": ask("GET", "/api/queue?all=1")["entries"],
            "overview": ask("GET", "/api/overview"),
        }


def _without_says(session: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in session.items() if key != "says"}


def create_session(box: Sandbox, name: str, script: str) -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": script})


def test_the_stream_sends_the_state_then_changes_and_resumes_without_loss(box: Sandbox) -> None:
    box.wait_until(box.events, "the daemon's start to be recorded")
    board, other = Board(box), Board(box)
    assert board.frames[0]["complete"] and board.sessions == {}
    create_session(box, "store", "[[ask: Which database?]] [[edit: a.txt|x]] [[commit: a]] [[done: a]] [[wait]]")
    asking = board.until("store", "needs_input")
    assert (asking["says"], asking["column"]) == ("Which database?", "Needs you")
    assert [(entry["session"], entry["text"]) for entry in board.parts["questions"]] == [
        ("app-store", "Which database?")
    ]
    assert not any(frame["complete"] for frame in board.frames[1:])
    other.until("store", "needs_input")
    assert other.blocks == board.blocks, "the same bytes for all viewers"

    last_id, frames = board.last_id, len(board.frames)
    board.close()
    create_session(box, "away", "[[ask: Which one?]] [[wait]]")
    other.until("away", "needs_input")
    other.wait_for_event("away", "agent-ask")
    board.open()
    frame = board.frames[frames]
    assert not frame["complete"] and "app-away" in [entry["id"] for entry in frame["sessions"]]
    assert "agent-ask" in frame["touched"]["app-away"] and int(board.last_id) > int(last_id)
    box.request("POST", "/api/sessions/app-store/answer", {"text": "sqlite"})
    board.until("store", "review_pending")
    board.assert_up_to_date()

    board.close()
    box.stop()
    box.start()
    board.open(by_header=True)
    assert board.frames[-1]["complete"], "a new daemon sends the complete state"
    board.assert_up_to_date()
    board.close()
    other.close()


def test_a_silent_session_is_shown_as_stuck_after_the_threshold(box: Sandbox) -> None:
    board = Board(box)
    create_session(box, "still", "[[sleep: 600]]")
    board.until("still", "working")
    stuck = board.until("still", "stuck")
    assert stuck["column"] == "Needs you" and board.parts["overview"]["projects"][0]["needsYou"] == 1
    board.close()


def test_the_timeline_work_diff_and_usage_of_a_session(box: Sandbox) -> None:
    begin = "[[usage: input=100 output=20 usd=0.5 model=m]] [[write: broken.txt|x]] [[commit: break]] [[done: broke]]"
    create_session(box, "bad", f"{begin} {FIX_SCRIPT} [[write: loose.txt|y]] [[wait]]")
    box.wait_until(lambda: box.session("bad")["status"] == "review_pending", "the check to be fixed", 60)
    timeline = box.request("GET", "/api/sessions/bad/timeline")
    titles = [(item["kind"], item["title"]) for item in timeline["entries"]]
    assert [item for item in titles if item[0] in ("decided", "acknowledged")] == [
        ("decided", "Rule ci-failed: send-to-agent, attempt 1 of 2"),
        ("acknowledged", "The agent took the message up"),
    ]
    assert ("seen", "CI failed on default") in titles and ("said", "Done: mended") in titles
    sent = [item for item in timeline["entries"] if item["message"]]
    assert len({item["message"] for item in sent}) == 1 and {item["trigger"] for item in sent} == {"ci-failed"}
    assert timeline["sentence"] == "Pull request #1 waits for a review"
    assert len(box.request("GET", "/api/sessions/bad/timeline?limit=2")["entries"]) == 2

    box.wait_until(
        lambda: box.request("GET", "/api/sessions/bad/work")["uncommitted"] == ["loose.txt"], "the loose file"
    )
    work, head = box.request("GET", "/api/sessions/bad/work"), box.session("bad")["head"]
    assert (work["head"], work["ahead"], work["pushed"], work["branch"]) == (head, 2, None, "feature/bad")
    assert work["sentence"] == (
        f"work safe: committed {head[:7]} on feature/bad in your repository, 1 file uncommitted"
    )
    since = box.request("GET", f"/api/sessions/bad/diff?since={head}")
    assert (since["files"], since["base"]) == (["loose.txt"], head)
    first = box.git("rev-list", "--reverse", "main..feature/bad").splitlines()[0]
    assert set(box.request("GET", f"/api/sessions/bad/diff?since={first}")["files"]) == {"broken.txt", "loose.txt"}
    box.git("commit", "--allow-empty", "-q", "-m", "elsewhere")
    for commit in ("0" * 40, box.git("rev-parse", "main")):
        with pytest.raises(NotFound, match=r"no commit of feature/bad.*leave `since` out"):
            box.request("GET", f"/api/sessions/bad/diff?since={commit}")
    with pytest.raises(UsageError):
        box.request("GET", "/api/sessions/bad/diff?since=--output=x")

    usage = box.request("GET", "/api/sessions/bad/usage")
    assert [(item["input"], item["usd"]) for item in usage["points"]] == [(100, 0.5)]
    assert [item["key"] for item in usage["models"]] == ["m"]
    assert len(box.request("GET", "/api/usage?session=bad&by=day")["rows"]) == 1
    day = box.request("GET", "/api/stats?days=3")["days"][-1]
    assert (day["started"], day["opened"], day["landed"], day["retries"]) == (1, 1, 0, {"ci-failed": 1})
    assert (day["input"], day["output"], day["usd"]) == (100, 20, 0.5)


def test_the_overview_shows_slots_bases_and_budgets(box: Sandbox) -> None:
    create_session(
        box, "good", "[[usage: input=10 output=2 usd=0.25]] [[write: g.txt|x]] [[commit: g]] [[done: ok]] [[wait]]"
    )
    box.wait_until(lambda: box.session("good")["status"] == "review_pending", "its pull request")
    before = box.request("GET", "/api/overview")
    assert (before["active"], before["limit"], before["waiting"], before["today"]["usd"]) == (0, 3, 0, 0.25)
    assert before["budgets"] == [{"project": "app", "unit": "usd", "spent": 0.25, "budget": 5.0}]
    assert [(entry["id"], entry["base"], entry["baseState"]) for entry in before["projects"]] == [
        ("app", "main", "unknown")
    ]
    box.request("POST", "/api/sessions/good/review", {"verdict": "approve"})
    box.request("POST", "/api/sessions/good/merge", {})
    box.wait_until(lambda: box.session("good")["status"] == "merged", "the merge")

    def base() -> tuple[str, list[str]]:
        project = box.request("GET", "/api/overview")["projects"][0]
        return project["baseState"], project["baseFailing"]

    box.wait_until(lambda: base() == ("green", []), "the merged check to count for the base")
    (box.repo / "broken.txt").write_text("x")
    box.git("add", "broken.txt")
    box.git("commit", "-q", "-m", "break the base")
    create_session(box, "late", "[[write: l.txt|x]] [[commit: l]] [[done: ok]] [[wait]]")
    box.wait_until(lambda: base() == ("red", ["default"]), "the base to be seen failing")
    assert box.request("GET", "/api/sessions/good/work")["sentence"].startswith("work safe: landed on main as ")


def test_viewers_can_read_and_an_agent_only_its_own_session(box: Sandbox) -> None:
    create_session(box, "one", "[[ask: What?]] [[wait]]")
    box.wait_until(lambda: box.session("one")["status"] == "needs_input", "the question")
    viewer = str(box.json("token", "new", "looker", "--role", "viewer")["token"])
    board = Board(box, viewer)
    assert set(board.sessions) == {"app-one"}
    board.close()
    agent = box.request("GET", "/api/sessions/app-one/environment")["env"]["AO_TOKEN"]
    global_paths, session_parts = ("/api/live", "/api/overview", "/api/stats"), ("/work", "/usage")
    for path in global_paths:
        assert (_status_code(box, path, agent), _status_code(box, path, None)) == (403, 401)
    for path in (f"/api/sessions/app-one{part}" for part in session_parts):
        assert (_status_code(box, path, viewer), _status_code(box, path, agent), _status_code(box, path, None)) == (
            200,
            200,
            401,
        )
    timeline = "/api/sessions/app-one/timeline"  # contains untrusted text, which may wait for a person's approval
    assert (
        _status_code(box, timeline, viewer),
        _status_code(box, timeline, agent),
        _status_code(box, timeline, None),
    ) == (200, 403, 401)
    assert _status_code(box, "/api/overview", viewer) == _status_code(box, "/api/stats", viewer) == 200


def _status_code(box: Sandbox, path: str, token: str | None) -> int:
    url = json.loads(box.home.daemon_info.read_text())["url"]
    request = Request(url + path, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
