"""Gemini's records and titles, as 0.61.0 writes them, and what becomes of them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.agents.gemini import ChatState, Gemini, dialog_report, opening_report
from agent_orchestrator.protocols import Activity, AgentContext, NotReady, Permission
from agent_orchestrator.protocols import reports as r
from agent_orchestrator.sessions.permissions.rules import check_permission
from tests.unit.plugins.agents.played_launch import PlayedLaunch, kinds

pytestmark = pytest.mark.anyio

ID = "11111111-2222-4333-8444-555555555555"
WORKING, READY, ASKS = (
    "\x1b]0;✦  Working… (x)   \x07",
    "\x1b]0;◇  Ready (x)   \x07",
    "\x1b]0;✋  Action Required (x)\x07",
)

HEAD = {"sessionId": ID, "projectHash": "e368", "startTime": "2026-11-15T11:29:12.454Z", "kind": "main"}
SET_UP = {"$set": {"messages": [{"type": "user", "content": [{"text": "<session_context>\nThis is …"}]}]}}
TOKENS = {"input": 1500, "output": 50, "cached": 300, "thoughts": 7, "tool": 0, "total": 1557}

DIALOG = """\
╭──────────────────────────────────────────────────────────────────────────────────────────╮
│ ? Shell  touch a.txt && git add a.txt                                                    │
│ ╭──────────────────────────────────────────────────────────────────────────────────────╮ │
│ │ touch a.txt && git add a.txt                                                         │ │
│ ╰──────────────────────────────────────────────────────────────────────────────────────╯ │
│ Allow execution of [Shell]?                                                              │
│                                                                                          │
│ ● 1. Allow once                                                                          │
│   2. Allow for this session                                                              │
│   3. No, suggest changes (esc)                                                           │
╰──────────────────────────────────────────────────────────────────────────────────────────╯
"""


def user(text: str) -> dict[str, Any]:
    return {"id": text, "timestamp": "2026-11-15T11:29:12.666Z", "type": "user", "content": [{"text": text}]}


def gemini(text: str, number: int = 1, **more: Any) -> dict[str, Any]:
    record_fields = {"type": "gemini", "content": text, "tokens": TOKENS, "model": "gemini-2.5-pro"}
    return {"id": f"g{number}", "timestamp": "2026-11-15T11:29:12.995Z", **record_fields, **more}


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    return tmp_path / "home/.gemini/tmp/x/chats" / f"session-2026-11-15T11-29-{ID[:8]}.jsonl"


def play(tmp_path: Path, **memo: str) -> PlayedLaunch:
    plugin_data = {"home": str(tmp_path / "home/.gemini"), "prompt": "yes", "resumed": "", "before": "{}", **memo}
    return PlayedLaunch(Gemini({}, LocalHost()), tmp_path, plugin_data, ID)


async def test_a_turn(tmp_path: Path, chat: Path) -> None:
    async with play(tmp_path) as launch:
        assert await launch.write_and_read(chat, HEAD, SET_UP, prints=READY) == []
        heard_reports = await launch.write_and_read(chat, user("Fix it"), prints=WORKING)
        assert heard_reports[0] == r.MessageTakenReport("Fix it", heard_reports[0].time)
        assert kinds(heard_reports) == ["MessageTaken", "active"]
        call = {"id": "c", "name": "run_shell_command", "args": {"command": "ls"}}
        assert kinds(await launch.write_and_read(chat, gemini("", 1))) == ["Usage"]
        assert await launch.write_and_read(chat, gemini("", 1, toolCalls=[call])) == []
        used, ended = await launch.write_and_read(chat, gemini("Done one", 2), prints=READY)
        assert (used.input, used.output, used.cache_read) == (1200, 57, 300)
        assert ended == r.TurnReport("Done one", ended.time)


async def test_the_last_words_may_come_after_the_title(tmp_path: Path, chat: Path) -> None:
    async with play(tmp_path) as launch:
        await launch.write_and_read(chat, HEAD, SET_UP, user("Fix it"), prints=WORKING)
        assert await launch.write_and_read(prints=READY) == []
        assert kinds(await launch.write_and_read(chat, gemini("Done"))) == ["Usage", "Turn"]


async def test_a_dialog_is_read_off_the_screen(tmp_path: Path, chat: Path) -> None:
    async with play(tmp_path) as launch:
        await launch.write_and_read(chat, HEAD, SET_UP, user("Fix it"), prints=WORKING)
        launch.visible = DIALOG
        (question,) = await launch.write_and_read(prints=ASKS)
        assert (question.tool, question.command) == ("Shell", "touch a.txt && git add a.txt")
        assert kinds(await launch.write_and_read(prints=WORKING)) == ["active"]


async def test_escape_and_an_error_are_no_end_of_a_turn(tmp_path: Path, chat: Path) -> None:
    async with play(tmp_path) as launch:
        await launch.write_and_read(chat, HEAD, SET_UP, user("Fix it"), prints=WORKING)
        cancelled = {"id": "i", "type": "info", "content": "Request cancelled."}
        assert kinds(await launch.write_and_read(chat, cancelled, prints=READY)) == ["interrupted"]
        await launch.write_and_read(chat, user("Again"), prints=WORKING)
        failed = {"id": "e", "type": "error", "content": "[API Error: scripted error 400]"}
        (report,) = await launch.write_and_read(chat, failed, prints=READY)
        assert (report.state, report.detail) == (Activity.INTERRUPTED, "[API Error: scripted error 400]")


async def test_a_later_listener_continues_at_the_cursor(tmp_path: Path, chat: Path) -> None:
    first = play(tmp_path)
    async with first:
        await first.write_and_read(chat, HEAD, SET_UP, user("Fix it"), prints=WORKING)
    later = replace(play(tmp_path), cursors=first.read_positions())
    async with later:
        assert later.batches == []
        assert kinds(await later.write_and_read(chat, gemini("Done"), prints=READY)) == ["Usage", "Turn"]


async def test_a_turn_that_an_earlier_process_left_open_does_not_end_in_this_one(tmp_path: Path, chat: Path) -> None:
    first = play(tmp_path)
    async with first:
        await first.write_and_read(chat, HEAD, SET_UP, user("Fix it"), prints=WORKING)
    before = json.dumps({chat.name: chat.stat().st_size})
    memo = {"prompt": "", "resumed": "yes", "before": before, "log": str(first.log.stat().st_size)}
    later = replace(play(tmp_path, **memo), cursors=first.read_positions())
    async with later:
        later.visible = " >   Type your message or @path/to/file"
        assert await later.write_and_read(chat, HEAD, SET_UP, prints=READY) == [], "what is typed now is not sent"
        assert kinds(await later.write_and_read(chat, {"$set": {"sessionId": ID}}, SET_UP)) == ["idle"]


async def test_nothing_is_typed_before_it_takes_messages(tmp_path: Path, chat: Path) -> None:
    async with play(tmp_path) as launch:
        await launch.write_and_read(chat, HEAD)
        assert isinstance(await Gemini({}, LocalHost()).deliver(launch.run, "m", "x", interrupt=False), NotReady)
        await launch.write_and_read(chat, SET_UP)
        assert await Gemini({}, LocalHost()).deliver(launch.run, "m", "x", interrupt=False) is None


def test_a_login_is_asked_for() -> None:
    report = opening_report("│ ? Get started │\n│ How would you like to authenticate for this project? │", begun=True)
    assert isinstance(report, r.ActivityReport) and report.state == Activity.WAITING_INPUT


def test_an_edit_is_asked_for() -> None:
    report = dialog_report("│ ? Edit README.md: a => b  │\n│ Apply this change?  │\n│ ● 1. Allow once │")
    assert isinstance(report, r.PermissionReport) and report.reason == "Apply this change?"


def test_a_plan_is_progress() -> None:
    todos = [{"description": "one", "status": "completed"}, {"description": "two", "status": "in_progress"}]
    call = {"name": "write_todos", "args": {"todos": todos}}
    progress = ChatState().read_record(gemini("", 1, toolCalls=[call]))[-1]
    assert isinstance(progress, r.ProgressReport)
    assert (progress.done, progress.total, progress.step) == (1, 2, "two")


# -- launching ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    program = tmp_path / "bin/gemini"
    for folder in ("bin", "workspace", "private", "home"):
        (tmp_path / folder).mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return AgentContext(
        session="app-x",
        project="app",
        workspace=tmp_path / "workspace",
        branch="feature/x",
        base="main",
        prompt="Fix it\n\nrules",
        task="Fix it",
        system="Work here.",
        task_file=tmp_path / "private/task.md",
        private=tmp_path / "private",
        commands=("make lint && make test",),
        allowed=(Permission("Shell", "npm ci"), Permission("WriteFile", "x")),
        env={
            "PATH": str(program.parent),
            "HOME": str(tmp_path / "home"),
            "GEMINI_API_KEY": "k",
            "GIT_AUTHOR_NAME": "P",
        },
    )


async def launched(context: AgentContext, config: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    return (await Gemini(config or {}, LocalHost()).launch(context)).argv[1:]


async def test_the_agent_is_started_with_our_session_id(context: AgentContext) -> None:
    plan = await Gemini({}, LocalHost()).launch(replace(context, model="gemini-2.5-pro", permissions="full"))
    assert plan.argv[1:6] == ("--skip-trust", "--model", "gemini-2.5-pro", "--approval-mode", "yolo")
    assert plan.argv[-2:] == ("--prompt-interactive", "<rules>\nWork here.\n</rules>\n\nFix it")
    assert plan.argv[plan.argv.index("--session-id") + 1] == plan.conversation


async def test_auto_edit_allows_no_beginnings_of_commands(context: AgentContext) -> None:
    argv = await launched(context)
    paths = [argv[position + 1] for position, word in enumerate(argv) if word == "--policy"]
    assert paths[0].endswith("/home/.gemini/policies"), "the user's own rules stay"
    rules = tomllib.loads(Path(paths[1]).read_text())["rule"]
    prefixes = {rule.get("commandPrefix") for rule in rules}
    assert prefixes == {"git status"}, "all else is asked for, and allowed by our rule where it is just that"
    assert not any(rule["toolName"] == "write_file" for rule in rules), "a file that was allowed is not every file"


async def test_a_login_is_answered_ahead_and_nothing_is_lost(context: AgentContext, tmp_path: Path) -> None:
    settings = tmp_path / "home/.gemini/settings.json"
    await launched(context)
    assert json.loads(settings.read_text())["security"]["auth"]["selectedType"] == "gemini-api-key"
    settings.write_text('{"security": {"auth": {"selectedType": "oauth-personal"}}, "mine": 1}')
    await launched(context)
    assert json.loads(settings.read_text())["security"]["auth"]["selectedType"] == "oauth-personal"
    settings.write_text("{ // mine\n}")
    await launched(context)
    assert settings.read_text() == "{ // mine\n}"


async def test_a_session_with_messages_is_resumed(context: AgentContext, tmp_path: Path, chat: Path) -> None:
    again = replace(context, resume=ID, message="And now?")
    assert "--session-id" in await launched(again), "there is nothing to resume yet"
    chat.parent.mkdir(parents=True)
    chat.write_text("\n".join(json.dumps(record, separators=(",", ":")) for record in (HEAD, SET_UP, user("Fix it"))))
    argv = await launched(again)
    assert argv[argv.index("--resume") + 1] == ID and argv[-1] == "And now?"


@pytest.mark.parametrize(("input_text", "unsent"), [("fix it now", True), ("", False), ("somebody else's", False)])
def test_a_text_that_was_not_sent_off_is_seen(input_text: str, unsent: bool) -> None:
    screen = f" > old words\n ────\n > {input_text} \n ────\n workspace"
    assert Gemini({}, LocalHost()).has_unsent_text(screen, "fix it\nnow, please") == unsent


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        (["git status"], "git status"),
        (["git status", "╰─x || evil"], "git status\n╰─x || evil"),
        (["git status", "╰──────╯", "evil"], "git status\n╰──────╯\nevil"),
        (["evil", "? Shell  git status"], "evil\n? Shell  git status"),
        (["evil", "╭────╮", "│ git status │", "╰────╯"], "evil\n╭────╮\n│ git status\n╰────╯"),
    ],
)
def test_a_command_cannot_draw_its_own_dialog(lines: list[str], command: str) -> None:
    inner = "".join(f"│ │ {line.ljust(40)} │ │\n" for line in lines)
    edge = "─" * 42
    screen_text = f"│ ? Shell  {lines[0]} … │\n│ ╭{edge}╮ │\n{inner}│ ╰{edge}╯ │\n│ Allow execution of [Shell]? │\n│ ● 1. Allow once │\n"
    report = dialog_report(screen_text)
    assert isinstance(report, r.PermissionReport) and report.tool == "Shell"
    assert report.command.startswith(lines[0]) and len(report.command.splitlines()) == len(lines)
    assert (check_permission("Shell", report.command, "auto-edit", (), ()).reason != "") == (command == "git status")


def test_a_command_that_is_not_shown_is_no_command_to_a_rule() -> None:
    report = dialog_report("│ ? Shell  git status │\n│ Allow execution of [Shell]? │\n│ ● 1. Allow once │\n")
    assert isinstance(report, r.PermissionReport) and not check_permission("Shell", report.command, "auto-edit", (), ())
