"""Reports from Kimi Code's wire log, as written by version 2.1.0."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.agents.kimicode import KimiCode, WireLogState, folder_key, node_environment
from agent_orchestrator.plugins.agents.shared.journals import MAX_JOURNALS
from agent_orchestrator.protocols import Activity, AgentContext, NotReady
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.played_launch import PlayedLaunch, kinds

pytestmark = pytest.mark.anyio

SESSION = "session_e7dd8e38-fd75-4df3-82ed-7808792bbd8a"
USAGE = {"inputOther": 1200, "output": 50, "inputCacheRead": 300, "inputCacheCreation": 20}
READY = " ╭────╮\n │ >                    │\n ╰────╯"


def record(kind: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "agentId": "main", **more, "time": 1794744009000}


def prompt(text: str, kind: str = "user") -> dict[str, Any]:
    return record("turn.prompt", input=[{"type": "text", "text": text}], origin={"kind": kind}, turnId=0)


def step(kind: str, /, **more: Any) -> dict[str, Any]:
    return record("context.append_loop_event", event={"type": kind, "turnId": "0", **more})


def text_part(text: str) -> dict[str, Any]:
    return step("content.part", part={"type": "text", "text": text})


USED = record("usage.record", model="scripted/gpt-5", usage=USAGE, usageScope="turn")


def wire_of(tmp_path: Path, session: str = SESSION, agent: str = "main") -> Path:
    folder = tmp_path / "home/sessions" / folder_key(tmp_path / "workspace")
    return folder / session / "agents" / agent / "wire.jsonl"


def play(tmp_path: Path, **memo: str) -> PlayedLaunch:
    return PlayedLaunch(KimiCode({}, LocalHost()), tmp_path, {"home": str(tmp_path / "home"), "prompt": "yes", **memo})


async def test_a_turn(tmp_path: Path) -> None:
    wire = wire_of(tmp_path)
    async with play(tmp_path) as launch:
        began = await launch.write_and_read(wire, record("metadata"), prompt("Fix it"))
        assert kinds(began) == ["Conversation", "MessageTaken", "active"]
        assert (began[0].conversation, began[1].text) == (SESSION, "Fix it")
        (used,) = await launch.write_and_read(
            wire, step("step.begin"), USED, text_part("I look."), step("tool.call", name="Bash")
        )
        assert (used.model, used.input, used.output, used.cache_read, used.cache_write) == ("gpt-5", 1200, 50, 300, 20)
        end = record("turn.ended", turnId=0, reason="completed")
        (ended,) = await launch.write_and_read(wire, step("step.begin"), text_part("Done "), text_part("one"), end)
        assert ended.text == "Done one"


async def test_a_permission(tmp_path: Path) -> None:
    wire = wire_of(tmp_path)
    display = {"kind": "command", "command": "touch a", "cwd": str(tmp_path / "workspace")}
    request = {"toolName": "Bash", "action": "Running: touch a", "display": display}
    async with play(tmp_path) as launch:
        await launch.write_and_read(wire, prompt("Fix it"))
        request_record = record("interaction.request", id="approval_1", kind="approval", request=request)
        (report,) = await launch.write_and_read(wire, request_record)
        assert (report.tool, report.command, report.request) == ("Bash", "touch a", "approval_1")
        assert kinds(await launch.write_and_read(wire, record("interaction.resolved", id="approval_1"))) == ["active"]
        elsewhere = {**request, "display": {**display, "cwd": "/x y"}}
        (other,) = await launch.write_and_read(
            wire, record("interaction.request", id="3", kind="approval", request=elsewhere)
        )
        assert other.command == "cd '/x y' && touch a", "another folder makes another command of it"
        file = {"display": {"path": str(tmp_path / "workspace/src/a.py")}, "toolName": "Write"}
        (edit,) = await launch.write_and_read(
            wire, record("interaction.request", id="2", kind="approval", request=file)
        )
        assert (edit.tool, edit.command) == ("edit", "src/a.py")


def test_a_question_is_answered_by_a_person_in_its_terminal() -> None:
    questions = {"questions": [{"question": "Which one?"}]}
    (report,) = WireLogState(Path("/w")).read_record(
        record("interaction.request", id="1", kind="question", request=questions)
    )
    assert isinstance(report, r.ActivityReport) and report.state == Activity.BLOCKED and "Which one?" in report.detail


async def test_retries_an_interruption_and_an_error(tmp_path: Path) -> None:
    wire = wire_of(tmp_path)
    failed = {"nextAttempt": 2, "maxAttempts": 10, "errorMessage": "500 scripted error 500", "statusCode": 500}
    async with play(tmp_path) as launch:
        await launch.write_and_read(wire, prompt("Fix it"))
        (retry,) = await launch.write_and_read(wire, record("turn.step.retrying", **failed))
        assert (retry.state, retry.detail) == (Activity.RETRYING, "500 scripted error 500 (attempt 2 of 10)")
        assert kinds(await launch.write_and_read(wire, USED)) == ["Usage", "active"]
        assert kinds(await launch.write_and_read(wire, record("turn.ended", reason="cancelled"))) == ["interrupted"]
        error = {"code": "provider.api_error", "message": "400 scripted error 400"}
        (report,) = await launch.write_and_read(
            wire, prompt("x", "injection"), record("turn.ended", reason="failed", error=error)
        )
        assert (report.state, report.detail) == (Activity.INTERRUPTED, "API error: 400 scripted error 400")


async def test_a_subagents_use_counts_and_its_words_do_not(tmp_path: Path) -> None:
    async with play(tmp_path) as launch:
        await launch.write_and_read(wire_of(tmp_path), prompt("Fix it"))
        inner = [prompt("inner"), USED, text_part("inner words"), record("turn.ended", reason="completed")]
        assert kinds(await launch.write_and_read(wire_of(tmp_path, agent="a1"), *inner)) == ["Usage"]


async def test_a_plan_is_progress(tmp_path: Path) -> None:
    todos = [{"title": "one", "status": "done"}, {"title": "two", "status": "in_progress"}, {"title": "three"}]
    async with play(tmp_path) as launch:
        await launch.write_and_read(wire_of(tmp_path), prompt("Fix it"))
        (report,) = await launch.write_and_read(
            wire_of(tmp_path), step("tool.call", name="TodoList", args={"todos": todos})
        )
        assert (report.done, report.total, report.step) == (1, 3, "two")


async def test_a_restored_one_is_idle_when_its_prompt_is_there(tmp_path: Path) -> None:
    wire = wire_of(tmp_path)
    first = play(tmp_path)
    async with first:
        await first.write_and_read(wire, prompt("Fix it"))
    before = json.dumps({SESSION: wire.stat().st_size})
    later = replace(play(tmp_path, prompt="", before=before), conversation=SESSION, cursors=first.read_positions())
    async with later:
        later.visible = READY
        assert kinds(await later.write_and_read()) == ["idle"]
        assert kinds(await later.write_and_read(wire, prompt("Again"))) == ["MessageTaken", "active"]


# -- launching ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    for folder in ("bin", "workspace", "private", "home"):
        (tmp_path / folder).mkdir(parents=True)
    for program in ("kimi", "node"):
        (tmp_path / "bin" / program).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / program).chmod(0o755)
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
        env={"PATH": f"/usr/bin:{tmp_path / 'bin'}", "HOME": str(tmp_path / "home")},
    )


async def test_its_rules_and_its_task_are_typed(context: AgentContext) -> None:
    plan = await KimiCode({}, LocalHost()).launch(replace(context, permissions="full", model="k2"))
    assert plan.argv[1:] == ("--model", "k2", "--auto")
    assert plan.paste == "<rules>\nWork here.\n</rules>\n\nFix it"


async def test_the_agent_runs_on_its_own_node_executable(context: AgentContext, tmp_path: Path) -> None:
    plan = await KimiCode({}, LocalHost()).launch(context)
    assert plan.env["PATH"].split(":")[0] == str(tmp_path / "bin")
    assert node_environment(str(tmp_path / "private/kimi"), {}) == {}


async def test_its_folder_is_trusted(context: AgentContext, tmp_path: Path) -> None:
    await KimiCode({}, LocalHost()).launch(context)
    (trusted,) = (tmp_path / "home/.kimi-code/workspace-trust").iterdir()
    assert json.loads(trusted.read_text())["root"] == str(tmp_path / "workspace")


def test_a_folders_name_is_as_the_cli_makes_it() -> None:
    assert folder_key(Path("/tmp/no-such-folder/My App")).startswith("wd_my-app_")
    assert folder_key(Path("/")) == "wd_workspace_e3b0c44298fc"


async def test_the_agent_is_resumed(context: AgentContext) -> None:
    plan = await KimiCode({}, LocalHost()).launch(replace(context, resume=SESSION, message="And now?"))
    assert plan.argv[1:] == ("--session", SESSION) and plan.paste == "And now?"
    plan = await KimiCode({}, LocalHost()).launch(replace(context, resume=""))
    assert plan.argv[1:] == ("--continue",) and plan.paste is None and plan.waits


@pytest.mark.parametrize(("input_text", "unsent"), [("fix it now", True), ("", False), ("somebody else's", False)])
def test_a_text_that_was_not_sent_off_is_seen(input_text: str, unsent: bool) -> None:
    screen = f" ✨ old words\n ╭──╮\n │ > {input_text}        │\n ╰──╯"
    assert KimiCode({}, LocalHost()).has_unsent_text(screen, "fix it\nnow, please") == unsent


async def test_nothing_is_typed_into_a_dialog(tmp_path: Path) -> None:
    agent = KimiCode({}, LocalHost())
    async with play(tmp_path) as launch:
        launch.visible = "   ↑/↓ select · 1/2/3/4 choose · ↵ confirm"
        assert isinstance(await agent.deliver(launch.run, "m", "x", interrupt=False), NotReady)
        launch.visible = "❯"
        assert await agent.deliver(launch.run, "m", "x", interrupt=False) is None


async def test_only_the_latest_sessions_are_read(context: AgentContext, tmp_path: Path) -> None:
    folder = tmp_path / "home/.kimi-code/sessions" / folder_key(context.workspace)
    for number in range(MAX_JOURNALS + 50):
        wire = folder / f"session_{number}/agents/main/wire.jsonl"
        wire.parent.mkdir(parents=True)
        wire.touch()
        os.utime(wire, (number, number))
    sessions_before = json.loads((await KimiCode({}, LocalHost()).launch(context)).plugin_data["before"])
    assert set(sessions_before) == {f"session_{number}" for number in range(50, MAX_JOURNALS + 50)}


async def test_a_session_that_began_in_another_folder_is_heard(tmp_path: Path) -> None:
    elsewhere = tmp_path / "home/sessions/wd_other" / SESSION / "agents/main/wire.jsonl"
    async with replace(play(tmp_path), conversation=SESSION) as launch:
        assert kinds(await launch.write_and_read(elsewhere, prompt("Fix it"))) == ["MessageTaken", "active"]
