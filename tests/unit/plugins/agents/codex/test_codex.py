"""Codex: reports from rollouts, terminal and dialogs, and its launch."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.codex import rollouts, screen
from agent_orchestrator.plugins.agents.codex.plugin import Codex
from agent_orchestrator.protocols import Activity, AgentContext, NotReady, Permission
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.codex import codex as c

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(tmp_path: Path) -> c.CodexWorld:
    return c.CodexWorld(tmp_path)


def kinds(reports: list[r.Report]) -> list[str]:
    return [type(report).__name__.removesuffix("Report") for report in reports]


def states(reports: list[r.Report]) -> list[tuple[str, str]]:
    return [(str(report.state), report.detail) for report in reports if isinstance(report, r.ActivityReport)]


# -- rollouts ----------------------------------------------------------------------------------------------------------


async def test_calls_of_a_forges_command_line_are_counted(world: c.CodexWorld) -> None:
    lines = [
        c.started(),
        c.context(),
        c.user_message("Fix it"),
        c.called("1", "exec_command", cmd="gh pr view 3 | head"),
    ]
    world.rollout([*lines, c.answered("1"), c.complete("All done.")])
    heard_reports = await c.BackgroundListener(world, world.run()).settle()
    assert [(usage.model, usage.forge) for usage in heard_reports if isinstance(usage, r.UsageReport)] == [
        ("gpt-5.5", 1)
    ]


@pytest.mark.parametrize("name", ["*", "*/**/*", "?" * 36, "[0-9a-f]*", "x/../*"])
async def test_a_conversation_is_a_name_and_no_pattern(world: c.CodexWorld, name: str) -> None:
    path = world.rollout([c.started()])
    (path.parent / "rollout-1-x").mkdir()
    assert rollouts.find_rollout(world.home, name) is None
    assert rollouts.find_rollout(world.home, path.stem[-36:]) == path


async def test_a_turn_is_reported_from_its_rollout(world: c.CodexWorld) -> None:
    plan = [{"step": "look", "status": "completed"}, {"step": "mend", "status": "in_progress"}, {"step": "test"}]
    lines = [c.started(), c.context(), c.user_message("Fix it"), c.called("1", "update_plan", plan=plan), c.used()]
    world.rollout([*lines, c.answered("1"), c.used(), c.complete("All done.")])
    listening = c.BackgroundListener(world, world.run())
    heard_reports = await listening.settle()
    assert kinds(heard_reports) == ["Conversation", "Activity", "MessageTaken", "Progress", "Usage", "Usage", "Turn"]
    assert heard_reports[0] == r.ConversationReport(c.thread_id(1))
    taken_report, progress, usage, turn = heard_reports[2], heard_reports[3], heard_reports[4], heard_reports[6]
    assert isinstance(taken_report, r.MessageTakenReport) and taken_report.text == "Fix it"
    assert isinstance(progress, r.ProgressReport) and (progress.done, progress.total, progress.step) == (1, 3, "mend")
    assert isinstance(usage, r.UsageReport) and isinstance(turn, r.TurnReport)
    assert (usage.model, usage.input, usage.cache_read, usage.output) == ("gpt-5.5", 1200, 300, 50)
    assert turn.text == "All done." and turn.time is not None and turn.time.timestamp() > c.BEGIN
    world.rollout([c.started(), c.user_message("again")])
    assert kinds(await listening.step()) == ["Activity", "MessageTaken"]
    world.rollout([c.complete("Said at its very end")])
    assert kinds(await listening.end()) == ["Turn"]


async def test_only_its_own_conversations_are_followed(world: c.CodexWorld, tmp_path: Path) -> None:
    turn = [c.started(), c.context(), c.user_message("other"), c.used(), c.complete("other")]
    world.rollout(turn, c.thread_id(2), cwd=str(tmp_path / "elsewhere"))
    world.rollout(turn, c.thread_id(3, c.BEGIN - 3600))
    world.rollout(turn, c.thread_id(4), source="exec")
    world.rollout([c.started(), c.user_message("mine")], c.thread_id(5))
    parent = {"subagent": {"thread_spawn": {"parent_thread_id": c.thread_id(5), "depth": 1}}}
    plan = c.called("1", "update_plan", plan=[{"step": "its own", "status": "completed"}])
    world.rollout([plan, *turn], c.thread_id(6), session_id=c.thread_id(5), source=parent, thread_source="subagent")
    listening = c.BackgroundListener(world, world.run())
    heard_reports = await listening.settle()
    assert kinds(heard_reports) == ["Conversation", "Activity", "MessageTaken", "Usage"], (
        "an agent's agent only counts what it used"
    )
    world.rollout(turn[:2], c.thread_id(7))
    assert (await listening.step())[0] == r.ConversationReport(c.thread_id(7)), "/new begins another one"
    await listening.end()


async def test_an_incomplete_rollout_is_read_again(world: c.CodexWorld) -> None:
    path = world.rollout([c.started()])
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    listening = c.BackgroundListener(world, world.run())
    assert await listening.settle() == []
    path.write_bytes(whole)
    assert kinds(await listening.step()) == ["Conversation", "Activity"]
    await listening.end()


@pytest.mark.parametrize(
    ("ended", "heard_reports"),
    [
        (c.event("turn_aborted", reason="interrupted"), "its turn was interrupted"),
        (
            c.complete(None, error={"message": "status 529", "codex_error_info": "internal_server_error"}),
            "API error: status 529",
        ),
    ],
)
async def test_an_interrupted_or_failed_turn_is_not_finished(
    world: c.CodexWorld, ended: Mapping[str, Any], heard_reports: str
) -> None:
    world.rollout([c.started(), ended])
    listening = c.BackgroundListener(world, world.run())
    assert states(await listening.settle()) == [("active", ""), ("interrupted", heard_reports)]
    await listening.end()


async def test_a_replaced_turn_is_not_interrupted(world: c.CodexWorld) -> None:
    world.rollout([c.started(), c.event("turn_aborted", reason="replaced"), c.started()])
    listening = c.BackgroundListener(world, world.run())
    assert states(await listening.settle()) == [("active", ""), ("active", "")]
    await listening.end()


async def test_a_usage_limit_is_reported_with_its_reset_time(world: c.CodexWorld) -> None:
    limit_text = "You’ve hit your usage limit. Visit https://x to purchase more credits or try again at 11:59 PM."
    world.rollout(
        [c.started(), c.complete(None, error={"message": limit_text, "codex_error_info": "usage_limit_exceeded"})]
    )
    listening = c.BackgroundListener(world, world.run())
    limit = (await listening.settle())[-1]
    assert isinstance(limit, r.LimitReport) and limit.resets_at is not None and limit.time is not None
    assert (limit.resets_at.hour, limit.resets_at.minute) == (23, 59)
    assert limit.resets_at > limit.time
    await listening.end()


def test_a_reset_time_is_parsed_in_local_time() -> None:
    now = datetime(2026, 11, 15, 14, 30, tzinfo=UTC).astimezone()
    clock = now.replace(hour=1, minute=5).strftime("%-I:%M %p")
    reset = rollouts.resets_at(f"limit. … try again at {clock}.", now.replace(hour=14))
    assert reset is not None and (reset.day, reset.hour, reset.minute) == (now.day + 1, 1, 5), "that is tomorrow"
    later = rollouts.resets_at("limit. … try again at Nov 21st, 2026 3:07 PM.", now)
    assert later is not None and (later.month, later.day, later.hour, later.minute) == (11, 21, 15, 7)
    assert rollouts.resets_at("limit. Try later.", now) is None


async def test_nothing_is_read_twice_and_the_model_is_remembered(world: c.CodexWorld) -> None:
    world.rollout(
        [c.started(), c.context("gpt-6"), c.user_message("go"), c.called("1", "exec_command", cmd="make"), c.used()]
    )
    first = c.BackgroundListener(world, world.run())
    await first.settle()
    await first.end()
    world.rollout([c.used(), c.complete("Done.")])
    before = len(world.batches)
    again = c.BackgroundListener(world, world.run(conversation=c.thread_id(1)))
    await again.settle()
    heard_reports = world.reports(before)
    assert kinds(heard_reports) == ["Usage", "Turn"]
    assert isinstance(heard_reports[0], r.UsageReport) and heard_reports[0].model == "gpt-6"
    await again.end()


async def test_an_earlier_part_of_a_conversation_is_not_reported(world: c.CodexWorld) -> None:
    world.rollout([c.started(), c.user_message("by hand"), c.used(), c.complete("ok")], cwd="/elsewhere", source="exec")
    (world.private / "codex.json").unlink()
    rollouts.remember_start(world.private, world.home, c.thread_id(1), c.BEGIN + 60)
    world.rollout([c.started(), c.user_message("taken over"), c.complete("I see.")])
    rollouts.remember_start(world.private, world.home, c.thread_id(1), c.BEGIN + 90)  # a launch may be tried twice
    listening = c.BackgroundListener(world, world.run(conversation=c.thread_id(1)))
    assert kinds(await listening.settle()) == ["Activity", "MessageTaken", "Turn"]
    await listening.end()


# -- terminal ----------------------------------------------------------------------------------------------------------


async def test_a_dialog_is_reported_with_the_command_of_its_call(world: c.CodexWorld) -> None:
    world.rollout([c.started(), c.called("call-1", "exec_command", cmd="touch /etc/x && echo one\ntwo"), c.used()])
    listening = c.BackgroundListener(world, world.run())
    await listening.settle()
    world.prints(c.status("working") + c.status("blocked"), c.COMMAND_DIALOG)
    request = (await listening.step())[-1]
    assert isinstance(request, r.PermissionReport)
    assert (request.tool, request.command) == ("shell", "touch /etc/x && echo one\ntwo")
    assert (request.reason, request.request) == ("Need to write outside. OK?", "call-1")
    reads = world.screen_reads
    world.prints(b"\x1b]0;[ . ] Action Required | app\x07")
    assert await listening.step() == [] and world.screen_reads == reads, (
        "an open dialog is not looked at again and again"
    )
    world.prints(c.status("working"), c.IDLE)
    assert states(await listening.step()) == [("active", "")]
    world.rollout([c.answered("call-1"), c.complete("Done.")])
    turn = (await listening.step())[-1]
    active = world.reports()[-2]
    assert isinstance(turn, r.TurnReport) and isinstance(active, r.ActivityReport)
    assert turn.time is not None and active.time is not None
    assert turn.time >= active.time, "the end of a turn must not look older than what was seen before it"
    await listening.end()


def dialog(command: str, more: str = "") -> str:
    command_text = "\n".join(f"  {line}".rstrip() for line in f"$ {command}".split("\n"))
    return c.COMMAND_DIALOG.replace("  $ touch /etc/x && echo one\n  two", command_text + more)


async def report_dialog(world: c.CodexWorld, screen_text: str, *calls: dict[str, Any]) -> r.PermissionReport:
    """Return the report about a dialog while these calls are open."""
    world.rollout([c.started(), {"type": "turn_context", "payload": {"cwd": str(world.workspace)}}, *calls])
    listening = c.BackgroundListener(world, world.run())
    await listening.settle()
    world.prints(c.status("blocked"), screen_text)
    heard_reports = (await listening.step())[-1]
    await listening.end()
    assert isinstance(heard_reports, r.PermissionReport)
    return heard_reports


async def test_folder_and_shell_hidden_by_a_dialog_are_reported(world: c.CodexWorld) -> None:
    inside = c.called("1", "exec_command", cmd="git status", workdir=str(world.workspace / "sub"))
    assert (await report_dialog(world, dialog("git status"), inside)).command == "git status"


@pytest.mark.parametrize(
    ("more", "heard_reports"),
    [
        ({"workdir": "/home/me/app"}, "cd /home/me/app && git status"),
        ({"workdir": "../other one"}, "cd '../other one' && git status"),
        ({"shell": "/tmp/sh"}, "/tmp/sh -c 'git status'"),
    ],
)
async def test_a_command_in_another_folder_is_another_command(
    world: c.CodexWorld, more: dict[str, str], heard_reports: str
) -> None:
    assert (
        await report_dialog(world, dialog("git status"), c.called("1", "exec_command", cmd="git status", **more))
    ).command == heard_reports


async def test_a_command_cut_by_the_screen_is_reported_completely(world: c.CodexWorld) -> None:
    command = "cat > x <<'E'\nis this it?\n\n  Would you like to run the following command?\n  $ echo\nE\nrm -rf y"
    heard_reports = await report_dialog(world, dialog(command), c.called("1", "exec_command", cmd=command))
    assert (heard_reports.tool, heard_reports.command, heard_reports.request) == ("shell", command, "1")
    cut = await report_dialog(
        world, dialog("make\na", "\n  [… 92 lines] ^a view all"), c.called("2", "exec_command", cmd="make\na\nb")
    )
    assert (cut.command, cut.request) == ("make\na\nb", "2")


async def test_a_command_known_only_from_the_screen_is_reported_as_shown(world: c.CodexWorld) -> None:
    request = await report_dialog(world, dialog("git status\nrm -rf x"))
    assert request.command == "$ git status\nrm -rf x", "a line break may be a real one"
    calls = [c.called(text, "exec_command", cmd=text) for text in ("git status\nrm -rf x", "git status rm -rf x")]
    assert (await report_dialog(world, dialog("git status\nrm -rf x"), *calls)).command.startswith("$ "), (
        "it may be either"
    )


async def test_a_partly_visible_command_is_never_repeated(world: c.CodexWorld) -> None:
    cut = dialog("make\na", "\n  [… 92 lines] ^a view all")
    first, second = await report_dialog(world, cut), await report_dialog(world, cut)
    assert first.command.startswith("$ make\na …") and first.command != second.command


async def test_an_edit_is_reported_with_all_its_files(world: c.CodexWorld) -> None:
    patch = "*** Begin Patch\n*** Update File: /work/app/new.txt\n+x\n*** Delete File: /etc/y\n*** End Patch"
    call = {"type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "1"}
    heard_reports = await report_dialog(world, c.EDIT_DIALOG, {"type": "response_item", "payload": call})
    assert (heard_reports.tool, heard_reports.command) == ("edit", "/work/app/new.txt, /etc/y")


async def test_a_dialog_drawn_late_is_awaited(world: c.CodexWorld) -> None:
    world.rollout([c.started()])
    listening = c.BackgroundListener(world, world.run())
    await listening.settle()
    world.prints(c.status("blocked"))
    assert await listening.step() == []
    world.prints(b"", c.EDIT_DIALOG)
    request = (await listening.step())[-1]
    assert isinstance(request, r.PermissionReport) and (request.tool, request.command) == ("edit", "/work/app/new.txt")
    await listening.end()


async def test_retries_and_their_end_are_reported(world: c.CodexWorld) -> None:
    world.rollout([c.started()])
    listening = c.BackgroundListener(world, world.run())
    await listening.settle()
    world.prints(b"\x1b[33;3HReconnecting... 1/5\x1b[33;23H(3s", c.RETRYING)
    detail = "Unexpected status 529 <unknown status code>: overloaded"
    assert states(await listening.step()) == [("retrying", detail)]
    world.prints("•\x1b[1mWorking\x1b[0m(0s".encode(), c.IDLE)
    assert states(await listening.step()) == [("active", "")]
    await listening.end()


async def test_text_in_a_dialog_is_not_interpreted(world: c.CodexWorld) -> None:
    world.rollout([c.started()])
    listening = c.BackgroundListener(world, world.run())
    await listening.settle()
    world.prints(c.status("working") + c.status("blocked") + b"$ echo Working; echo Reconnecting...", c.COMMAND_DIALOG)
    assert kinds(await listening.step()) == ["Permission"]
    world.prints(b"$ echo Working")
    assert await listening.step() == []
    await listening.end()


async def test_text_about_reconnecting_is_no_retry(world: c.CodexWorld) -> None:
    world.rollout([c.started()])
    listening = c.BackgroundListener(world, world.run())
    await listening.settle()
    output = "• Reconnecting... is what it says (3s)"
    world.prints(output.encode(), c.IDLE.replace("• hi there", output))
    assert await listening.step() == []
    await listening.end()


async def test_the_agent_is_idle_while_it_waits_for_its_first_message(world: c.CodexWorld) -> None:
    waits = {"home": str(world.home), "log": "0", "waits": "1"}
    world.prints(c.status("idle"))
    listening = c.BackgroundListener(world, world.run(plugin_data=waits))
    assert states(await listening.settle()) == [("idle", "")]
    await listening.end()
    world.prints(c.status("working") + c.status("idle"))
    before = len(world.batches)
    again = c.BackgroundListener(world, world.run(plugin_data=waits))
    await again.settle()
    assert world.reports(before) == [], "a question that was asked since must stay"
    await again.end()


async def test_the_agent_is_not_idle_before_its_task_began(world: c.CodexWorld) -> None:
    world.prints(c.status("idle"))
    listening = c.BackgroundListener(world, world.run())
    assert await listening.settle() == []
    await listening.end()


@pytest.mark.parametrize(
    ("screen_text", "heard_reports"),
    [
        (c.LOGIN, r.ActivityReport(Activity.WAITING_INPUT, screen.NOT_LOGGED_IN)),
        (c.MODEL_QUESTION, r.PermissionReport("a question of its own", "Meet GPT-6 Sol")),
    ],
)
async def test_questions_at_its_start_are_reported(
    world: c.CodexWorld, screen_text: str, heard_reports: r.Report
) -> None:
    listening = c.BackgroundListener(world, world.run())
    await listening.settle()
    world.prints(b"something", screen_text)
    (heard,) = await listening.step()
    assert isinstance(heard, r.ActivityReport | r.PermissionReport)
    assert replace(heard, time=None) == heard_reports
    await listening.end()


# -- dialogs -----------------------------------------------------------------------------------------------------------


def test_dialogs_are_read_from_the_screen() -> None:
    command = screen.parse_dialog(c.COMMAND_DIALOG)
    assert command is not None and (command.tool, command.command) == ("shell", "touch /etc/x && echo one\ntwo")
    assert command.reason == "Need to write outside. OK?"
    assert [option.key for option in command.options] == ["y", "p", "esc"]
    assert command.keys("allow") == command.keys("always") == ("y",)
    assert command.keys("deny") == ("Escape",)
    menu = screen.parse_dialog(c.MENU)
    assert menu is not None and menu.keys("allow") is None
    question = screen.parse_dialog(c.MODEL_QUESTION)
    assert question is not None and question.keys("deny") is None, "Esc would choose the new model"
    assert screen.parse_dialog(c.IDLE) is None
    assert screen.parse_dialog(c.RETRYING) is None


def test_a_list_in_the_conversation_is_no_dialog() -> None:
    screen_text = c.IDLE.replace("› hello", "› 1. Yes, proceed (y)\n  2. or enter").replace("• hi there", "• esc")
    assert screen.parse_dialog(screen_text) is None
    assert screen.parse_dialog("› 1. Yes, proceed (y)\n\n› Ask Codex to do anything\n\n  enter send") is None


async def test_an_answer_goes_only_to_the_dialog_of_its_request(world: c.CodexWorld) -> None:
    codex, request = Codex({}, LocalHost()), Permission("shell", "touch /etc/x &&  echo one\ntwo")
    world.visible = c.COMMAND_DIALOG
    assert await codex.answer(world.run(), request, "allow", "") == ("y",)
    elsewhere = Permission("shell", "cd /x && touch /etc/x && echo one two")
    assert await codex.answer(world.run(), elsewhere, "deny", "") == ("Escape",)
    assert await codex.answer(world.run(), Permission("shell", "make"), "allow", "") is None
    world.visible = c.IDLE
    assert await codex.answer(world.run(), request, "allow", "") is None


async def test_no_text_is_typed_into_a_menu(world: c.CodexWorld) -> None:
    codex = Codex({}, LocalHost())
    world.visible = c.MENU
    assert isinstance(await codex.deliver(world.run(), "m", "hello", interrupt=False), NotReady)
    world.visible = c.IDLE
    assert await codex.deliver(world.run(), "m", "hello", interrupt=False) is None


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("hello", "hello"),
        ("!ls", "Message: !ls"),
        ("  !ls", "Message:   !ls"),
        ("/new", " /new"),
        ("see @README", "see @README "),
        ("use $skill", "use $skill "),
        ("mail a@b.c now", "mail a@b.c now"),
    ],
)
async def test_a_message_is_escaped_so_that_it_is_no_command(world: c.CodexWorld, text: str, typed: str) -> None:
    assert Codex({}, LocalHost()).escape_input(text) == typed
    world.rollout([c.user_message(typed.strip())])
    listening = c.BackgroundListener(world, world.run())
    taken_report = (await listening.settle())[-1]
    assert isinstance(taken_report, r.MessageTakenReport) and taken_report.text.strip() == text.strip()
    await listening.end()


# -- launch ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path, world: c.CodexWorld) -> AgentContext:
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    models = json.dumps({"models": [{"slug": "old", "upgrade": {"model": "new"}}, {"slug": "new", "upgrade": None}]})
    program.write_text(f"#!/bin/sh\necho '{models}'\n")
    program.chmod(0o755)
    task = world.private / "task.md"
    task.write_text("Fix it")
    env = {"CODEX_HOME": str(world.home), "PATH": f"{program.parent}:/usr/bin:/bin"}
    return AgentContext(
        "app-x", "app", world.workspace, "feature/x", "main", "Fix it", task, world.private, tmp_path, env=env
    )


def settings(argv: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings of its `-c key=value` flags; each value must be TOML."""
    flags = [value for flag, value in pairwise(argv) if flag == "-c"]
    return {key: tomllib.loads(f"x={value}")["x"] for key, _, value in (each.partition("=") for each in flags)}


async def test_settings_are_flags_and_no_file_is_written(session: AgentContext, world: c.CodexWorld) -> None:
    launch = await Codex({}, LocalHost()).launch(replace(session, system='Say "hi"\n\\ and ünï', model="m"))
    flags = settings(launch.argv)
    assert launch.argv[1:4] == ("--no-daemon", "--model", "m")
    assert launch.argv[-2:] == ("--", "Fix it")
    assert flags["check_for_update_on_startup"] is False
    assert flags["developer_instructions"] == 'Say "hi"\n\\ and ünï'
    assert flags["notice.model_migrations"] == {"old": "new"}
    assert flags["projects"][str(world.workspace.resolve())] == {"trust_level": "trusted"}
    assert list(world.home.iterdir()) == []


@pytest.mark.parametrize(
    ("permissions", "sandbox", "approval"),
    [
        ("default", "read-only", "on-request"),
        ("plan", "read-only", "never"),
        ("auto-edit", "workspace-write", "on-request"),
        ("full", None, None),
    ],
)
async def test_permissions_become_a_sandbox_and_an_approval_policy(
    session: AgentContext, permissions: str, sandbox: str | None, approval: str | None
) -> None:
    (session.workspace / ".git").mkdir()
    launch = await Codex({}, LocalHost()).launch(replace(session, permissions=permissions))
    flags = settings(launch.argv)
    assert (flags.get("sandbox_mode"), flags.get("approval_policy")) == (sandbox, approval)
    assert ("--dangerously-bypass-approvals-and-sandbox" in launch.argv) == (permissions == "full")
    roots = flags.get("sandbox_workspace_write.writable_roots")
    assert roots == ([str(session.workspace / ".git")] if permissions == "auto-edit" else None)


async def test_the_users_own_settings_stay_effective(session: AgentContext, world: c.CodexWorld) -> None:
    (session.workspace / ".git").mkdir()
    (world.home / "config.toml").write_text(
        'developer_instructions = "Mine."\n[sandbox_workspace_write]\nwritable_roots = ["/mine"]\n'
    )
    flags = settings((await Codex({}, LocalHost()).launch(replace(session, system="Ours."))).argv)
    assert flags["developer_instructions"] == "Mine.\n\nOurs."
    assert flags["sandbox_workspace_write.writable_roots"] == ["/mine", str(session.workspace / ".git")]


async def test_a_conversation_is_continued_with_its_message(session: AgentContext) -> None:
    codex = Codex({}, LocalHost())
    launch = await codex.launch(replace(session, resume=c.thread_id(1), message="!go on"))
    assert launch.argv[1] == "resume"
    assert launch.argv[-3:] == ("--", c.thread_id(1), "Message: !go on")
    assert settings(launch.argv)["tui.resume_cwd"] == "current"
    assert launch.conversation == c.thread_id(1) and not launch.waits
    waiting = await codex.launch(replace(session, resume=c.thread_id(1)))
    assert waiting.argv[-2:] == ("--", c.thread_id(1)) and waiting.waits
    last = await codex.launch(replace(session, resume=""))
    assert last.argv[1] == "resume" and last.argv[-1] == "--last"


async def test_more_of_its_options_can_be_given(session: AgentContext) -> None:
    codex = Codex({"args": ["--search"], "model": "m"}, LocalHost())
    launch, turn = await codex.launch(session), codex.turn(session, "go", None)
    assert launch.argv.index("--search") < launch.argv.index("--") and "m" in launch.argv
    assert "--search" in turn.argv
    with pytest.raises(UsageError, match="list of words"):
        Codex({"args": "--search"}, LocalHost())


async def test_a_very_long_task_is_read_from_its_file(session: AgentContext) -> None:
    launch = await Codex({}, LocalHost()).launch(replace(session, task="x" * 200_000))
    assert str(session.task_file) in launch.argv[-1] and len(launch.argv[-1]) < 1000


# -- headless ----------------------------------------------------------------------------------------------------------


def lines(codex: Codex, *events: Mapping[str, Any]) -> tuple[str, list[r.Report]]:
    read = [codex.read_turn(json.dumps(each)) for each in events]
    return "\n".join(parsed.show for parsed in read if parsed.show), [
        report for parsed in read for report in parsed.reports
    ]


async def test_a_turn_without_a_terminal(session: AgentContext, world: c.CodexWorld) -> None:
    codex = Codex({}, LocalHost())
    turn = codex.turn(session, "-do it", None)
    assert turn.argv[1:3] == ("exec", "--json") and turn.argv[-1] == "-" and turn.stdin == "-do it"
    world.rollout([c.context("gpt-6")])
    done = {"input_tokens": 3000, "cached_input_tokens": 600, "output_tokens": 100}
    command = {"type": "command_execution", "command": "ls", "aggregated_output": "a.txt\n", "exit_code": 0}
    todo = {"type": "todo_list", "items": [{"text": "one", "completed": True}, {"text": "two", "completed": False}]}
    output, heard_reports = lines(
        codex,
        {"type": "thread.started", "thread_id": c.thread_id(1)},
        {"type": "turn.started"},
        {"type": "item.started", "item": command | {"exit_code": None}},
        {"type": "item.completed", "item": command},
        {"type": "item.updated", "item": todo},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "There it is."}},
        {"type": "turn.completed", "usage": done},
    )
    assert output == "$ ls\na.txt\nThere it is."
    assert kinds(heard_reports) == ["Conversation", "Progress", "Usage", "Turn"]
    assert heard_reports[2] == r.UsageReport("gpt-6", 2400, 100, 600)
    assert heard_reports[3] == r.TurnReport("There it is.")
    again = codex.turn(session, "more", c.thread_id(1))
    assert again.argv[1:3] == ("exec", "resume") and again.argv[-2:] == (c.thread_id(1), "-")
    _, heard_reports = lines(
        codex, {"type": "turn.completed", "usage": done | {"input_tokens": 4000, "output_tokens": 130}}
    )
    assert heard_reports[0] == r.UsageReport("gpt-6", 1000, 30, 0), "it tells the sum of all turns"


async def test_a_turn_whose_last_words_must_have_a_shape(session: AgentContext) -> None:
    codex, schema_context = Codex({}, LocalHost()), replace(session, schema='{"type": "object"}')
    for conversation in (None, c.thread_id(1)):
        argv = codex.turn(schema_context, "plan", conversation).argv
        assert Path(argv[argv.index("--output-schema") + 1]).read_text() == '{"type": "object"}'
    assert "--output-schema" not in codex.turn(session, "plan", None).argv


async def test_usage_after_a_restart_begins_where_the_conversation_was(
    session: AgentContext, world: c.CodexWorld
) -> None:
    world.rollout([c.context(), c.used(1500, 300, 50)])
    codex = Codex({}, LocalHost())
    codex.turn(session, "more", c.thread_id(1))
    whole = {"input_tokens": 2500, "cached_input_tokens": 300, "output_tokens": 70}
    _, heard_reports = lines(codex, {"type": "turn.completed", "usage": whole})
    assert heard_reports[0] == r.UsageReport("gpt-5.5", 1000, 20, 0)


def test_the_reason_of_a_failed_turn_is_shown() -> None:
    codex = Codex({}, LocalHost())
    output, heard_reports = lines(codex, {"type": "turn.failed", "error": {"message": "status 401"}})
    assert (output, heard_reports) == ("! status 401", [])
    limit = "You’ve hit your usage limit. … try again at Nov 21st, 2026 3:07 PM."
    _, heard_reports = lines(codex, {"type": "turn.failed", "error": {"message": limit}})
    assert isinstance(heard_reports[0], r.LimitReport) and heard_reports[0].resets_at is not None
    assert codex.read_turn("WARNING: no JSON").show == "WARNING: no JSON"
