"""The daemon's costs for a session, a message, a webhook, reads, a start, and while idle."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.guards.world import CountedWorld, DaemonActivity, assert_at_most, world

SPAWN_PROGRAMS = 4
"""Three Git commands, and the agent's holder."""
SPAWN_COMMITS = 8
SPAWN_STATEMENTS = 60
FIRST_SPAWN_PROGRAMS = 6
"""Two more Git commands, which inspect the repository."""
MESSAGE_PROGRAMS = 0
MESSAGE_COMMITS = 3
"""Accepted, begun, delivered."""
MESSAGE_STATEMENTS = 20
PROGRESS_COMMITS = 1
PROGRESS_STATEMENTS = 8
WEBHOOK_COMMITS = WEBHOOK_STATEMENTS = 0
"""It only triggers a read; only new data is recorded."""
START_PROGRAMS = 4
"""The login shell, and Git commands that inspect the repository."""
START_PROGRAMS_A_SESSION = 1
"""Git lists the uncommitted files of its workspace."""
START_COMMITS = 4
START_STATEMENTS = 55
START_STATEMENTS_A_SESSION = 2
"""Far less than one recorded event."""
IDLE_TIMERS = 2
"""Wake-ups within a minute."""
FRAME_BYTES = 2500
"""A change in the dashboard's stream: only its session, however many there are."""

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


def assert_costs(done: DaemonActivity, what: str, programs: int, commits: int, statements: int) -> None:
    """Assert that no more programs, commits and statements were needed."""
    assert_at_most(programs, done.programs, f"programs for {what}", PROGRAMS)
    assert_at_most(commits, done.commits, f"commits for {what}", STORE)
    assert_at_most(statements, done.statements, f"statements for {what}", STORE)


def test_costs_of_a_session_messages_reports_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch) as daemon:
        box = daemon.box
        box.start()
        with daemon.count() as first:
            daemon.spawn("a")
        assert_costs(first, "the first session", FIRST_SPAWN_PROGRAMS, SPAWN_COMMITS, SPAWN_STATEMENTS)
        with daemon.count() as second:
            session = daemon.spawn("b")
        assert_costs(second, "a session", SPAWN_PROGRAMS, SPAWN_COMMITS, SPAWN_STATEMENTS)
        with daemon.count() as message:
            box.request("POST", f"/api/sessions/{session}/message", {"content": "hello"})
            daemon.wait_for("'delivered:")
        assert_costs(message, "a message", MESSAGE_PROGRAMS, MESSAGE_COMMITS, MESSAGE_STATEMENTS)
        with daemon.count() as progress:
            report(daemon, session, 1)
            box.wait_until(lambda: box.session(session)["progress"]["done"] == 1, "its progress")
        assert_costs(progress, "a step that an agent reports", 0, PROGRESS_COMMITS, PROGRESS_STATEMENTS)
        with daemon.count() as reading:
            for path in ("sessions", f"sessions/{session}", f"sessions/{session}/status", "overview", "questions"):
                box.request("GET", f"/api/{path}")
            box.ao("status")
        assert_costs(reading, "reads", 0, 0, 0)
        with daemon.count() as nothing:
            pass
        assert_costs(nothing, "nothing at all", 0, 0, 0)
        timers = daemon.count_timers()
        assert timers <= IDLE_TIMERS, f"an idle daemon wakes {timers} times a minute: wait for what changes instead"
        few = len(frame(daemon, session, 2))
        with daemon.count():
            daemon.spawn("c")
        many = len(frame(daemon, session, 3))
        assert many <= FRAME_BYTES, f"one change is {many} bytes on the wire: send what changed alone"
        assert abs(many - few) < 16, f"a change is {few} bytes with two sessions, {many} with three"


def test_costs_of_a_start_hardly_depend_on_the_number_of_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path, monkeypatch) as daemon:
        daemon.box.start()
        counts = []
        for names in ("ab", "cdef"):
            for name in names:
                daemon.spawn(name)
            daemon.box.stop()
            with daemon.count() as start:
                daemon.box.start()
            sessions = len(daemon.box.sessions())
            programs = START_PROGRAMS + START_PROGRAMS_A_SESSION * sessions
            assert_costs(start, f"a start with {sessions} sessions", programs, START_COMMITS, START_STATEMENTS)
            counts.append(len(start.statements))
        assert {session["status"] for session in daemon.box.sessions()} == {"working"}
        few, many = counts
        grown = (many - few) / 4
        assert grown < START_STATEMENTS_A_SESSION, f"a start takes {grown} statements for each further session. {STORE}"


def test_costs_of_a_webhook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, monkeypatch, FORGE) as daemon:
        daemon.box.start()
        daemon.box.request("POST", "/api/projects", {"path": str(daemon.box.repo)})
        with daemon.count():
            deliver(daemon, 1)
        with daemon.count() as done:
            deliver(daemon, 2)
        assert_costs(done, "a webhook", 0, WEBHOOK_COMMITS, WEBHOOK_STATEMENTS)


def report(daemon: CountedWorld, session: str, done: int) -> None:
    line = json.dumps({"event": "progress", "done": done, "total": 9, "step": f"step {done}"})
    with (daemon.box.home.session(session) / "spool.1.jsonl").open("a") as spool:
        spool.write(line + "\n")


def frame(daemon: CountedWorld, session: str, done: int) -> bytes:
    """Return what the dashboard receives when an agent reports a step."""
    info = json.loads(daemon.box.home.daemon_info.read_text())
    token = daemon.box.request("POST", "/api/tokens", {"name": f"t{done}", "role": "viewer"})["token"]
    request = Request(f"{info['url']}/api/live", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=60) as stream:
        lines, reported = b"", False
        for received in stream:
            lines += received
            if lines.endswith(b"\n\n"):
                if reported and b"event: live" in lines and f"step {done}".encode() in lines:
                    return bytes(lines)
                if not reported and b"event: live" in lines:
                    report(daemon, session, done)
                    reported = True
                lines = b""
    raise AssertionError("the line ended")


def deliver(daemon: CountedWorld, number: int) -> None:
    body = json.dumps({"ref": "refs/heads/x", "repository": {"full_name": "o/n", "id": 7}}).encode()
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": f"delivery-{number}",
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    url = json.loads(daemon.box.home.daemon_info.read_text())["url"]
    with urlopen(Request(f"{url}/api/webhooks/github", body, headers), timeout=60) as answer:
        assert answer.status == 202
