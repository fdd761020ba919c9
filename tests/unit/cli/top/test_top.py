"""`ao top`: what its keys do, what it shows of what happens, and that it stands whatever comes."""

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
from agent_orchestrator.cli.top.fleet import Card, Filter, Fleet, arrange, choose, move
from agent_orchestrator.cli.top.keys import KEYS
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import Daemon, Reply, daemon_at, problem, session
from tests.unit.cli.top.top_screen import DIFF, NOW, PULL, REVIEW, SESSIONS, Board, Ran, shown, styled, text, top, until

pytestmark = pytest.mark.anyio


def selected(shown: app.Top) -> str:
    """The line that stands out."""
    found = ["".join(part for part, style in line if style.reverse) for line in styled(shown)]
    return next(line for line in found if line.strip())


async def test_those_that_need_you_come_first_and_quiet_ones_are_marked(daemon: Daemon) -> None:
    Board(daemon)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await shown(pilot, "2 need you", "Ready to merge (1)")
        lines = text(board)
        assert [line.split()[:2] for line in lines[2:5]] == [["!", "clean-up"], ["!", "ask"], ["·", "read-me"]]
        assert selected(board).startswith("! clean-up")


async def test_a_change_is_shown_when_it_happens_and_the_selection_goes_with_its_session(daemon: Daemon) -> None:
    told = Board(daemon)
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        told.tell(session("clean-up", status="working", says="Going on", progress=None, usage=None), questions=[])
        await shown(pilot, "Needs you (2)", "Going on")
        assert selected(board).startswith("  clean-up") and board.selected == "app-clean-up"


async def test_it_says_that_the_daemon_is_away_and_comes_back_with_it(daemon: Daemon) -> None:
    Board(daemon)
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        daemon.stop()
        await shown(pilot, "the daemon is away", "! clean-up")
        await pilot.press("r")
        await shown(pilot, "error: the daemon is not running: start it with `ao start`")
        with daemon_at(daemon.home) as again:
            Board(again, [session("new")])
            await shown(pilot, "the daemon is back", "Working (1)", "new")
            assert "away" not in "\n".join(text(board))


async def test_a_stream_that_ends_is_taken_up_again(daemon: Daemon) -> None:
    told = Board(daemon)
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        told.sessions = [session("later")]
        told.end()
        await shown(pilot, "Working (1)")
        await until(pilot, lambda: not board.away)


async def test_what_cannot_be_read_is_told_and_gone_when_it_can(daemon: Daemon) -> None:
    told = Board(daemon, [session("a")])
    daemon.route("GET", "/api/live", Reply(chunks=[b"event: live\ndata: {nonsense\n\n"]))
    board = top()
    async with board.run_test(size=(120, 40)) as pilot:
        await shown(pilot, "the daemon is away: what it tells cannot be read")
        daemon.route("GET", "/api/live", Reply(chunks=told.frames()))
        await shown(pilot, "the daemon is back", "Working (1)")


async def test_the_chosen_ones_terminal_is_shown(daemon: Daemon) -> None:
    Board(daemon)
    daemon.route("GET", "/api/sessions/app-ask/screen", Reply(b"the other one\n"))
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "ran 41 tests    ok")
        await pilot.press("down")
        await shown(pilot, "the other one", "? Which database?")
        await pilot.press("p")
        await until(pilot, lambda: "the other one" not in "\n".join(text(board)))


async def test_an_error_is_one_line(daemon: Daemon) -> None:
    Board(daemon)
    daemon.route(
        "POST", "/api/sessions/app-clean-up/restore", problem("conflict", "it runs\n\x1b[2Jalready", "look at it")
    )
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("r")
        await shown(pilot, "error: it runs [2Jalready: look at it")
        assert board.is_running


async def test_a_message_is_sent_as_typed(daemon: Daemon) -> None:
    Board(daemon)
    daemon.route("POST", ".*/message", Reply({"messageId": "m", "state": "queued"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("s", *"qa", "ctrl+j", "[", "x", "enter")
        await shown(pilot, "app-clean-up: message queued")
        sent = daemon.asked("POST", "/api/sessions/app-clean-up/message")
        assert [each.json() for each in sent] == [{"content": "qa\n[x", "interrupt": False}]


def at_once(board: app.Top, *keys: str) -> None:
    """Keys that come in one piece, as from a fast hand, a slow line or another program."""
    for key in keys:
        board.post_message(events.Key(key, key if len(key) == 1 else None))


async def test_what_is_typed_at_once_reaches_the_dialog_that_it_opens(daemon: Daemon) -> None:
    Board(daemon)
    daemon.route("POST", ".*/(message|answer)", Reply({"messageId": "m", "state": "queued"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        at_once(board, "j", "s", *"mxqy", "enter")
        await shown(pilot, "app-ask: message queued")
        at_once(board, "k", "a", "t", *"yes", "enter")
        await shown(pilot, "app-clean-up: answered (queued)")
        at_once(board, "x", "escape", "slash", *"docs")
        await shown(pilot, "In review (1)")
        await until(pilot, lambda: "clean-up" not in "\n".join(text(board)))
        sent = [each for each in daemon.requests if each.method != "GET"]
        assert [(each.path, each.json().get("content") or each.json().get("text")) for each in sent] == [
            ("/api/sessions/app-ask/message", "mxqy"),
            ("/api/sessions/app-clean-up/answer", "yes"),
        ]


async def test_keys_right_behind_the_enter_that_sends_go_to_the_board(daemon: Daemon) -> None:
    Board(daemon)
    daemon.route("POST", ".*/(message|answer)", Reply({"messageId": "m", "state": "queued"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        at_once(board, "s", *"one", "enter", "j", "s", *"two", "enter", "j", "s", "enter", *"three", "enter", "k")
        await until(pilot, lambda: len(daemon.asked("POST", ".*")) == 3)
        await until(pilot, lambda: board.selected == "app-ask")
        sent = sorted((each.path.split("/")[3], each.json()["content"]) for each in daemon.asked("POST", ".*"))
        assert sent == [("app-ask", "two"), ("app-clean-up", "one"), ("app-read-me", "three")]
        assert len(board.screen_stack) == 1


async def test_keys_right_behind_the_end_of_a_filter_go_to_the_board(daemon: Daemon) -> None:
    Board(daemon)
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        at_once(board, "slash", *"status:", "enter", "j", "j", "question_mark")
        await shown(pilot, "these keys")
        assert (board.session_filter.text, board.selected) == ("status:", "app-read-me")
        await pilot.press("escape")
        at_once(board, "escape", "slash", *"docs", "escape", "k")
        await until(pilot, lambda: board.selected == "app-ask")
        await shown(pilot, "Needs you (3)", "Ready to merge (1)")
        assert board.session_filter.text == ""


async def test_nothing_is_sent_by_escape_or_without_words(daemon: Daemon) -> None:
    Board(daemon)
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("s", "enter", "x", "escape")
        await pilot.press("m", "n", "m", "enter", "escape", "x", "escape", "A", "n", "c", "escape")
        await pilot.pause()
        assert [each.path for each in daemon.requests if each.method != "GET"] == []
        assert len(board.screen_stack) == 1


@pytest.mark.parametrize(("key", "decision"), [("y", "allow"), ("A", "always"), ("n", "deny")])
async def test_a_permission_is_decided_by_one_key_and_only_the_one_that_was_shown(
    daemon: Daemon, key: str, decision: str
) -> None:
    Board(daemon)
    daemon.route("POST", ".*/answer", Reply({"messageId": None, "state": "delivered"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("a")
        await shown(pilot, "app-clean-up asks (permission, 8 min)", "why: it is stale", "A allow always")
        await pilot.press("a", "a", key)
        await shown(pilot, f"app-clean-up: {decision} (delivered)")
        given = daemon.asked("POST", "/api/sessions/app-clean-up/answer")
        assert [each.json() for each in given] == [{"decision": decision, "request": "r1"}]


async def test_a_permission_may_be_answered_by_text_and_a_question_is(daemon: Daemon) -> None:
    Board(daemon)
    daemon.route("POST", ".*/answer", Reply({"messageId": None, "state": "queued"}, 202))
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("a", "t", *"no", "enter")
        await shown(pilot, "app-clean-up: answered (queued)")
        await pilot.press("down", "a")
        await shown(pilot, "I need one.")
        await pilot.press(*"pg", "enter")
        await shown(pilot, "app-ask: answered (queued)")
        await pilot.press("down", "a")
        await shown(pilot, "app-read-me asks nothing")
        given = [each.json() for each in daemon.asked("POST", ".*/answer")]
        assert given == [{"text": "no", "request": "r1"}, {"text": "pg"}]


async def test_a_change_is_read_and_judged(daemon: Daemon) -> None:
    Board(daemon)
    daemon.route("GET", "/api/sessions/app-docs/diff", DIFF)
    daemon.route("GET", "/api/sessions/app-docs/review", REVIEW)
    daemon.route("POST", "/api/sessions/app-docs/review", REVIEW)
    board = top()
    async with board.run_test(size=(100, 30)) as pilot:
        await shown(pilot, "In review (1)")
        await pilot.press("right", "right", "d")
        await shown(
            pilot,
            "#7 Write the [docs]",
            "  | Hm[2J",
            "not committed yet: b.py",
            "+new [bold]⟦U+001B⟧]0;x⟦U+0007⟧",
            "big.bin",
        )
        await pilot.press("A")
        await shown(pilot, "Approve the change of app-docs?", "#7 green Write the docs")
        await pilot.press("y")
        await shown(pilot, "app-docs #7: approved")
        await pilot.press("c", *"no", "enter")
        await shown(pilot, "app-docs #7: changes requested")
        judged = [each.json() for each in daemon.asked("POST", ".*/review")]
        assert [(each["verdict"], each["body"]) for each in judged] == [("approved", ""), ("changes_requested", "no")]


async def test_a_change_without_a_pull_request_is_shown_too(daemon: Daemon) -> None:
    Board(daemon)
    daemon.route(
        "GET", "/api/sessions/app-clean-up/diff", DIFF | {"diff": "", "stat": "", "omitted": [], "uncommitted": []}
    )
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("d")
        await shown(pilot, "No change yet.")
        await pilot.press("q")
        await shown(pilot, "Needs you (3)")


@pytest.mark.parametrize(
    ("key", "method", "path", "question", "answer", "said"),
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
async def test_what_cannot_be_taken_back_at_once_is_asked_first(
    daemon: Daemon, key: str, method: str, path: str, question: str, answer: dict[str, Any], said: str
) -> None:
    Board(daemon)
    daemon.route(method, f"/api/sessions/app-clean-up{path}", answer)
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press(key)
        await shown(pilot, question)
        assert daemon.asked(method, ".*") == []
        await pilot.press("y")
        await shown(pilot, said)
        assert len(daemon.asked(method, f"/api/sessions/app-clean-up{path}")) == 1


async def test_attach_leaves_the_terminal_to_the_session_and_comes_back(daemon: Daemon) -> None:
    Board(daemon)
    ran = Ran()
    board = top(here=ran)
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("enter", "e")
        await until(pilot, lambda: len(ran) == 2)
        await shown(pilot, "back from app-clean-up")
        assert ran == [["attach", "app-clean-up"], ["open", "app-clean-up", "--editor"]]
        ran.problem = "app-clean-up has no running agent: ao restore app-clean-up"
        await pilot.press("enter")
        await shown(pilot, "error: app-clean-up has no running agent")


def test_what_a_command_says_went_wrong_is_told_and_no_color_handed_on(capfd: pytest.CaptureFixture[str]) -> None:
    program = "import os, sys; print(os.environ.get('NO_COLOR')); sys.stderr.write('one\\nao: it \\x1b[1mfailed\\n'); sys.exit({})"
    assert actions.run_here([sys.executable, "-c", program.format(3)], True) == "it [1mfailed"
    assert actions.run_here([sys.executable, "-c", program.format(0)], True) == ""
    assert capfd.readouterr().out == "1\n1\n"


async def test_filter_by_words_status_and_project(daemon: Daemon) -> None:
    Board(daemon, [*SESSIONS, session("x", id="web-x", project="web", title="[b]Other")])
    board = top(None)
    async with board.run_test() as pilot:
        await shown(pilot, "Working (3)", "web-x")
        await pilot.press("slash", *"status:needs")
        await shown(pilot, "Needs you (1)", "filter: status:needs")
        await pilot.press("enter", "slash", *" q", "enter")
        await shown(pilot, "Nothing matches status:needs q: Esc")
        await pilot.press("escape", "slash", *"project:web", "enter")
        await shown(pilot, "Working (1)")
        assert "Needs you" not in "\n".join(text(board)) and board.selected == "web-x"
        await pilot.press("escape")
        await shown(pilot, "Working (3)")


async def test_only_the_project_here_is_shown(daemon: Daemon) -> None:
    Board(daemon, [session("a"), session("b", project="web", id="web-b")])
    board = top("web")
    async with board.run_test() as pilot:
        await shown(pilot, "Working (1)", "web")
        assert "app-a" not in "\n".join(text(board))


async def test_strangers_words_neither_steer_the_terminal_nor_are_markup(daemon: Daemon) -> None:
    evil = "[bold red]a[/] [@click=app.quit]b[/] \x1b]0;owned\x07\x1b[2J\x9b1m\u202edc\u200b\r\n\t\x00$x :smile:"
    asks = {"status": "needs_input", "column": "Needs you"}
    hostile = session("evil", title=evil, waitingFor=evil, says=evil, branch=evil, agent=evil, profile=evil, **asks)
    told = Board(daemon, [hostile | {"name": evil}])
    told.questions = [
        {"session": "app-evil", "kind": "permission", "text": evil, "context": [evil], "since": "2026-01-02T03:02:00Z"}
        | {"permission": {"tool": "t", "command": evil, "reason": evil}}
    ]
    daemon.route("GET", ".*/screen", Reply(evil.encode()))
    daemon.route("GET", ".*/diff", DIFF | {"diff": evil, "stat": evil, "omitted": [evil], "uncommitted": [evil]})
    daemon.route("GET", ".*/review", REVIEW | {"title": evil, "refused": evil, "conflicts": [evil], "base": evil})
    for size in ((80, 24), (140, 40)):
        board = top()
        async with board.run_test(size=size) as pilot:
            await shown(pilot, "[bold red]a[/] [@click=app.quit]b[/]")
            for key, words in (
                ("a", "why:"),
                ("escape", "Needs you"),
                ("d", "did not land"),
                ("escape", ""),
                ("m", "[bold"),
            ):
                await pilot.press(key)
                await shown(pilot, words)
                drawn = [part for line in styled(board) for part in line]
                assert all(part.isprintable() for part, _ in drawn)
                assert not any("\u202e" in part or "\u200b" in part for part, _ in drawn)
                assert not any(style.meta.get("@click") or style.link for _, style in drawn)


async def test_it_fits_whatever_size_the_terminal_gets(daemon: Daemon) -> None:
    Board(daemon)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("right", "right", "right", "right")
        for size in ((140, 40), (50, 14), (30, 8), (9, 3), (1, 1), (80, 24)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: len(text(board)) == size[1], f"{size}")  # type: ignore[misc]
            if size[1] >= 8:
                await until(pilot, lambda: "old" in selected(board), f"the selected one at {size}")


async def test_a_dialog_fits_too(daemon: Daemon) -> None:
    told = Board(daemon)
    told.questions[0] = told.questions[0] | {"context": [f"line {n}" for n in range(100)]}
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("a")
        await shown(pilot, "asks (permission", "line 0", "n deny")
        await pilot.press("end")
        await shown(pilot, "rm -rf build", "why: it is stale", "n deny")


async def test_every_key_is_explained(daemon: Daemon) -> None:
    Board(daemon)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await shown(pilot, "these keys", "quit; sessions run on")
    named = {"up": "↑", "down": "↓", "left": "←", "right": "→", "enter": "Enter", "slash": "/", "question_mark": "?"}
    silent = {"tab", "shift+tab", "pageup", "pagedown", "home", "g", "end", "G", "escape", "ctrl+c", "ctrl+z"}
    explained = {key for keys, _ in KEYS for key in keys.split()}
    bound = {key for each in BindingsMap(app.Top.BINDINGS) for key in each[0].split(",")}
    assert {named.get(key, key) for key in bound - silent} == explained


async def test_a_click_selects(daemon: Daemon) -> None:
    Board(daemon)
    board = top()
    async with board.run_test(size=(120, 40)) as pilot:
        await shown(pilot, "Working (2)")
        await pilot.click("#board", offset=(30, 6))
        await until(pilot, lambda: board.selected == "app-login")


async def test_quit(daemon: Daemon) -> None:
    Board(daemon)
    board = top()
    async with board.run_test() as pilot:
        await shown(pilot, "Needs you (3)")
        await pilot.press("q")
        await pilot.pause()
        assert not board.is_running
    assert board.return_code == 0


def test_a_defect_is_one_line_too(daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Board(daemon)
    daemon.route("GET", "/api/projects", {"projects": [], "here": None})
    monkeypatch.setattr("agent_orchestrator.cli.top.is_interactive", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(layout, "header_line", lambda *_: 1 // 0)
    real = app.Top.run
    monkeypatch.setattr(app.Top, "run", lambda self: real(self, headless=True))
    ran = run("top")
    assert ran.code == 1 and ran.err.startswith("ao: unexpected error: ZeroDivisionError") and ran.err.count("\n") == 1


def test_outside_a_terminal_it_is_one_line(daemon: Daemon, run: Run) -> None:
    ran = run("top")
    assert ran.code == 2 and ran.out == "" and "ao status" in ran.err and ran.err.count("\n") == 1
    assert daemon.requests == []


def test_a_terminal_that_cannot_be_drawn_on_is_none(daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.cli.top.is_interactive", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert run("top").code == 2 and daemon.requests == []


def test_a_project_that_is_not_known_is_refused(daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_scope_is_that_of_other_commands(
    daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch, argv: list[str], here: str | None, project: str | None
) -> None:
    monkeypatch.setattr("agent_orchestrator.cli.top.is_interactive", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    began: list[str | None] = []
    monkeypatch.setattr(app.Top, "run", lambda self: began.append(self.project))
    daemon.route("GET", "/api/projects", {"projects": [{"id": "app"}, {"id": "web"}], "here": here})
    assert run(*argv).code == 0
    assert began == [project]


def test_its_help_loads_nothing_of_textual() -> None:
    program = "import sys\nfrom agent_orchestrator.cli import main\nmain(['top', '--help'])\nprint(*sys.modules, file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert "--all-projects" in ran.stdout
    assert not {"textual", "rich", "asyncio"} & set(ran.stderr.split())


# -- what is worked out, without a screen ---------------------------------------------------------------------------------


def fleet(*sessions: dict[str, Any]) -> Fleet:
    return Fleet().updated({"complete": True, "sessions": list(sessions), "questions": [], "overview": {}})


def test_a_frame_that_is_not_complete_changes_only_what_it_tells() -> None:
    before = fleet(session("a"), session("b"))
    after = before.updated({"complete": False, "sessions": [session("b", status="idle")], "questions": None})
    assert [each["status"] for each in after.sessions.values()] == ["working", "idle"] and after.is_ready
    assert list(after.updated({"complete": True, "sessions": [session("c")]}).sessions) == ["app-c"]


def test_one_that_asks_is_not_quiet() -> None:
    idle = session("a", status="idle", column="Needs you")
    asked = fleet(idle).updated({"questions": [{"session": "app-a"}]})
    assert [arrange(each, Filter())["Needs you"][0].is_quiet for each in (fleet(idle), asked)] == [True, False]


def test_the_selection_goes_to_a_neighbour_when_its_session_is_gone() -> None:
    three = ["app-a", "app-b", "app-c"]
    columns = arrange(fleet(session("a"), session("c")), Filter())
    assert choose(columns, "app-b", three) == "app-c"
    assert choose(columns, "app-c", three) == "app-c"
    assert choose(arrange(fleet(session("a")), Filter()), "app-c", three) == "app-a"
    assert choose(arrange(fleet(), Filter()), "app-c", three) is None
    assert choose(columns, None, []) == "app-a"


def test_moving_skips_empty_columns_and_stays_on_the_board() -> None:
    columns = arrange(
        fleet(session("n", column="Needs you"), session("n2", column="Needs you"), session("d", column="Done")),
        Filter(),
    )
    assert move(columns, "app-n2", 1, 0) == "app-d" == move(columns, "app-d", 1, 0)
    assert move(columns, "app-d", -1, 0) == "app-n"
    assert move(columns, "app-n", 0, 10) == "app-n2" and move(columns, "app-n2", 0, -10) == "app-n"
    assert move(columns, None, 0, 1) == "app-n" and move(arrange(fleet(), Filter()), None, 0, 1) is None


def test_scrolling_moves_as_little_as_can_be() -> None:
    assert layout.scroll_offset(0, 4, 5, 10) == 0
    assert layout.scroll_offset(0, 5, 5, 10) == 1
    assert layout.scroll_offset(3, 4, 5, 10) == 3
    assert layout.scroll_offset(3, 2, 5, 10) == 2
    assert layout.scroll_offset(9, None, 5, 10) == 5
    assert layout.scroll_offset(3, 1, 5, 2) == 0


def test_what_is_said_of_one() -> None:
    said = [
        layout.main_text(Card(session("a", **more), quiet))
        for more, quiet in (
            ({"waitingFor": "x", "says": "y"}, False),
            ({"waitingFor": "x", "says": "y"}, True),
            ({"pr": PULL}, False),
            ({"progress": None, "usage": None, "says": "y"}, False),
            ({"progress": None, "usage": None}, False),
        )
    ]
    assert said == ["waits for x", "y", "#7 green", "y", "Fix the login"]


def test_a_screen_is_shown_without_its_empty_stretches() -> None:
    assert layout.screen_lines("\n\na\tb\n\n\n\nc\x1b[2J\n\n") == ["a       b", "", "c[2J"]
    assert layout.screen_lines("") == []


def test_a_line_of_a_list_is_one_text() -> None:
    drawn = layout.draw_board(arrange(fleet(session("a")), Filter()), "app-a", (80, 5), NOW, {})
    assert (
        [type(line) for line in drawn.lines] == [Text, Text]
        and drawn.session_at(3, 1) == "app-a"
        and drawn.session_at(3, 0) is None
    )
