"""`ao status`: its output, and the modules and requests it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from agent_orchestrator.cli import out
from agent_orchestrator.cli.sessions import status_table
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon, session

ASKING = session("ask", status="needs_input", column="Needs you", waitingFor="Which database?\n\x1b[31mOr none?")
IDLE = session("read-me", status="idle", column="Needs you", evidence={"source": "hook", "at": "2026-01-01T00:00:00Z"})
QUEUED = session(
    "later", status="queued", column="Working", waitingFor="a free slot (4 of 4 taken)", progress=None, usage=None
)
MERGED = session("done", status="merged", column="Done")
OWN_MODULES = 13
"""The number of modules of this package that `ao status` loads."""
REQUESTS = 2
"""The number of requests it makes: sessions, and waiting issues of the backlog."""


def test_sessions_that_need_you_come_first_with_their_question(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": [MERGED, QUEUED, IDLE, ASKING]})
    ran = run("status")
    assert ran.code == 0 and ran.err == ""
    lines = ran.out.splitlines()
    order = [line.split()[0] for line in lines if line.startswith("  app-")]
    assert order == ["app-ask", "app-read-me", "app-later", "app-done"]
    assert "      asks: Which database? [31mOr none?" in lines
    assert "      waits for a free slot (4 of 4 taken)" in lines
    assert "3/5 steps (60 %), 41 tests passing, $0.42" in ran.out
    assert "1 session asks you: ao answer" in lines
    assert "1 session finished a turn: ao diff app-read-me, ao send app-read-me TEXT" in lines


def test_an_interrupted_session_shows_its_reason_and_remedy(daemon: ScriptedDaemon, run: Run) -> None:
    running = session("key", status="interrupted", column="Needs you", why="Not logged in.", waitingFor="a message")
    gone = session(
        "gone", status="interrupted", column="Needs you", why="tmux is gone", waitingFor="ao restore", pid=None
    )
    daemon.route("GET", "/api/sessions", {"sessions": [running, gone]})
    lines = run("status").out.splitlines()
    assert "      Not logged in; waits for a message" in lines
    assert "app-key was interrupted: ao attach app-key, ao send app-key TEXT" in lines
    assert "app-gone was interrupted: ao restore app-gone" in lines


def test_a_restored_session_counts_as_waiting_for_a_message(daemon: ScriptedDaemon, run: Run) -> None:
    back = session(
        "back", status="idle", column="Needs you", waitingFor="a message", progress={"testsPassed": 1}, usage=None
    )
    daemon.route("GET", "/api/sessions", {"sessions": [back, IDLE]})
    lines = run("status").out.splitlines()
    assert any("app-back" in line and " 1 test passing " in line for line in lines)
    assert "1 session waits for a message: ao send app-back TEXT" in lines
    assert "1 session finished a turn: ao diff app-read-me, ao send app-read-me TEXT" in lines


def test_a_long_title_is_cut_before_columns_are_dropped(
    daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out, "terminal_width", lambda: 130)
    long = session("talk", title="Say it in many words " * 9, progress=None, usage=None)
    daemon.route("GET", "/api/sessions", {"sessions": [long]})
    header, row = [line for line in run("status").out.splitlines() if "SESSION" in line or "app-talk" in line]
    assert header.split() == ["SESSION", "STATUS", "SEEN", "PROGRESS", "BRANCH", "AGENT"]
    assert "Say it in many words" in row and "feature/talk" in row


def test_status_and_its_aliases_print_the_same(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", r"/api/sessions.*", {"sessions": [ASKING]})
    outputs = {run(*argv).out for argv in ([], ["list"], ["ls"], ["status"])}
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("argv", "query"),
    [
        (["status"], ""),
        (["status", "-A"], "?all=1"),
        (["status", "-p", "my app"], "?project=my%20app"),
        (["-p", "web", "status"], "?project=web"),
        (["--project=web"], "?project=web"),
        (["-A"], "?all=1"),
        (["-A", "--json", "ls"], "?all=1"),
    ],
)
def test_the_scope_is_passed_to_every_request(daemon: ScriptedDaemon, run: Run, argv: list[str], query: str) -> None:
    daemon.route("GET", r"/api/sessions.*", {"sessions": []})
    assert run(*argv).code == 0
    paths = [each.path for each in daemon.requests if each.path.startswith("/api/")]
    assert paths[0] == f"/api/sessions{query}" and set(paths[1:]) <= {f"/api/backlog{query}"}


def test_an_option_unknown_to_a_command_is_refused_in_front_of_it_too(daemon: ScriptedDaemon, run: Run) -> None:
    ran = run("-p", "web", "path", "x")
    assert ran.code == 2 and "-p" in ran.err and daemon.requests == []


def test_json_is_the_response_itself(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": [ASKING, MERGED]})
    daemon.route("GET", "/api/sessions/ask", ASKING)
    assert json.loads(run("status", "--json").out) == {"sessions": [ASKING, MERGED]}
    assert json.loads(run("status", "ask", "--json").out) == ASKING


def test_one_session_is_shown_in_detail(daemon: ScriptedDaemon, run: Run) -> None:
    pr = {
        "number": 7,
        "url": "u",
        "state": "open",
        "review": "none",
        "mergeable": "unknown",
        "checks": [{"name": "unit", "state": "failure"}],
    }
    daemon.route("GET", "/api/sessions/x", session("x", pr=pr, exitCode=0, attempts={"ci-failed": 1}))
    output = run("status", "x").out
    for text in (
        "Workspace     /w/x",
        "Branch        feature/x from main",
        "#7 open, review none",
        "unit failure",
        "Exit code     0",
        "ci-failed 1",
    ):
        assert text in output
    assert "Issue" not in output


def test_without_sessions_the_next_command_is_named(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": []})
    assert "ao new" in run("status").out


def test_only_the_latest_finished_sessions_are_shown(daemon: ScriptedDaemon, run: Run) -> None:
    many = [
        session(f"s{number:02}", status="merged", column="Done", updatedAt=f"2026-01-{number:02}T00:00:00Z")
        for number in range(1, 14)
    ]
    daemon.route("GET", "/api/sessions", {"sessions": many})
    output = run("status").out
    assert "Done (13)" in output and "… 3 more: ao status --done" in output
    assert "app-s13" in output and "app-s03" not in output
    assert "app-s03" in run("status", "--done").out


def test_watch_redraws_after_an_event(daemon: ScriptedDaemon) -> None:
    states = [[QUEUED], [ASKING]]
    daemon.route(
        "GET", "/api/sessions", lambda _: DaemonReply({"sessions": states.pop(0) if len(states) > 1 else states[0]})
    )
    daemon.route("GET", "/api/events", DaemonReply(chunks=[b"id: 1\ndata: {}\n\n"]))
    process = subprocess.Popen(
        [sys.executable, "-m", "agent_orchestrator", "status", "--watch"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if "Which database?" in line:
                break
        process.send_signal(2)
        process.stdout.read()
        assert process.wait(60) == 130
    assert daemon.requests_for("GET", "/api/events")[0].headers["accept"] == "text/event-stream"


def test_status_loads_no_modules_of_the_daemon(daemon: ScriptedDaemon) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": [ASKING]})
    program = "import sys\nfrom agent_orchestrator.cli import main\ncode = main(['status'])\nprint(code, *sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    code, *modules = ran.stderr.split()
    assert code == "0" and "app-ask" in ran.stdout
    parts = [
        "server",
        "core",
        "config",
        "plugins",
        "sessions",
        "changes",
        "fleet",
        "cluster",
        "views",
        "daemon",
        "base.host",
        "base.git",
    ]
    heavy = {
        "pydantic",
        "fastapi",
        "sqlalchemy",
        "asyncio",
        "rich",
        "ssl",
        "http.client",
        "urllib",
        "subprocess",
        "pathlib",
        "tempfile",
    }
    assert not (heavy | {f"agent_orchestrator.{part}" for part in parts}) & set(modules)
    assert {name for name in modules if name.startswith("agent_orchestrator.cli.")} <= {
        f"agent_orchestrator.cli.{name}"
        for name in ("app", "out", "common", "sessions", "sessions.status", "sessions.status_table")
    }
    own = [name for name in modules if name.split(".")[0] == "agent_orchestrator"]
    assert len(own) <= OWN_MODULES, f"import within the function that needs it, or update OWN_MODULES: {own}"
    others = {name.split(".")[0] for name in modules} - sys.stdlib_module_names - {"agent_orchestrator", "click"}
    assert not {name for name in others if not name.startswith("_")}, "a command loads nothing of others but click"
    requests = [f"{each.method} {each.path}" for each in daemon.requests]
    assert len(requests) <= REQUESTS, f"ask for all of it at once, or update REQUESTS: {requests}"
    assert len({each.connection for each in daemon.requests}) == 1


def test_ages_are_rounded() -> None:
    now = datetime(2026, 1, 10, tzinfo=UTC)
    expected = {0: "0 s", 59: "59 s", 60: "1 min", 7199: "1 h", 86400: "24 h", 172800: "2 d", -5: "0 s"}
    for seconds, text in expected.items():
        assert out.age((now - timedelta(seconds=seconds)).isoformat(), now) == text
    assert out.age(None) == out.age("yesterday") == ""


def test_text_is_cut_by_terminal_columns() -> None:
    assert out.truncate("日本語テキスト", 7) == "日本語…"
    assert out.display_width("日本é") == 5
    assert out.truncate("short", 5) == "short"


def test_a_pull_request_is_shown_with_its_checks_and_review() -> None:
    pr = {"number": 3, "state": "open", "checks": [], "review": "pending", "mergeable": "yes"}
    red = [{"name": "lint", "state": "failure"}, {"name": "test", "state": "success"}]
    assert status_table.pull_request_text({"pr": None}) == ""
    assert status_table.pull_request_text({"pr": pr | {"state": "draft"}}) == "#3 draft"
    assert status_table.pull_request_text({"pr": pr | {"checks": red, "mergeable": "no"}}) == "#3 red: lint, conflicts"
    assert (
        status_table.pull_request_text({"pr": pr | {"checks": red[1:], "review": "approved"}}) == "#3 green, approved"
    )
    assert (
        status_table.pull_request_text({"pr": pr | {"checks": [{"name": "test", "state": "running"}]}})
        == "#3 checks run"
    )
    assert (
        status_table.pull_request_text({"pr": pr | {"checks": red, "state": "merged"}}) == "#3 merged, red before: lint"
    )
    for more, expected in (
        ({"state": "failure", "onBase": True}, "known on main: lint"),
        ({"state": "failure", "new": 1, "known": 3}, "red: lint (1 new, 3 known on main)"),
        ({"state": "failure", "known": 3}, "red: lint (3 known on main)"),
        ({"state": "not_set_up"}, "not set up: lint"),
    ):
        change = {"pr": pr | {"checks": [red[0] | more, red[1]]}, "base": "main"}
        assert status_table.pull_request_text(change) == f"#3 {expected}"


def test_failed_tests_are_counted_separately_from_passed_ones() -> None:
    checks = [{"name": "test", "state": "failure", "failed": 40}, {"name": "lint", "state": "failure", "failed": None}]
    document = {"progress": {"testsPassed": 257}, "pr": {"checks": checks}}
    assert status_table.progress_text(document) == "257 passed, 40 failed"


def test_the_footer_names_changes_to_review_and_to_merge() -> None:
    sessions = [
        session("a", status="review_pending", column="In review"),
        session("b", status="mergeable", column="Ready to merge"),
        session("c", status="ci_running", column="In review"),
    ]
    assert status_table.board_lines(sessions)[-2:] == [
        "1 change may land: ao merge app-b",
        "1 change to review: ao review app-a",
    ]


ENTRY = {
    "id": "app#4",
    "key": "4",
    "project": "app",
    "title": "Go on",
    "auto": True,
    "session": None,
    "needsYou": False,
}


def test_waiting_issues_are_shown_with_the_reason(daemon: ScriptedDaemon, run: Run) -> None:
    asked_for = ENTRY | {"auto": False, "reasons": ["autoAssign is off: take it by ao new 1"]}
    at_work = ENTRY | {"session": "app-done", "reasons": ["app-done works on it"]}
    waits = ENTRY | {"reasons": ["issue 2 is open"]}
    why = "issue 1 is open: app-done was stopped without landing"
    stuck = ENTRY | {"key": "9", "needsYou": True, "reasons": [why]}
    daemon.route("GET", "/api/sessions", {"sessions": [MERGED]})
    daemon.route("GET", "/api/backlog", {"entries": [asked_for, at_work, *[waits] * 6, stuck], "unread": []})
    lines = run("status").out.splitlines()
    begin = lines.index("Not taken yet (7)")
    assert lines[begin + 1 : begin + 5] == [
        "  #9  Go on",
        f"      {why}",
        "  #4  Go on",
        "      issue 2 is open",
    ]
    assert lines[-3:] == ["  … 2 more: ao backlog", "", "1 issue waits for you: ao backlog"]
    daemon.route("GET", "/api/sessions", {"sessions": []})
    assert run("status").out.startswith("Not taken yet (7)\n")
    daemon.route("GET", "/api/backlog", {"entries": [asked_for], "unread": []})
    assert run("status").out.startswith("No sessions here.")


def test_in_a_narrow_terminal_names_stay_and_other_columns_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "terminal_width", lambda: 80)
    name = "write-the-core-of-the-application"
    lines = status_table.board_lines([session(name, branch=f"feature/{name}"), session("b")])
    assert all(out.display_width(line) <= 80 for line in lines)
    assert f"app-{name} " in lines[2] and lines[0].split() == ["SESSION", "STATUS", "PROGRESS"]


def test_a_failed_session_shows_its_remedy() -> None:
    failed = session("a", status="failed", column="Needs you", waitingFor="install it: npm install x")
    assert "      install it: npm install x" in status_table.board_lines([failed])
    assert any(line.split()[:2] == ["Remedy", "install"] for line in status_table.detail_lines(failed))


def test_a_narrow_terminal_cuts_the_branch_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "terminal_width", lambda: 100)
    lines = status_table.board_lines([session("a-name", branch="feature/" + "very-" * 10)])
    assert all(out.display_width(line) <= 100 for line in lines)
    assert "3/5 steps (60 %), 41 tests passing, $0.42" in lines[2] and "feature/ve" in lines[2] and "…" in lines[2]


def test_colours_are_used_only_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert out.paint("x", "red") == "\033[31mx\033[0m"
    monkeypatch.setenv("NO_COLOR", "")
    assert out.paint("x", "red") == "x"
    assert os.environ["TERM"] == "xterm"


# -- the recap since the last status --------------------------------------------------------------------------------------

RECAP = {
    "since": "2026-01-01T00:00:00.000Z",
    "lines": [{"kind": "merged", "text": "1 landed: app-a by anna", "sessions": ["app-a"]}],
}


def on_terminal(*argv: str) -> str:
    """Run a command at a terminal and return its output."""
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, "-m", "agent_orchestrator", *argv], stdin=theirs, stdout=theirs) as process:
        os.close(theirs)
        output = b""
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            try:
                while piece := terminal.read(4096):
                    output += piece
            except OSError:  # the other end is gone
                pass
    assert process.returncode == 0
    return output.decode()


def set_last_look(daemon: ScriptedDaemon, hours: float) -> None:
    """Set the time of the last status, and record an event half an hour ago."""
    (daemon.home / "looked.json").write_text(json.dumps({str(os.getuid()): time.time() - hours * 3600.0}))
    (daemon.home / "ao.db").touch()
    os.utime(daemon.home / "ao.db", (time.time() - 1800.0,) * 2)


def test_the_recap_is_shown_once_after_an_absence(daemon: ScriptedDaemon) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": [ASKING]})
    daemon.route("GET", "/api/recap.*", RECAP)
    set_last_look(daemon, 9.0)
    first, second = on_terminal("status"), on_terminal("status")
    assert "Since you last looked, 9 h ago:" in first and "  1 landed: app-a by anna" in first
    assert first.index("1 landed") < first.index("app-ask")
    assert "landed" not in second and "app-ask" in second
    assert len(daemon.requests_for("GET", "/api/recap.*")) == 1


@pytest.mark.parametrize(
    ("hours", "why"), [(0.75, "away for less than an hour"), (0.0, "just now"), (None, "never before")]
)
def test_no_recap_is_requested_after_a_short_absence(daemon: ScriptedDaemon, hours: float | None, why: str) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": [ASKING]})
    if hours is not None:
        set_last_look(daemon, hours)
    assert "Since you" not in on_terminal("status"), why
    assert len([each for each in daemon.requests if each.path.startswith("/api/")]) <= REQUESTS, why


def test_no_recap_is_requested_if_no_event_was_recorded(daemon: ScriptedDaemon) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": [ASKING]})
    set_last_look(daemon, 9.0)
    os.utime(daemon.home / "ao.db", (time.time() - 10 * 3600.0,) * 2)
    assert "Since you" not in on_terminal("status")
    assert len([each for each in daemon.requests if each.path.startswith("/api/")]) <= REQUESTS


def test_only_a_status_at_a_terminal_counts_as_seen(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": [ASKING]})
    daemon.route("GET", "/api/recap.*", RECAP)
    set_last_look(daemon, 9.0)
    before = (daemon.home / "looked.json").read_text()
    assert "landed" not in run("status").out + run("status", "--json").out + on_terminal("status", "--json")
    assert (daemon.home / "looked.json").read_text() == before


@pytest.mark.parametrize("kept", ["", "[]", "{", '{"0": "x"}'])
def test_a_broken_time_of_the_last_status_is_ignored(daemon: ScriptedDaemon, kept: str) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": [ASKING]})
    (daemon.home / "looked.json").write_text(kept)
    assert "app-ask" in on_terminal("status")
    assert json.loads((daemon.home / "looked.json").read_text())[str(os.getuid())] > 0


def test_the_recap_can_be_requested(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/sessions", {"sessions": [ASKING]})
    daemon.route("GET", "/api/recap.*", [RECAP, RECAP, {**RECAP, "lines": []}])
    assert run("status", "--since", "8h").out.startswith("Since 8h:\n  1 landed: app-a by anna\n\n")
    assert json.loads(run("status", "--since", "8h", "--json").out) == RECAP
    assert run("status", "--since", "8h").out.startswith("Nothing to tell since 8h.")
    assert run("status", "--since", "soon").code == run("status", "x", "--since", "8h").code == 2
    assert not (daemon.home / "looked.json").exists()
