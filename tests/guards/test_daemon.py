"""What the daemon does for a session, a message, a webhook, a reader, a start, and for nothing at all."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.guards.world import Done, World, at_most, world

SPAWN_PROGRAMS = 4
"""Three of Git, and the agent's holder."""
SPAWN_COMMITS = 8
SPAWN_STATEMENTS = 60
FIRST_SPAWN_PROGRAMS = 6
"""Twice Git besides, to learn what the repository is like."""
MESSAGE_PROGRAMS = 0
MESSAGE_COMMITS = 3
"""Accepted, begun, delivered."""
MESSAGE_STATEMENTS = 20
PROGRESS_COMMITS = 1
PROGRESS_STATEMENTS = 8
WEBHOOK_COMMITS = WEBHOOK_STATEMENTS = 0
"""It is a hint of what to read; what is read is recorded when it is something new."""
START_PROGRAMS = 4
"""The login shell, and Git for what the repository is like."""
START_PROGRAMS_A_SESSION = 1
"""What is uncommitted in its workspace."""
START_COMMITS = 4
START_STATEMENTS = 55
START_STATEMENTS_A_SESSION = 2
"""Far less than one recorded event."""
IDLE_TIMERS = 2
"""Wake-ups within a minute."""
FRAME_BYTES = 2500
"""A change on the dashboard's line: its session, whatever else is on the board."""

STORE = "Put what belongs together into one `Flow.append`, and ask the facts rather than the database."
PROGRAMS = "Ask Git for several things at once, or remember the answer; only `host.py` starts programs."

SECRET = "guards"
FORGE = f"""
defaults: {{agent: demo, runtime: process}}
projects:
  app:
    path: .
    repo: o/n
    scm: {{plugin: github, apiUrl: "http://127.0.0.1:9", token: t, webhook: {{secret: {SECRET}}}}}
    tracker: local
"""


def costs(done: Done, what: str, programs: int, commits: int, statements: int) -> None:
    """Fail if it was more than that."""
    at_most(programs, done.programs, f"programs for {what}", PROGRAMS)
    at_most(commits, done.commits, f"commits for {what}", STORE)
    at_most(statements, done.statements, f"statements for {what}", STORE)


def test_a_session_and_what_is_said_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch) as here:
        box = here.box
        box.start()
        with here.counted() as first:
            here.spawn("a")
        costs(first, "the first session", FIRST_SPAWN_PROGRAMS, SPAWN_COMMITS, SPAWN_STATEMENTS)
        with here.counted() as second:
            session = here.spawn("b")
        costs(second, "a session", SPAWN_PROGRAMS, SPAWN_COMMITS, SPAWN_STATEMENTS)
        with here.counted() as message:
            box.request("POST", f"/api/sessions/{session}/message", {"content": "hello"})
            here.wait_for("'delivered:")
        costs(message, "a message", MESSAGE_PROGRAMS, MESSAGE_COMMITS, MESSAGE_STATEMENTS)
        with here.counted() as progress:
            report(here, session, 1)
            box.until(lambda: box.session(session)["progress"]["done"] == 1, "its progress")
        costs(progress, "a step that an agent reports", 0, PROGRESS_COMMITS, PROGRESS_STATEMENTS)
        with here.counted() as reading:
            for path in ("sessions", f"sessions/{session}", f"sessions/{session}/status", "overview", "questions"):
                box.request("GET", f"/api/{path}")
            box.ao("status")
        costs(reading, "whoever only looks", 0, 0, 0)
        with here.counted() as nothing:
            pass
        costs(nothing, "nothing at all", 0, 0, 0)
        timers = here.timers()
        assert timers <= IDLE_TIMERS, f"an idle daemon wakes {timers} times a minute: wait for what changes instead"
        few = len(frame(here, session, 2))
        with here.counted():
            here.spawn("c")
        many = len(frame(here, session, 3))
        assert many <= FRAME_BYTES, f"one change is {many} bytes on the wire: send what changed alone"
        assert abs(many - few) < 16, f"a change is {few} bytes with two sessions, {many} with three"


def test_a_start_hardly_depends_on_how_many_are_to_be_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch) as here:
        here.box.start()
        counts = []
        for names in ("ab", "cdef"):
            for name in names:
                here.spawn(name)
            here.box.stop()
            with here.counted() as start:
                here.box.start()
            sessions = len(here.box.sessions())
            programs = START_PROGRAMS + START_PROGRAMS_A_SESSION * sessions
            costs(start, f"a start with {sessions} sessions", programs, START_COMMITS, START_STATEMENTS)
            counts.append(len(start.statements))
        assert {one["status"] for one in here.box.sessions()} == {"working"}
        few, many = counts
        grown = (many - few) / 4
        assert grown < START_STATEMENTS_A_SESSION, f"a start takes {grown} statements for each further session. {STORE}"


def test_a_webhook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch, FORGE) as here:
        here.box.start()
        here.box.request("POST", "/api/projects", {"path": str(here.box.repo)})
        with here.counted():
            deliver(here, 1)
        with here.counted() as one:
            deliver(here, 2)
        costs(one, "a webhook", 0, WEBHOOK_COMMITS, WEBHOOK_STATEMENTS)


def report(here: World, session: str, done: int) -> None:
    line = json.dumps({"event": "progress", "done": done, "total": 9, "step": f"step {done}"})
    with (here.box.home.session(session) / "spool.1.jsonl").open("a") as spool:
        spool.write(line + "\n")


def frame(here: World, session: str, done: int) -> bytes:
    """What the dashboard is sent when an agent reports a step."""
    info = json.loads(here.box.home.info.read_text())
    token = here.box.request("POST", "/api/tokens", {"name": f"t{done}", "role": "viewer"})["token"]
    asked = Request(f"{info['url']}/api/live", headers={"Authorization": f"Bearer {token}"})
    with urlopen(asked, timeout=60) as line:
        lines, reported = b"", False
        for one in line:
            lines += one
            if lines.endswith(b"\n\n"):
                if reported and b"event: live" in lines and f"step {done}".encode() in lines:
                    return bytes(lines)
                if not reported and b"event: live" in lines:
                    report(here, session, done)
                    reported = True
                lines = b""
    raise AssertionError("the line ended")


def deliver(here: World, number: int) -> None:
    body = json.dumps({"ref": "refs/heads/x", "repository": {"full_name": "o/n", "id": 7}}).encode()
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": f"delivery-{number}",
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    url = json.loads(here.box.home.info.read_text())["url"]
    with urlopen(Request(f"{url}/api/webhooks/github", body, headers), timeout=60) as answer:
        assert answer.status == 202
