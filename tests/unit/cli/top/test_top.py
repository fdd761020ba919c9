"""`ao top`: its keys, its reaction to changes, and its robustness."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from rich.text import Text
from textual import events
from textual.binding import BindingsMap

from agent_orchestrator.cli.top import actions, app, layout
from agent_orchestrator.cli.top.board_state import (
    BoardState,
    Card,
    SessionFilter,
    arrange_columns,
    choose_selection,
    move_selection,
)
from agent_orchestrator.cli.top.keys import KEY_HELP
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon, daemon_at, problem, session
from tests.unit.cli.top.top_screen import (
    DIFF,
    NOW,
    PULL,
    REVIEW,
    SESSIONS,
    RecordedCommands,
    ScriptedBoard,
    screen_lines,
    styled_lines,
    top,
    wait_for_text,
    wait_until,
)

pytestmark = pytest.mark.anyio


def selected(board: app.Top) -> str:
    """Return the highlighted line."""
    lines = ["".join(part for part, style in line if style.reverse) for line in styled_lines(board)]
    return next(line for line in lines if line.strip())


async def test_sessions_that_need_you_come_first_and_idle_ones_are_marked(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "2 need you", "Ready to merge (1)")
        lines = screen_lines(board)
        assert [line.split()[:2] for line in lines[2:5]] == [["!", "clean-up"], ["!", "ask"], ["·", "read-me"]]
        assert selected(board).startswith("! clean-up")


async def test_the_selection_stays_on_its_session_when_it_changes(daemon: ScriptedDaemon) -> None:
    stream = ScriptedBoard(daemon)
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        stream.send(session("clean-up", status="working", says="Going on", progress=None, usage=None), questions=[])
        await wait_for_text(pilot, "Needs you (2)", "Going on")
        assert selected(board).startswith("  clean-up") and board.selected == "app-clean-up"


async def test_an_unreachable_daemon_is_shown_until_it_is_back(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        daemon.stop()
        await wait_for_text(pilot, "the daemon is away", "! clean-up")
        await pilot.press("r")
        await wait_for_text(pilot, "error: the daemon is not running: start it with `ao start`")
        with daemon_at(daemon.home) as again:
            ScriptedBoard(again, [session("new")])
            await wait_for_text(pilot, "the daemon is back", "Working (1)", "new")
            assert "away" not in "\n".join(screen_lines(board))


async def test_an_ended_stream_is_reopened(daemon: ScriptedDaemon) -> None:
    stream = ScriptedBoard(daemon)
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        stream.sessions = [session("later")]
        stream.end()
        await wait_for_text(pilot, "Working (1)")
        await wait_until(pilot, lambda: not board.unreachable_reason)


async def test_an_unreadable_stream_is_reported_until_it_can_be_read(daemon: ScriptedDaemon) -> None:
    stream = ScriptedBoard(daemon, [session("a")])
    daemon.route("GET", "/api/live", DaemonReply(chunks=[b"event: live\ndata: {nonsense\n\n"]))
    board = top()
    async with board.run_test(size=(120, 40)) as pilot:
        await wait_for_text(pilot, "the daemon is away: what it tells cannot be read")
        daemon.route("GET", "/api/live", DaemonReply(chunks=stream.frames()))
        await wait_for_text(pilot, "the daemon is back", "Working (1)")


async def test_the_terminal_of_the_selected_session_is_shown(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    daemon.route("GET", "/api/sessions/app-ask/screen", DaemonReply(b"the other one\n"))
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "ran 41 tests    ok")
        await pilot.press("down")
        await wait_for_text(pilot, "the other one", "? Which database?")
        await pilot.press("p")
        await wait_until(pilot, lambda: "the other one" not in "\n".join(screen_lines(board)))


async def test_an_error_is_one_line(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    daemon.route(
        "POST", "/api/sessions/app-clean-up/restore", problem("conflict", "it runs\n\x1b[2Jalready", "look at it")
    )
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("r")
        await wait_for_text(pilot, "error: it runs [2Jalready: look at it")
        assert board.is_running


async def test_a_message_is_sent_as_typed(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    daemon.route("POST", ".*/message", DaemonReply({"messageId": "m", "state": "queued"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("s", *"qa", "ctrl+j", "[", "x", "enter")
        await wait_for_text(pilot, "app-clean-up: message queued")
        sent = daemon.requests_for("POST", "/api/sessions/app-clean-up/message")
        assert [each.json() for each in sent] == [{"content": "qa\n[x", "interrupt": False}]


def at_once(board: app.Top, *keys: str) -> None:
    """Post keys that arrive together, as from a fast typist, a slow line or a program."""
    for key in keys:
        board.post_message(events.Key(key, key if len(key) == 1 else None))


async def test_keys_typed_ahead_reach_the_dialog_they_open(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    daemon.route("POST", ".*/(message|answer)", DaemonReply({"messageId": "m", "state": "queued"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        at_once(board, "j", "s", *"mxqy", "enter")
        await wait_for_text(pilot, "app-ask: message queued")
        at_once(board, "k", "a", "t", *"yes", "enter")
        await wait_for_text(pilot, "app-clean-up: answered (queued)")
        at_once(board, "x", "escape", "slash", *"docs")
        await wait_for_text(pilot, "In review (1)")
        await wait_until(pilot, lambda: "clean-up" not in "\n".join(screen_lines(board)))
        sent = [each for each in daemon.requests if each.method != "GET"]
        assert [(each.path, each.json().get("content") or each.json().get("text")) for each in sent] == [
            ("/api/sessions/app-ask/message", "mxqy"),
            ("/api/sessions/app-clean-up/answer", "yes"),
        ]


async def test_keys_after_the_enter_of_a_dialog_go_to_the_board(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    daemon.route("POST", ".*/(message|answer)", DaemonReply({"messageId": "m", "state": "queued"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        at_once(board, "s", *"one", "enter", "j", "s", *"two", "enter", "j", "s", "enter", *"three", "enter", "k")
        await wait_until(pilot, lambda: len(daemon.requests_for("POST", ".*")) == 3)
        await wait_until(pilot, lambda: board.selected == "app-ask")
        sent = sorted((each.path.split("/")[3], each.json()["content"]) for each in daemon.requests_for("POST", ".*"))
        assert sent == [("app-ask", "two"), ("app-clean-up", "one"), ("app-read-me", "three")]
        assert len(board.screen_stack) == 1


async def test_keys_after_the_end_of_a_filter_go_to_the_board(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        at_once(board, "slash", *"status:", "enter", "j", "j", "question_mark")
        await wait_for_text(pilot, "these keys")
        assert (board.session_filter.text, board.selected) == ("status:", "app-read-me")
        await pilot.press("escape")
        at_once(board, "escape", "slash", *"docs", "escape", "k")
        await wait_until(pilot, lambda: board.selected == "app-ask")
        await wait_for_text(pilot, "Needs you (3)", "Ready to merge (1)")
        assert board.session_filter.text == ""


async def test_escape_and_empty_input_send_nothing(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("s", "enter", "x", "escape")
        await pilot.press("m", "n", "m", "enter", "escape", "x", "escape", "A", "n", "c", "escape")
        await pilot.pause()
        assert [each.path for each in daemon.requests if each.method != "GET"] == []
        assert len(board.screen_stack) == 1


@pytest.mark.parametrize(("key", "decision"), [("y", "allow"), ("A", "always"), ("n", "deny")])
async def test_a_key_decides_exactly_the_permission_shown(daemon: ScriptedDaemon, key: str, decision: str) -> None:
    ScriptedBoard(daemon)
    daemon.route("POST", ".*/answer", DaemonReply({"messageId": None, "state": "delivered"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("a")
        await wait_for_text(pilot, "app-clean-up asks (permission, 8 min)", "why: it is stale", "A allow always")
        await pilot.press("a", "a", key)
        await wait_for_text(pilot, f"app-clean-up: {decision} (delivered)")
        answers = daemon.requests_for("POST", "/api/sessions/app-clean-up/answer")
        assert [each.json() for each in answers] == [{"decision": decision, "request": "r1"}]


async def test_permissions_and_questions_can_be_answered_with_text(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    daemon.route("POST", ".*/answer", DaemonReply({"messageId": None, "state": "queued"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("a", "t", *"no", "enter")
        await wait_for_text(pilot, "app-clean-up: answered (queued)")
        await pilot.press("down", "a")
        await wait_for_text(pilot, "I need one.")
        await pilot.press(*"pg", "enter")
        await wait_for_text(pilot, "app-ask: answered (queued)")
        await pilot.press("down", "a")
        await wait_for_text(pilot, "app-read-me asks nothing")
        answers = [each.json() for each in daemon.requests_for("POST", ".*/answer")]
        assert answers == [{"text": "no", "request": "r1"}, {"text": "pg"}]


async def test_a_change_can_be_read_and_reviewed(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    daemon.route("GET", "/api/sessions/app-docs/diff", DIFF)
    daemon.route("GET", "/api/sessions/app-docs/review", REVIEW)
    daemon.route("POST", "/api/sessions/app-docs/review", REVIEW)
    board = top()
    async with board.run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "In review (1)")
        await pilot.press("right", "right", "d")
        await wait_for_text(
            pilot,
            "#7 Write the [docs]",
            "  | Hm[2J",
            "not committed yet: b.py",
            "+new [bold]⟦U+001B⟧]0;x⟦U+0007⟧",
            "big.bin",
        )
        await pilot.press("A")
        await wait_for_text(pilot, "Approve the change of app-docs?", "#7 green Write the docs")
        await pilot.press("y")
        await wait_for_text(pilot, "app-docs #7: approved")
        await pilot.press("c", *"no", "enter")
        await wait_for_text(pilot, "app-docs #7: changes requested")
        reviews = [each.json() for each in daemon.requests_for("POST", ".*/review")]
        assert [(each["verdict"], each["body"]) for each in reviews] == [("approved", ""), ("changes_requested", "no")]


async def test_a_change_without_a_pull_request_can_be_read(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    daemon.route(
        "GET", "/api/sessions/app-clean-up/diff", DIFF | {"diff": "", "stat": "", "omitted": [], "uncommitted": []}
    )
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("d")
        await wait_for_text(pilot, "No change yet.")
        await pilot.press("q")
        await wait_for_text(pilot, "Needs you (3)")


@pytest.mark.parametrize(
    ("key", "method", "path", "question", "answer", "expected"),
    [
        (
            "m",
            "POST",
            "/merge",
            "Merge the change of app-clean-up into main?",
            {"status": "merging"},
            "app-clean-up: merging",
        ),
        (
            "x",
            "DELETE",
            "",
            "Stop app-clean-up?",
            {"session": {"status": "stopped"}, "saved": ["all is safe"], "undo": "ao restore clean-up"},
            "app-clean-up stopped; undo: ao restore clean-up; all is safe",
        ),
    ],
)
async def test_irreversible_actions_need_confirmation(
    daemon: ScriptedDaemon, key: str, method: str, path: str, question: str, answer: dict[str, Any], expected: str
) -> None:
    ScriptedBoard(daemon)
    daemon.route(method, f"/api/sessions/app-clean-up{path}", answer)
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press(key)
        await wait_for_text(pilot, question)
        assert daemon.requests_for(method, ".*") == []
        await pilot.press("y")
        await wait_for_text(pilot, expected)
        assert len(daemon.requests_for(method, f"/api/sessions/app-clean-up{path}")) == 1


async def test_attaching_suspends_the_board(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    ran = RecordedCommands()
    board = top(here=ran)
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("enter", "e")
        await wait_until(pilot, lambda: len(ran) == 2)
        await wait_for_text(pilot, "back from app-clean-up")
        assert ran == [["attach", "app-clean-up"], ["open", "app-clean-up", "--editor"]]
        ran.problem = "app-clean-up has no running agent: ao restore app-clean-up"
        await pilot.press("enter")
        await wait_for_text(pilot, "error: app-clean-up has no running agent")


def test_the_error_of_a_command_is_shown_and_no_color_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import os, sys; print(os.environ.get('NO_COLOR')); sys.stderr.write('one\\nao: it \\x1b[1mfailed\\n'); sys.exit({})"
    assert actions.run_here([sys.executable, "-c", program.format(3)], True) == "it [1mfailed"
    assert actions.run_here([sys.executable, "-c", program.format(0)], True) == ""
    assert capfd.readouterr().out == "1\n1\n"


async def test_sessions_are_filtered_by_words_status_and_project(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon, [*SESSIONS, session("x", id="web-x", project="web", title="[b]Other")])
    board = top(None)
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Working (3)", "web-x")
        await pilot.press("slash", *"status:needs")
        await wait_for_text(pilot, "Needs you (1)", "filter: status:needs")
        await pilot.press("enter", "slash", *" q", "enter")
        await wait_for_text(pilot, "Nothing matches status:needs q: Esc")
        await pilot.press("escape", "slash", *"project:web", "enter")
        await wait_for_text(pilot, "Working (1)")
        assert "Needs you" not in "\n".join(screen_lines(board)) and board.selected == "web-x"
        await pilot.press("escape")
        await wait_for_text(pilot, "Working (3)")


async def test_only_sessions_of_the_current_project_are_shown(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon, [session("a"), session("b", project="web", id="web-b")])
    board = top("web")
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Working (1)", "web")
        assert "app-a" not in "\n".join(screen_lines(board))


async def test_external_text_is_neither_markup_nor_control_sequence(daemon: ScriptedDaemon) -> None:
    evil = "[bold red]a[/] [@click=app.quit]b[/] \x1b]0;owned\x07\x1b[2J\x9b1m\u202edc\u200b\r\n\t\x00$x :smile:"
    asks = {"status": "needs_input", "column": "Needs you"}
    hostile = session("evil", title=evil, waitingFor=evil, says=evil, branch=evil, agent=evil, profile=evil, **asks)
    stream = ScriptedBoard(daemon, [hostile | {"name": evil}])
    stream.questions = [
        {"session": "app-evil", "kind": "permission", "text": evil, "context": [evil], "since": "2026-01-02T03:02:00Z"}
        | {"permission": {"tool": "t", "command": evil, "reason": evil}}
    ]
    daemon.route("GET", ".*/screen", DaemonReply(evil.encode()))
    daemon.route("GET", ".*/diff", DIFF | {"diff": evil, "stat": evil, "omitted": [evil], "uncommitted": [evil]})
    daemon.route("GET", ".*/review", REVIEW | {"title": evil, "refused": evil, "conflicts": [evil], "base": evil})
    for size in ((80, 24), (140, 40)):
        board = top()
        async with board.run_test(size=size) as pilot:
            await wait_for_text(pilot, "[bold red]a[/] [@click=app.quit]b[/]")
            for key, words in (
                ("a", "why:"),
                ("escape", "Needs you"),
                ("d", "did not land"),
                ("escape", ""),
                ("m", "[bold"),
            ):
                await pilot.press(key)
                await wait_for_text(pilot, words)
                drawn = [part for line in styled_lines(board) for part in line]
                assert all(part.isprintable() for part, _ in drawn)
                assert not any("\u202e" in part or "\u200b" in part for part, _ in drawn)
                assert not any(style.meta.get("@click") or style.link for _, style in drawn)


async def test_the_board_fits_into_any_terminal_size(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("right", "right", "right", "right")
        for size in ((140, 40), (50, 14), (30, 8), (9, 3), (1, 1), (80, 24)):
            await pilot.resize_terminal(*size)
            await wait_until(pilot, lambda size=size: len(screen_lines(board)) == size[1], f"{size}")  # type: ignore[misc]
            if size[1] >= 8:
                await wait_until(pilot, lambda: "old" in selected(board), f"the selected one at {size}")


async def test_a_long_dialog_can_be_scrolled(daemon: ScriptedDaemon) -> None:
    stream = ScriptedBoard(daemon)
    stream.questions[0] = stream.questions[0] | {"context": [f"line {n}" for n in range(100)]}
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("a")
        await wait_for_text(pilot, "asks (permission", "line 0", "n deny")
        await pilot.press("end")
        await wait_for_text(pilot, "rm -rf build", "why: it is stale", "n deny")


async def test_every_key_is_listed_in_the_help(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await wait_for_text(pilot, "these keys", "quit; sessions run on")
    named = {"up": "↑", "down": "↓", "left": "←", "right": "→", "enter": "Enter", "slash": "/", "question_mark": "?"}
    silent = {"tab", "shift+tab", "pageup", "pagedown", "home", "g", "end", "G", "escape", "ctrl+c", "ctrl+z"}
    explained = {key for keys, _ in KEY_HELP for key in keys.split()}
    bound = {key for each in BindingsMap(app.Top.BINDINGS) for key in each[0].split(",")}
    assert {named.get(key, key) for key in bound - silent} == explained


async def test_a_click_selects_a_session(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    board = top()
    async with board.run_test(size=(120, 40)) as pilot:
        await wait_for_text(pilot, "Working (2)")
        await pilot.click("#board", offset=(30, 6))
        await wait_until(pilot, lambda: board.selected == "app-login")


async def test_the_quit_key_ends_the_board(daemon: ScriptedDaemon) -> None:
    ScriptedBoard(daemon)
    board = top()
    async with board.run_test() as pilot:
        await wait_for_text(pilot, "Needs you (3)")
        await pilot.press("q")
        await pilot.pause()
        assert not board.is_running
    assert board.return_code == 0


def test_a_bug_is_reported_in_one_line(daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ScriptedBoard(daemon)
    daemon.route("GET", "/api/projects", {"projects": [], "here": None})
    monkeypatch.setattr("agent_orchestrator.cli.top.is_interactive", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(layout, "header_line", lambda *_: 1 // 0)
    real = app.Top.run
    monkeypatch.setattr(app.Top, "run", lambda self: real(self, headless=True))
    ran = run("top")
    assert ran.code == 1 and ran.err.startswith("ao: unexpected error: ZeroDivisionError") and ran.err.count("\n") == 1


def test_without_a_terminal_the_command_is_refused(daemon: ScriptedDaemon, run: Run) -> None:
    ran = run("top")
    assert ran.code == 2 and ran.out == "" and "ao status" in ran.err and ran.err.count("\n") == 1
    assert daemon.requests == []


def test_a_dumb_terminal_is_refused(daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.cli.top.is_interactive", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert run("top").code == 2 and daemon.requests == []


def test_an_unknown_project_is_refused(daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.cli.top.is_interactive", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    daemon.route("GET", "/api/projects", {"projects": [{"id": "app"}], "here": "app"})
    ran = run("top", "-p", "web")
    assert ran.code == 3 and ran.err == "ao: no project web: known: app\n"
    assert run("top", "-p", "app", "-A").code == 2


@pytest.mark.parametrize(
    ("argv", "here", "project"),
    [
        (["top"], "app", "app"),
        (["top"], None, None),
        (["top", "-A"], "app", None),
        (["-p", "web", "top"], "app", "web"),
    ],
)
def test_the_scope_is_chosen_as_in_other_commands(
    daemon: ScriptedDaemon,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    here: str | None,
    project: str | None,
) -> None:
    monkeypatch.setattr("agent_orchestrator.cli.top.is_interactive", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    began: list[str | None] = []
    monkeypatch.setattr(app.Top, "run", lambda self: began.append(self.project))
    daemon.route("GET", "/api/projects", {"projects": [{"id": "app"}, {"id": "web"}], "here": here})
    assert run(*argv).code == 0
    assert began == [project]


def test_the_help_does_not_load_textual() -> None:
    program = "import sys\nfrom agent_orchestrator.cli import main\nmain(['top', '--help'])\nprint(*sys.modules, file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert "--all-projects" in ran.stdout
    assert not {"textual", "rich", "asyncio"} & set(ran.stderr.split())


# -- computations without a screen ----------------------------------------------------------------------------------------


def fleet(*sessions: dict[str, Any]) -> BoardState:
    return BoardState().with_frame({"complete": True, "sessions": list(sessions), "questions": [], "overview": {}})


def test_an_incomplete_frame_changes_only_its_sessions() -> None:
    before = fleet(session("a"), session("b"))
    after = before.with_frame({"complete": False, "sessions": [session("b", status="idle")], "questions": None})
    assert [each["status"] for each in after.sessions.values()] == ["working", "idle"] and after.is_ready
    assert list(after.with_frame({"complete": True, "sessions": [session("c")]}).sessions) == ["app-c"]


def test_a_session_with_a_question_is_not_marked_as_idle() -> None:
    idle = session("a", status="idle", column="Needs you")
    with_question = fleet(idle).with_frame({"questions": [{"session": "app-a"}]})
    assert [
        arrange_columns(each, SessionFilter())["Needs you"][0].is_quiet for each in (fleet(idle), with_question)
    ] == [True, False]


def test_the_selection_moves_to_a_neighbour_of_a_removed_session() -> None:
    three = ["app-a", "app-b", "app-c"]
    columns = arrange_columns(fleet(session("a"), session("c")), SessionFilter())
    assert choose_selection(columns, "app-b", three) == "app-c"
    assert choose_selection(columns, "app-c", three) == "app-c"
    assert choose_selection(arrange_columns(fleet(session("a")), SessionFilter()), "app-c", three) == "app-a"
    assert choose_selection(arrange_columns(fleet(), SessionFilter()), "app-c", three) is None
    assert choose_selection(columns, None, []) == "app-a"


def test_moving_skips_empty_columns_and_stops_at_the_edge() -> None:
    columns = arrange_columns(
        fleet(session("n", column="Needs you"), session("n2", column="Needs you"), session("d", column="Done")),
        SessionFilter(),
    )
    assert move_selection(columns, "app-n2", 1, 0) == "app-d" == move_selection(columns, "app-d", 1, 0)
    assert move_selection(columns, "app-d", -1, 0) == "app-n"
    assert move_selection(columns, "app-n", 0, 10) == "app-n2" and move_selection(columns, "app-n2", 0, -10) == "app-n"
    assert move_selection(columns, None, 0, 1) == "app-n"
    assert move_selection(arrange_columns(fleet(), SessionFilter()), None, 0, 1) is None


def test_scrolling_moves_as_little_as_possible() -> None:
    assert layout.scroll_offset(0, 4, 5, 10) == 0
    assert layout.scroll_offset(0, 5, 5, 10) == 1
    assert layout.scroll_offset(3, 4, 5, 10) == 3
    assert layout.scroll_offset(3, 2, 5, 10) == 2
    assert layout.scroll_offset(9, None, 5, 10) == 5
    assert layout.scroll_offset(3, 1, 5, 2) == 0


def test_a_card_shows_the_most_important_line() -> None:
    texts = [
        layout.main_text(Card(session("a", **more), quiet))
        for more, quiet in (
            ({"waitingFor": "x", "says": "y"}, False),
            ({"waitingFor": "x", "says": "y"}, True),
            ({"pr": PULL}, False),
            ({"progress": None, "usage": None, "says": "y"}, False),
            ({"progress": None, "usage": None}, False),
        )
    ]
    assert texts == ["waits for x", "y", "#7 green", "y", "Fix the login"]


def test_a_sessions_screen_is_shown_without_empty_parts() -> None:
    assert layout.screen_lines("\n\na\tb\n\n\n\nc\x1b[2J\n\n") == ["a       b", "", "c[2J"]
    assert layout.screen_lines("") == []


def test_each_line_of_the_list_is_one_text() -> None:
    drawn = layout.draw_board(arrange_columns(fleet(session("a")), SessionFilter()), "app-a", (80, 5), NOW, {})
    assert [type(line) for line in drawn.lines] == [Text, Text]
    assert drawn.session_at(3, 1) == "app-a" and drawn.session_at(3, 0) is None
