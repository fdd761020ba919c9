"""Session commands: new, create, send, stop, restore, answer."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon, problem, session


def ndjson(*messages: object) -> DaemonReply:
    return DaemonReply(chunks=[json.dumps(message).encode() + b"\n" for message in messages])


def created_bodies(daemon: ScriptedDaemon) -> list[dict[str, object]]:
    return [each.json() for each in daemon.requests_for("POST", "/api/sessions")]


@pytest.fixture
def sessions(daemon: ScriptedDaemon) -> ScriptedDaemon:
    daemon.route("POST", "/api/sessions", DaemonReply(session("s", status="starting"), 201))
    daemon.route(
        "GET",
        r"/api/sessions/app-s/wait\?until=running",
        ndjson({"output": "npm ci\x1b[2J"}, {"state": "starting"}, {"session": session("s")}),
    )
    return daemon


@pytest.mark.parametrize("task", ["123", "#123", "GH-123", "gh-1", "LIN-3", "https://github.com/o/r/issues/1"])
def test_an_issue_is_recognized_in_any_notation(sessions: ScriptedDaemon, run: Run, task: str) -> None:
    assert run("new", task).code == 0
    assert created_bodies(sessions) == [{"issue": task}]


@pytest.mark.parametrize("task", ["fix #123", "lin-3 is broken", "fix-3", "123 things", "https://x y"])
def test_other_text_is_a_prompt(sessions: ScriptedDaemon, run: Run, task: str) -> None:
    assert run("new", task).code == 0
    assert created_bodies(sessions) == [{"prompt": task}]


def test_new_shows_the_set_up_and_the_next_command(sessions: ScriptedDaemon, run: Run) -> None:
    ran = run("new", "Fix login validation bug", "--project", "my-app", "--issue", "123")
    assert created_bodies(sessions) == [{"prompt": "Fix login validation bug", "issue": "123", "projectId": "my-app"}]
    assert "npm ci[2J" in ran.err and "\x1b" not in ran.err
    for text in ("app-s working", "feature/s", "/w/s", "ao attach app-s"):
        assert text in ran.out


def test_every_option_is_passed_on(sessions: ScriptedDaemon, run: Run) -> None:
    argv = "--agent a --model m --branch b --base r --name n --after x --after y --stack --pr 7 --label l --label k --priority 2"
    ran = run("new", "t", *argv.split(), "--runtime", "tmux", "--workspace", "clone", "--node", "n1")
    assert ran.code == 0
    assert created_bodies(sessions) == [
        {
            "prompt": "t",
            "agent": "a",
            "model": "m",
            "branch": "b",
            "base": "r",
            "name": "n",
            "after": ["x", "y"],
            "stack": True,
        }
        | {"pr": "7", "labels": ["l", "k"], "priority": 2, "runtime": "tmux", "workspace": "clone", "node": "n1"}
    ]


def test_each_task_is_a_session_and_a_refused_one_does_not_stop_the_others(daemon: ScriptedDaemon, run: Run) -> None:
    replies = [
        DaemonReply(session("a"), 201),
        problem("conflict", "branch feature/b exists", "give --branch", status=409),
        DaemonReply(session("c"), 201),
    ]
    daemon.route("POST", "/api/sessions", replies)
    ran = run("spawn", "one", "two", "three", "--no-wait", "--json")
    assert ran.code == 1
    assert ran.err == "ao: branch feature/b exists: give --branch\n"
    assert [each["id"] for each in json.loads(ran.out)["sessions"]] == ["app-a", "app-c"]


def test_json_of_one_task_is_the_session(sessions: ScriptedDaemon, run: Run) -> None:
    assert json.loads(run("new", "t", "--json").out) == session("s")


def test_a_session_that_fails_to_start_is_a_failure(daemon: ScriptedDaemon, run: Run) -> None:
    failed = session("s", status="failed", why="postCreate exited with 1", lastOutput="npm: not found\n")
    daemon.route("POST", "/api/sessions", DaemonReply(session("s", status="starting"), 201))
    daemon.route("GET", "/api/sessions/app-s/wait.*", ndjson({"session": failed}))
    ran = run("new", "t")
    assert ran.code == 1
    assert (
        "app-s failed: postCreate exited with 1" in ran.err
        and "npm: not found" in ran.err
        and "ao why app-s" in ran.err
    )


def test_waiting_continues_when_the_daemon_restarts(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("POST", "/api/sessions", DaemonReply(session("s", status="starting"), 201))
    cut = DaemonReply(b'{"output": "one"}\n{"output": "two"}\n' + b" " * 100, drop="within")
    daemon.route(
        "GET",
        "/api/sessions/app-s/wait.*",
        [cut, ndjson({"output": "one"}, {"output": "two"}, {"session": session("s")})],
    )
    ran = run("new", "t")
    assert ran.code == 0 and "app-s working" in ran.out
    assert ran.err.split() == ["one", "two"]


def test_a_task_can_be_read_from_a_file_or_standard_input(
    sessions: ScriptedDaemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "task.md").write_text("line 1\nline 2\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("from\nstdin"))
    run("new", "--file", str(tmp_path / "task.md"), "--no-wait")
    run("new", "-", "--no-wait")
    assert [body["prompt"] for body in created_bodies(sessions)] == ["line 1\nline 2\n", "from\nstdin"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["new"], "no task given"),
        (["new", " "], "the task is empty"),
        (["new", "a", "b", "--name", "n"], "--name is for one task"),
        (["new", "12", "--issue", "13"], "two issues"),
        (["new", "a", "--file", "x"], "as text and as a file"),
        (["new", "--file", "/nowhere/x"], "/nowhere/x cannot be read"),
        (["new", "a", "--priority", "high"], "'high' is not a valid integer"),
        (["send", "s"], "the message is empty"),
        (["send", "s", "a", "--file", "x"], "given twice"),
        (["path", ""], "name is empty"),
        (["status", "-A", "-p", "x"], "exclude each other"),
        (["stop"], "ao shutdown"),
        (["stop", "--all"], "-p P"),
        (["stop", "x", "-p", "y", "--all"], "-p P"),
        (["attach", "s"], "needs a terminal"),
        (["nwe", "x"], "did you mean new"),
        (["new", "--agnet", "x"], "--agent"),
        (["token", "lst"], "lst"),
        (["api", "BREW", "/x"], "BREW"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_2(daemon: ScriptedDaemon, run: Run, argv: list[str], text: str) -> None:
    ran = run(*argv)
    assert ran.code == 2
    assert text in ran.err and ran.err.startswith("ao: ") and ran.err.count("\n") == 1
    assert daemon.requests == [] and ran.out == ""


def test_the_editor_opens_if_no_task_is_given(
    sessions: ScriptedDaemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "ed"
    script.write_text('#!/bin/sh\nprintf "# comment\\nwrite more tests\\n" > "$1"\n')
    script.chmod(0o755)
    monkeypatch.setattr("agent_orchestrator.cli.sessions.new.is_interactive", lambda: True)
    monkeypatch.setenv("EDITOR", str(script))
    assert run("new", "--no-wait").code == 0
    assert created_bodies(sessions) == [{"prompt": "write more tests"}]
    monkeypatch.setenv("VISUAL", "true")
    ran = run("new")
    assert ran.code == 2 and "the task is empty" in ran.err and len(created_bodies(sessions)) == 1


def test_create_creates_deferred_sessions(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route(
        "POST", "/api/sessions", lambda request: DaemonReply(session(request.json()["name"], status="idle"), 201)
    )
    assert run("create", "one", "two", "--agent", "demo").code == 0
    assert created_bodies(daemon) == [{"name": name, "agent": "demo", "defer": True} for name in ("one", "two")]


def test_send_joins_words(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("POST", "/api/sessions/my%20s/message", DaemonReply({"messageId": "m1", "state": "queued"}, 202))
    ran = run("prompt", "my s", "fix", "the test", "--interrupt", "--json")
    assert json.loads(ran.out) == {"messageId": "m1", "state": "queued"}
    assert daemon.requests[-1].json() == {"content": "fix the test", "interrupt": True}


@pytest.mark.parametrize(("state", "code"), [("acknowledged", 0), ("delivered", 0), ("failed", 1)])
def test_send_waits_for_the_agent(daemon: ScriptedDaemon, run: Run, state: str, code: int) -> None:
    daemon.route("POST", "/api/sessions/s/message", DaemonReply({"messageId": "m1", "state": "queued"}, 202))
    daemon.route(
        "GET", r"/api/sessions/s/messages/m1\?wait=30", {"messageId": "m1", "state": state, "reason": "why\nso"}
    )
    ran = run("send", "s", "hi", "--wait")
    assert ran.code == code
    assert ran.out == f"{state}: message m1 to s (why so)\n"


def test_send_reports_a_timeout(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("POST", "/api/sessions/s/message", DaemonReply({"messageId": "m1", "state": "queued"}, 202))
    daemon.route("GET", r"/api/sessions/s/messages/m1\?wait=1", {"messageId": "m1", "state": "held"})
    ran = run("send", "s", "hi", "--wait", "--timeout", "0.01")
    assert ran.code == 1 and "still held" in ran.err


def test_stop_shows_where_the_work_was_saved(daemon: ScriptedDaemon, run: Run) -> None:
    stopped = {
        "session": session("a", status="stopped"),
        "saved": ["2 files saved under refs/ao/rescue/app-a"],
        "undo": "ao restore app-a",
    }
    daemon.route("DELETE", r"/api/sessions/a\?keep=1", stopped)
    daemon.route(
        "DELETE",
        r"/api/sessions/b\?keep=1",
        problem("not-found", "no session b", "see ao status", status=404, exit_code=3),
    )
    ran = run("stop", "a", "b", "--keep")
    assert ran.code == 3 and ran.err == "ao: no session b: see ao status\n"
    assert ran.out == "app-a stopped\n  2 files saved under refs/ao/rescue/app-a\n  undo: ao restore app-a\n"


def test_all_sessions_of_a_project_can_be_stopped(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("DELETE", r"/api/sessions\?project=web", {"stopped": []})
    assert run("stop", "-p", "web", "--all").out == "No session of web runs.\n"


def test_restore_waits_for_the_agent(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("POST", "/api/sessions/s/restore", DaemonReply(session("s", status="starting"), 202))
    daemon.route("GET", "/api/sessions/app-s/wait.*", ndjson({"session": session("s")}))
    ran = run("resume", "s")
    assert ran.code == 0 and "app-s working" in ran.out


QUESTIONS = [
    {
        "session": "app-a",
        "kind": "question",
        "text": "Which database?",
        "request": "r-a",
        "since": "2026-01-01T00:00:00Z",
        "context": ["I looked", "at it"],
    },
    {
        "session": "app-b",
        "kind": "permission",
        "text": "rm -rf build",
        "request": "r-b",
        "since": "2026-01-02T00:00:00Z",
        "context": [],
    },
]


@pytest.fixture
def asking(daemon: ScriptedDaemon) -> ScriptedDaemon:
    daemon.route("GET", "/api/questions.*", {"questions": QUESTIONS})
    daemon.route("POST", "/api/sessions/.*/answer", DaemonReply({"state": "queued"}, 202))
    return daemon


def answers(daemon: ScriptedDaemon) -> list[tuple[str, object]]:
    return [(each.path.split("/")[3], each.json()) for each in daemon.requests_for("POST", ".*/answer")]


def test_an_answer_needs_no_terminal(asking: ScriptedDaemon, run: Run) -> None:
    run("answer", "a", "use", "SQLite")
    run("answer", "b", "--always")
    run("answer", "b", "--deny", "not that folder")
    run("answer", "b", "--allow", "--request", "r-0")
    run("answer", "--allow")
    assert answers(asking) == [
        ("a", {"text": "use SQLite"}),
        ("b", {"decision": "always"}),
        ("b", {"decision": "deny", "text": "not that folder"}),
        ("b", {"decision": "allow", "request": "r-0"}),
        ("app-b", {"decision": "allow", "request": "r-b"}),
    ]


def test_several_questions_without_a_terminal_are_listed(asking: ScriptedDaemon, run: Run) -> None:
    ran = run("answer")
    assert ran.code == 2 and "ao answer S TEXT" in ran.err
    assert "app-a (question" in ran.out and "rm -rf build" in ran.out
    assert json.loads(run("answer", "--json").out) == {"questions": QUESTIONS}


def test_an_ambiguous_decision_is_refused(asking: ScriptedDaemon, run: Run) -> None:
    permissions = [QUESTIONS[1], QUESTIONS[1] | {"session": "app-c"}]
    asking.route("GET", "/api/questions", {"questions": permissions})
    ran = run("answer", "--allow")
    assert ran.code == 2 and "app-c" in ran.out and "ao answer S --allow" in ran.err and answers(asking) == []


def test_questions_are_answered_in_turn(asking: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.cli.sessions.answer.is_interactive", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("SQLite\nA\n"))
    ran = run("answer")
    assert ran.code == 0 and "| I looked" in ran.out
    assert answers(asking) == [
        ("app-a", {"text": "SQLite", "request": "r-a"}),
        ("app-b", {"decision": "always", "request": "r-b"}),
    ]


def test_a_held_message_is_shown_completely(asking: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"session": "app-c", "kind": "message", "text": "words of eve", "message": "r-1", "since": None}
    asking.route("GET", "/api/questions", {"questions": [held | {"context": [f"line {n}" for n in range(40)]}] * 2})
    monkeypatch.setattr("agent_orchestrator.cli.sessions.answer.is_interactive", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nd\n"))
    ran = run("answer")
    assert "| line 0\n" in ran.out and "words of eve" in ran.out and "refuse it" in ran.out
    assert answers(asking) == [
        ("app-c", {"decision": "allow", "message": "r-1"}),
        ("app-c", {"decision": "deny", "message": "r-1"}),
    ]


def test_a_question_can_be_skipped_and_the_dialog_ended(
    asking: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.cli.sessions.answer.is_interactive", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("\nq\n"))
    assert run("answer").code == 0 and answers(asking) == []


def test_an_empty_list_of_questions_is_reported(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/questions", {"questions": []})
    assert run("answer").out == "Nothing waits for you.\n"
