"""What the dashboard is told by a real daemon: the board kept up to date, a session's story, and where its work is."""

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
AGAIN = "[[wait]] [[sh: rm broken.txt]] [[commit: mend]] [[done: mended]]"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


class Board:
    """Follows the stream over TCP as a browser does, and keeps a board by the dashboard's rule."""

    def __init__(self, box: Sandbox, token: str | None = None) -> None:
        self.box = box
        self.token = token
        self.sessions: dict[str, Any] = {}
        self.parts: dict[str, Any] = {}
        self.seen = ""
        self.blocks: list[bytes] = []
        self.frames: list[dict[str, Any]] = []
        self.open()

    def open(self, *, by_header: bool = False) -> None:
        """Ask for all of it, or for what came after the last frame."""
        info = json.loads(self.box.home.info.read_text())
        after = f"?after={self.seen}" if self.seen and not by_header else ""
        headers = {"Authorization": f"Bearer {self.token or self.box.home.token.read_text().strip()}"}
        if self.seen and by_header:
            headers["Last-Event-ID"] = self.seen
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
        """The next frame, applied."""
        block = self._block()
        number, kind, data = block.decode().rstrip("\n").split("\n")
        assert kind == "event: live"
        frame: dict[str, Any] = json.loads(data.removeprefix("data: "))
        self.blocks.append(block)
        self.frames.append(frame)
        self.seen = number.removeprefix("id: ")
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

    def until_touched(self, name: str, kind: str) -> None:
        """Read until an event of this kind was told of a session."""
        while not any(kind in frame["touched"].get(f"app-{name}", ()) for frame in self.frames):
            self.read()

    def agrees(self) -> None:
        """It shows what everybody else sees, as soon as the last change has arrived."""
        end = time.monotonic() + 60
        while (mine := self.shown()) != (wanted := self.elsewhere()):
            assert time.monotonic() < end, (mine, wanted)
            self.read()

    def shown(self) -> dict[str, Any]:
        return {"sessions": {key: _plain(one) for key, one in self.sessions.items()}, **self.parts}

    def elsewhere(self) -> dict[str, Any]:
        ask = self.box.request
        return {
            "sessions": {one["id"]: one for one in self.box.sessions()},
            "questions": ask("GET", "/api/questions?all=1")["questions"],
            "queue": ask("GET", "/api/queue?all=1")["entries"],
            "overview": ask("GET", "/api/overview"),
        }


def _plain(session: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in session.items() if key != "says"}


def start(box: Sandbox, name: str, script: str) -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": script})


def test_the_board_comes_whole_and_then_in_changes_and_nothing_is_lost_by_a_cut(box: Sandbox) -> None:
    box.until(box.events, "the daemon to have told that it began")
    board, other = Board(box), Board(box)
    assert board.frames[0]["complete"] and board.sessions == {}
    start(box, "store", "[[ask: Which database?]] [[edit: a.txt|x]] [[commit: a]] [[done: a]] [[wait]]")
    asks = board.until("store", "needs_input")
    assert (asks["says"], asks["column"]) == ("Which database?", "Needs you")
    assert [(one["session"], one["text"]) for one in board.parts["questions"]] == [("app-store", "Which database?")]
    assert not any(frame["complete"] for frame in board.frames[1:])
    other.until("store", "needs_input")
    assert other.blocks == board.blocks, "the same bytes for everybody"

    seen, frames = board.seen, len(board.frames)
    board.close()
    start(box, "away", "[[ask: Which one?]] [[wait]]")
    other.until("away", "needs_input")
    other.until_touched("away", "agent-ask")
    board.open()
    frame = board.frames[frames]
    assert not frame["complete"] and "app-away" in [one["id"] for one in frame["sessions"]]
    assert "agent-ask" in frame["touched"]["app-away"] and int(board.seen) > int(seen)
    box.request("POST", "/api/sessions/app-store/answer", {"text": "sqlite"})
    board.until("store", "review_pending")
    board.agrees()

    board.close()
    box.stop()
    box.start()
    board.open(by_header=True)
    assert board.frames[-1]["complete"], "another daemon: all of it"
    board.agrees()
    board.close()
    other.close()


def test_silence_is_told_by_the_clock_alone(box: Sandbox) -> None:
    board = Board(box)
    start(box, "still", "[[sleep: 600]]")
    board.until("still", "working")
    stuck = board.until("still", "stuck")
    assert stuck["column"] == "Needs you" and board.parts["overview"]["projects"][0]["needsYou"] == 1
    board.close()


def test_a_story_is_told_in_words_and_the_work_is_where_it_is_said_to_be(box: Sandbox) -> None:
    begin = "[[usage: input=100 output=20 usd=0.5 model=m]] [[write: broken.txt|x]] [[commit: break]] [[done: broke]]"
    start(box, "bad", f"{begin} {AGAIN} [[write: loose.txt|y]] [[wait]]")
    box.until(lambda: box.session("bad")["status"] == "review_pending", "the check to be mended", 60)
    story = box.request("GET", "/api/sessions/bad/timeline")
    told = [(one["kind"], one["title"]) for one in story["entries"]]
    assert [one for one in told if one[0] in ("decided", "acknowledged")] == [
        ("decided", "Rule ci-failed: send-to-agent, attempt 1 of 2"),
        ("acknowledged", "The agent took the message up"),
    ]
    assert ("seen", "CI failed on default") in told and ("said", "Done: mended") in told
    sent = [one for one in story["entries"] if one["message"]]
    assert len({one["message"] for one in sent}) == 1 and {one["trigger"] for one in sent} == {"ci-failed"}
    assert story["sentence"] == "Pull request #1 waits for a review"
    assert len(box.request("GET", "/api/sessions/bad/timeline?limit=2")["entries"]) == 2

    box.until(lambda: box.request("GET", "/api/sessions/bad/work")["uncommitted"] == ["loose.txt"], "the loose file")
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
    assert [(one["input"], one["usd"]) for one in usage["points"]] == [(100, 0.5)]
    assert [one["key"] for one in usage["models"]] == ["m"]
    assert len(box.request("GET", "/api/usage?session=bad&by=day")["rows"]) == 1
    day = box.request("GET", "/api/stats?days=3")["days"][-1]
    assert (day["started"], day["opened"], day["landed"], day["retries"]) == (1, 1, 0, {"ci-failed": 1})
    assert (day["input"], day["output"], day["usd"]) == (100, 20, 0.5)


def test_the_overview_tells_of_places_bases_and_budgets(box: Sandbox) -> None:
    start(box, "good", "[[usage: input=10 output=2 usd=0.25]] [[write: g.txt|x]] [[commit: g]] [[done: ok]] [[wait]]")
    box.until(lambda: box.session("good")["status"] == "review_pending", "its pull request")
    before = box.request("GET", "/api/overview")
    assert (before["active"], before["limit"], before["waiting"], before["today"]["usd"]) == (0, 3, 0, 0.25)
    assert before["budgets"] == [{"project": "app", "unit": "usd", "spent": 0.25, "budget": 5.0}]
    assert [(one["id"], one["base"], one["baseState"]) for one in before["projects"]] == [("app", "main", "unknown")]
    box.request("POST", "/api/sessions/good/review", {"verdict": "approve"})
    box.request("POST", "/api/sessions/good/merge", {})
    box.until(lambda: box.session("good")["status"] == "merged", "it to land")

    def base() -> tuple[str, list[str]]:
        project = box.request("GET", "/api/overview")["projects"][0]
        return project["baseState"], project["baseFailing"]

    box.until(lambda: base() == ("green", []), "what landed to count for the base")
    (box.repo / "broken.txt").write_text("x")
    box.git("add", "broken.txt")
    box.git("commit", "-q", "-m", "break the base")
    start(box, "late", "[[write: l.txt|x]] [[commit: l]] [[done: ok]] [[wait]]")
    box.until(lambda: base() == ("red", ["default"]), "the base to be seen failing")
    assert box.request("GET", "/api/sessions/good/work")["sentence"].startswith("work safe: landed on main as ")


def test_viewers_may_look_and_an_agent_only_at_its_own_session(box: Sandbox) -> None:
    start(box, "one", "[[ask: What?]] [[wait]]")
    box.until(lambda: box.session("one")["status"] == "needs_input", "the question")
    viewer = str(box.json("token", "new", "looker", "--role", "viewer")["token"])
    board = Board(box, viewer)
    assert set(board.sessions) == {"app-one"}
    board.close()
    agent = box.request("GET", "/api/sessions/app-one/environment")["env"]["AO_TOKEN"]
    of_all, own = ("/api/live", "/api/overview", "/api/stats"), ("/work", "/usage")
    for path in of_all:
        assert (_code(box, path, agent), _code(box, path, None)) == (403, 401)
    for path in (f"/api/sessions/app-one{part}" for part in own):
        assert (_code(box, path, viewer), _code(box, path, agent), _code(box, path, None)) == (200, 200, 401)
    told = "/api/sessions/app-one/timeline"  # strangers' words too, which may wait for a person's leave
    assert (_code(box, told, viewer), _code(box, told, agent), _code(box, told, None)) == (200, 403, 401)
    assert _code(box, "/api/overview", viewer) == _code(box, "/api/stats", viewer) == 200


def _code(box: Sandbox, path: str, token: str | None) -> int:
    url = json.loads(box.home.info.read_text())["url"]
    request = Request(url + path, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
