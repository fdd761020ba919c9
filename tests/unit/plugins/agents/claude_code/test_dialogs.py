"""What Claude Code asks, and how its dialogs are answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_orchestrator.plugins.agents.claude_code import dialogs
from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode
from agent_orchestrator.protocols import Activity, Permission, ReadyToType
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.claude_code import claude
from tests.unit.plugins.agents.claude_code.claude import Claude
from tests.unit.plugins.agents.claude_code.launch_files import ACTIVE

pytestmark = pytest.mark.anyio


async def test_a_permission_with_command_and_reason(run: Claude) -> None:
    run.record("busy")
    given = {"command": "curl http://x", "description": "Fetch x"}
    run.write(run.user("one"), run.called("Bash", given))
    run.hook("PermissionRequest", tool_name="Bash", tool_input=given)
    await run.hear()
    run.record("waiting", "permission prompt")
    (asked,) = await run.hear()
    assert isinstance(asked, r.PermissionReport)
    assert (asked.tool, asked.command, asked.reason) == ("Bash", "curl http://x", "Fetch x") and asked.request
    assert await run.hear(20) == []
    run.record("busy")
    assert await run.hear() == [ACTIVE]
    run.hook("PermissionRequest", tool_name="Bash", tool_input=given)
    run.record("waiting", "permission prompt")
    (again,) = await run.hear()
    assert isinstance(again, r.PermissionReport) and again.request != asked.request


async def test_an_old_request_is_not_taken_for_what_another_dialog_asks(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.called("Bash", {"command": "make"}, "t1"), run.result("t1"))
    run.hook("PermissionRequest", tool_name="Bash", tool_input={"command": "make"})
    await run.hear()
    run.now += 60
    run.write(run.called("Write", {"file_path": "/n.txt"}, "t2"))
    run.record("waiting", "permission prompt")
    await run.hear()
    (asked,) = await run.hear(1)
    assert isinstance(asked, r.PermissionReport) and asked.command == "/n.txt"


async def test_a_request_that_was_answered_is_over(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.called("Bash", {"command": "make"}, "t1"))
    run.hook("PermissionRequest", tool_name="Bash", tool_input={"command": "make"})
    run.record("waiting", "permission prompt")
    assert isinstance((await run.hear())[-1], r.PermissionReport)
    run.record("busy")
    run.write(run.result("t1"), run.called("Write", {"file_path": "/n.txt"}, "t2"))
    await run.hear()
    run.record("waiting", "permission prompt")
    await run.hear()
    (asked,) = await run.hear(1)
    assert isinstance(asked, r.PermissionReport) and asked.command == "/n.txt"


async def test_a_permission_without_a_hook_is_known_by_the_call_without_a_result(run: Claude) -> None:
    run.record("busy")
    path = str(run.workspace / "docs" / "n.txt")
    run.write(run.user("one"), run.called("Write", {"file_path": path, "content": "x"}))
    await run.hear()
    run.record("waiting", "permission prompt")
    assert await run.hear() == []
    (asked,) = await run.hear(1)
    assert isinstance(asked, r.PermissionReport) and (asked.tool, asked.command) == ("Write", "docs/n.txt")


async def test_a_question_with_choices_is_answered_by_text(run: Claude) -> None:
    run.record("busy")
    one = {
        "question": "Which database?",
        "multiSelect": False,
        "options": [{"label": "PostgreSQL", "description": "big"}, {"label": "SQLite"}],
    }
    run.write(run.user("one"), run.called("AskUserQuestion", {"questions": [one]}))
    run.hook("PermissionRequest", tool_name="AskUserQuestion", tool_input={"questions": [one]})
    run.record("waiting", "input needed")
    asked = (await run.hear())[-1]
    assert asked == r.AskReport("Which database?\n- PostgreSQL: big\n- SQLite")
    run.write(run.result(outcome={"answers": {"Which database?": "use mysql"}}))
    (took,) = await run.hear()
    assert isinstance(took, r.MessageTakenReport) and took.text == "use mysql"


async def test_several_questions_at_once_are_a_dialog_to_be_answered_there(run: Claude) -> None:
    run.record("busy")
    one = {"question": "Which colours?", "multiSelect": True, "options": []}
    run.hook("PermissionRequest", tool_name="AskUserQuestion", tool_input={"questions": [one]})
    run.record("waiting", "input needed")
    asked = (await run.hear())[-1]
    assert isinstance(asked, r.PermissionReport) and "deny with the answers" in asked.reason


async def test_a_dialog_of_another_kind_blocks_too(run: Claude) -> None:
    run.record("idle")
    await run.hear()
    run.shown = claude.PLAN_DIALOG
    run.record("waiting", "dialog open")
    assert await run.hear() == []
    assert await run.hear(1) == [r.ActivityReport(Activity.BLOCKED, "Exit plan mode?")]


async def test_a_start_that_never_speaks_is_looked_at(run: Claude) -> None:
    run.shown = "Select login method:\n\n ❯ 1. Claude account with subscription\n   2. Anthropic Console account\n"
    assert await run.hear() == []
    assert await run.hear(6) == [r.ActivityReport(Activity.BLOCKED, "Select login method:")]


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
async def test_answers_are_the_keys_of_the_dialog_that_is_shown(
    agent: ClaudeCode, run: Claude, screen: str, command: str, decision: str, keys: tuple[str, ...] | None
) -> None:
    run.shown = screen
    dialog = dialogs.read(screen)
    assert dialog is not None
    assert dialogs.key_for(dialog, command, decision) == keys
    if keys:
        assert await agent.answer(run.run, Permission("Bash", command), decision, "") == keys


async def test_a_dialog_is_answered_when_it_stood_for_a_while(agent: ClaudeCode, run: Claude) -> None:
    looks = []

    async def screen() -> str:
        looks.append(1)
        return claude.PERMISSION_DIALOG

    await agent.answer(replace(run.run, screen=screen), Permission("Bash", ""), "allow", "")
    assert len(looks) > 3


async def test_nothing_is_pressed_where_no_dialog_is(
    agent: ClaudeCode, run: Claude, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.plugins.agents.claude_code.plugin.DIALOG_WITHIN", 0.2)
    assert dialogs.read(claude.PROMPT) is None
    assert await agent.answer(run.run, Permission("Bash", "x"), "allow", "") is None


async def test_what_escape_put_back_into_its_prompt_is_removed_before_a_message(agent: ClaudeCode, run: Claude) -> None:
    async def delivered(shown: str, *, interrupt: bool = False) -> ReadyToType | None:
        run.shown = claude.PROMPT.replace("1. this is being typed", shown)
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
    run.write(run.said("Done."))
    assert await delivered("do a long thing") is None, "it was answered"
