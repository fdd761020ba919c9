"""Dialogs of Claude Code: how they are reported and answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_orchestrator.plugins.agents.claude_code import dialogs
from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode
from agent_orchestrator.protocols import Activity, Permission, ReadyToType
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.claude_code import claude
from tests.unit.plugins.agents.claude_code.claude import SimulatedClaude
from tests.unit.plugins.agents.claude_code.launch_files import ACTIVE

pytestmark = pytest.mark.anyio


async def test_a_permission_request_has_command_and_reason(run: SimulatedClaude) -> None:
    run.record("busy")
    arguments = {"command": "curl http://x", "description": "Fetch x"}
    run.write(run.user("one"), run.called("Bash", arguments))
    run.hook("PermissionRequest", tool_name="Bash", tool_input=arguments)
    await run.read_reports()
    run.record("waiting", "permission prompt")
    (request,) = await run.read_reports()
    assert isinstance(request, r.PermissionReport)
    assert (request.tool, request.command, request.reason) == ("Bash", "curl http://x", "Fetch x") and request.request
    assert await run.read_reports(20) == []
    run.record("busy")
    assert await run.read_reports() == [ACTIVE]
    run.hook("PermissionRequest", tool_name="Bash", tool_input=arguments)
    run.record("waiting", "permission prompt")
    (again,) = await run.read_reports()
    assert isinstance(again, r.PermissionReport) and again.request != request.request


async def test_an_old_request_is_not_taken_for_another_dialog(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.called("Bash", {"command": "make"}, "t1"), run.result("t1"))
    run.hook("PermissionRequest", tool_name="Bash", tool_input={"command": "make"})
    await run.read_reports()
    run.now += 60
    run.write(run.called("Write", {"file_path": "/n.txt"}, "t2"))
    run.record("waiting", "permission prompt")
    await run.read_reports()
    (request,) = await run.read_reports(1)
    assert isinstance(request, r.PermissionReport) and request.command == "/n.txt"


async def test_an_answered_request_is_over(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.called("Bash", {"command": "make"}, "t1"))
    run.hook("PermissionRequest", tool_name="Bash", tool_input={"command": "make"})
    run.record("waiting", "permission prompt")
    assert isinstance((await run.read_reports())[-1], r.PermissionReport)
    run.record("busy")
    run.write(run.result("t1"), run.called("Write", {"file_path": "/n.txt"}, "t2"))
    await run.read_reports()
    run.record("waiting", "permission prompt")
    await run.read_reports()
    (request,) = await run.read_reports(1)
    assert isinstance(request, r.PermissionReport) and request.command == "/n.txt"


async def test_a_permission_without_a_hook_is_derived_from_the_open_call(run: SimulatedClaude) -> None:
    run.record("busy")
    path = str(run.workspace / "docs" / "n.txt")
    run.write(run.user("one"), run.called("Write", {"file_path": path, "content": "x"}))
    await run.read_reports()
    run.record("waiting", "permission prompt")
    assert await run.read_reports() == []
    (request,) = await run.read_reports(1)
    assert isinstance(request, r.PermissionReport) and (request.tool, request.command) == ("Write", "docs/n.txt")


async def test_a_question_with_choices_is_answered_with_text(run: SimulatedClaude) -> None:
    run.record("busy")
    question = {
        "question": "Which database?",
        "multiSelect": False,
        "options": [{"label": "PostgreSQL", "description": "big"}, {"label": "SQLite"}],
    }
    run.write(run.user("one"), run.called("AskUserQuestion", {"questions": [question]}))
    run.hook("PermissionRequest", tool_name="AskUserQuestion", tool_input={"questions": [question]})
    run.record("waiting", "input needed")
    request = (await run.read_reports())[-1]
    assert request == r.AskReport("Which database?\n- PostgreSQL: big\n- SQLite")
    run.write(run.result(outcome={"answers": {"Which database?": "use mysql"}}))
    (taken_report,) = await run.read_reports()
    assert isinstance(taken_report, r.MessageTakenReport) and taken_report.text == "use mysql"


async def test_several_questions_at_once_must_be_answered_in_the_dialog(run: SimulatedClaude) -> None:
    run.record("busy")
    question = {"question": "Which colours?", "multiSelect": True, "options": []}
    run.hook("PermissionRequest", tool_name="AskUserQuestion", tool_input={"questions": [question]})
    run.record("waiting", "input needed")
    request = (await run.read_reports())[-1]
    assert isinstance(request, r.PermissionReport) and "deny with the answers" in request.reason


async def test_another_kind_of_dialog_blocks_too(run: SimulatedClaude) -> None:
    run.record("idle")
    await run.read_reports()
    run.visible = claude.PLAN_DIALOG
    run.record("waiting", "dialog open")
    assert await run.read_reports() == []
    assert await run.read_reports(1) == [r.ActivityReport(Activity.BLOCKED, "Exit plan mode?")]


async def test_the_screen_of_a_silent_start_is_read(run: SimulatedClaude) -> None:
    run.visible = "Select login method:\n\n ❯ 1. Claude account with subscription\n   2. Anthropic Console account\n"
    assert await run.read_reports() == []
    assert await run.read_reports(6) == [r.ActivityReport(Activity.BLOCKED, "Select login method:")]


@pytest.mark.parametrize(
    ("screen", "command", "decision", "keys"),
    [
        (claude.PERMISSION_DIALOG, "rm -f foo.txt && curl http://x", "allow", ("1",)),
        (claude.PERMISSION_DIALOG, "rm -f foo.txt && curl http://x", "always", ("1",)),
        (claude.PERMISSION_DIALOG, "rm -f foo.txt && curl http://x", "deny", ("Escape",)),
        (claude.PERMISSION_DIALOG, "rm -rf /", "allow", None),
        (claude.FILE_DIALOG, "/home/me/plans/n.txt", "allow", ("Down", "Enter")),
        (claude.PLAN_DIALOG, "", "allow", ("1",)),
        (claude.PLAN_DIALOG, "", "deny", ("Escape",)),
        (claude.QUESTION_DIALOG, "Which database?\n- PostgreSQL: big\n- SQLite", "deny", ("Escape",)),
        (claude.QUESTION_DIALOG, "Which database?\n- PostgreSQL: big\n- SQLite", "allow", None),
    ],
)
async def test_answers_are_the_keys_of_the_visible_dialog(
    agent: ClaudeCode, run: SimulatedClaude, screen: str, command: str, decision: str, keys: tuple[str, ...] | None
) -> None:
    run.visible = screen
    dialog = dialogs.parse_dialog(screen)
    assert dialog is not None
    assert dialogs.key_for(dialog, command, decision) == keys
    if keys:
        assert await agent.answer(run.run, Permission("Bash", command), decision, "") == keys


async def test_a_dialog_is_answered_once_it_is_stable(agent: ClaudeCode, run: SimulatedClaude) -> None:
    reads = []

    async def screen() -> str:
        reads.append(1)
        return claude.PERMISSION_DIALOG

    await agent.answer(replace(run.run, screen=screen), Permission("Bash", ""), "allow", "")
    assert len(reads) > 3


async def test_no_key_is_pressed_without_a_dialog(
    agent: ClaudeCode, run: SimulatedClaude, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.plugins.agents.claude_code.plugin.DIALOG_TIMEOUT", 0.2)
    assert dialogs.parse_dialog(claude.PROMPT) is None
    assert await agent.answer(run.run, Permission("Bash", "x"), "allow", "") is None


async def test_text_restored_by_escape_is_removed_before_a_message(agent: ClaudeCode, run: SimulatedClaude) -> None:
    async def delivered(prompt_text: str, *, interrupt: bool = False) -> ReadyToType | None:
        run.visible = claude.PROMPT.replace("1. this is being typed", prompt_text)
        return await agent.deliver(run.run, "m-1", "next", interrupt=interrupt)

    run.plugin_data["folder"] = str(run.folder)
    run.write(run.user("do a long thing\nin two lines"))
    run.record("busy")
    assert await delivered("do a long thing") is None, "it is at work: that is a person's"
    run.record("idle")
    assert await delivered("do a long thing") == ReadyToType(("C-c",))
    assert await delivered("[Pasted text #1 +80 lines]") == ReadyToType(("C-c",))
    assert await delivered("something else") is None, "a person's"
    assert await delivered("") is None
    assert await delivered("do a long thing", interrupt=True) is None
    run.write(run.answer_line("Done."))
    assert await delivered("do a long thing") is None, "it was answered"
