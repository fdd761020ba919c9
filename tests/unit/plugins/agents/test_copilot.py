"""Copilot's events, as 1.0.102 writes them, and what becomes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.agents.copilot import Copilot, retry_notice
from agent_orchestrator.protocols import Activity, AgentContext, NotReady, Permission
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.played_launch import PlayedLaunch, kinds

pytestmark = pytest.mark.anyio

ID = "11111111-2222-4333-8444-555555555555"
USAGE = {"model": "gpt-5", "inputTokens": 1500, "outputTokens": 50, "cacheReadTokens": 300, "cacheWriteTokens": 0}
READY = "❯\n────\n ← open sidebar · Interactive · / commands · ? help · tab next tab    gpt-5"
TRUST = "│ Confirm folder trust │\n│ Do you trust the files in this folder? │\n│ ❯ 1. Yes │"
RETRIES = """\
 ❯ try                                                                              11:50 ┃
                                                                                          ┃
 ● Request failed due to a transient API error. Retrying...                               ┃
                                                                                          ┃
 /home/me/app [⎇ w]
──────────────────────────────────────────────────────────────────────────────────────────
❯
──────────────────────────────────────────────────────────────────────────────────────────
 ● Working · 5 B esc esc edit prompt                                                 gpt-5
"""


def event(kind: str, /, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "timestamp": "2026-11-15T11:50:33.336Z"}


def message(content: str, *tools: str) -> dict[str, Any]:
    return event("assistant.message", content=content, toolRequests=[{"name": tool} for tool in tools])


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "home/session-state" / ID / "events.jsonl"


def play(tmp_path: Path, **memo: str) -> PlayedLaunch:
    return PlayedLaunch(
        Copilot({}, LocalHost()), tmp_path, {"home": str(tmp_path / "home"), "prompt": "yes", **memo}, ID
    )


async def test_a_turn(tmp_path: Path, events: Path) -> None:
    async with play(tmp_path) as launch:
        taken_report, active = await launch.write_and_read(
            events, event("session.start"), event("user.message", content="Fix it")
        )
        assert (taken_report.text, active.state) == ("Fix it", Activity.ACTIVE)
        step = [event("assistant.turn_start"), event("session.usage_record", usage=USAGE), message("", "bash")]
        (used,) = await launch.write_and_read(events, *step, event("assistant.turn_end"))
        assert (used.model, used.input, used.output, used.cache_read) == ("gpt-5", 1200, 50, 300)
        last = [event("assistant.turn_start"), message("Done one"), event("assistant.turn_end")]
        (ended,) = await launch.write_and_read(events, *last)
        assert ended.text == "Done one"


async def test_a_long_message_is_read_where_it_was_put_and_nowhere_else(tmp_path: Path, events: Path) -> None:
    kept, other = events.parent / "files" / "paste-1.txt", tmp_path / "secret.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("the whole\nlong text")
    other.write_text("secret")
    form = '<pasted_content file="{}" size="50.7 KB" lines="500" />'
    async with play(tmp_path) as launch:
        taken_report, _ = await launch.write_and_read(events, event("user.message", content=form.format(kept)))
        assert taken_report.text == "the whole\nlong text"
        (taken_report,) = await launch.write_and_read(events, event("user.message", content=form.format(other)))
        assert taken_report.text == form.format(other)


async def test_a_permission(tmp_path: Path, events: Path) -> None:
    request = {"kind": "shell", "fullCommandText": "touch a", "intention": "make it"}
    async with play(tmp_path) as launch:
        await launch.write_and_read(events, event("user.message", content="Fix it"), event("assistant.turn_start"))
        (report,) = await launch.write_and_read(
            events, event("permission.requested", requestId="1", permissionRequest=request)
        )
        assert (report.tool, report.command, report.reason, report.request) == ("shell", "touch a", "make it", "1")
        done = event("permission.completed", requestId="1", result={"kind": "approved"})
        assert kinds(await launch.write_and_read(events, done)) == ["active"]


async def test_a_denial_ends_the_turn(tmp_path: Path, events: Path) -> None:
    request = event(
        "permission.requested", requestId="1", permissionRequest={"kind": "shell", "fullCommandText": "rm a"}
    )
    async with play(tmp_path) as launch:
        await launch.write_and_read(
            events, event("user.message", content="Fix it"), event("assistant.turn_start"), request
        )
        denied = event("permission.completed", requestId="1", result={"kind": "cancelled"})
        assert await launch.write_and_read(events, denied) == [], "nothing may be typed into it yet"
        assert await launch.write_and_read(events, event("abort", reason="user_initiated")) == [], (
            "it still shows that it stops"
        )
        launch.visible = READY
        assert kinds(await launch.write_and_read()) == ["interrupted"]


async def test_a_file_is_asked_for_by_its_place_in_the_workspace(tmp_path: Path, events: Path) -> None:
    request = {"kind": "write", "fileName": str(tmp_path / "workspace/src/a.py"), "intention": "Create file"}
    async with play(tmp_path) as launch:
        (report,) = await launch.write_and_read(
            events, event("permission.requested", requestId="1", permissionRequest=request)
        )
        assert (report.tool, report.command) == ("edit", "src/a.py")


async def test_an_interruption_and_an_error_are_no_end_of_a_turn(tmp_path: Path, events: Path) -> None:
    begin = [event("user.message", content="Fix it"), event("assistant.turn_start")]
    async with replace(play(tmp_path), visible=READY) as launch:
        await launch.write_and_read(events, message("old words"), *begin)
        stopped = [event("assistant.turn_end"), event("abort", reason="user_initiated")]
        assert kinds(await launch.write_and_read(events, *stopped)) == ["interrupted"]
        failed = event("session.error", errorType="query", message="retried 5 times; 500", statusCode=500)
        await launch.write_and_read(events, *begin)
        (report,) = await launch.write_and_read(events, event("assistant.turn_end"), failed)
        assert (report.state, report.detail) == (Activity.INTERRUPTED, "API error: retried 5 times; 500")


async def test_a_subagent_is_not_the_agent(tmp_path: Path, events: Path) -> None:
    async with play(tmp_path) as launch:
        await launch.write_and_read(events, event("user.message", content="Fix it"), event("assistant.turn_start"))
        inner = [{**message("inner words"), "agentId": "a1"}, {**event("assistant.turn_end"), "agentId": "a1"}]
        spent = {**event("session.usage_record", usage=USAGE), "agentId": "a1"}
        assert kinds(await launch.write_and_read(events, *inner, spent)) == ["Usage"]


async def test_a_retry_is_seen_on_the_screen(tmp_path: Path, events: Path) -> None:
    async with play(tmp_path) as launch:
        await launch.write_and_read(events, event("user.message", content="try"), event("assistant.turn_start"))
        launch.visible = RETRIES
        (report,) = await launch.write_and_read()
        assert report.state == Activity.RETRYING
        launch.visible = ""
        assert kinds(await launch.write_and_read(events, message("Done"))) == ["active"]


def test_an_old_retry_does_not_count() -> None:
    assert retry_notice(RETRIES)
    assert not retry_notice(RETRIES.replace("/home/me", "● Done\n\n /home/me"))


async def test_the_agent_is_idle_at_its_prompt_without_a_task(tmp_path: Path) -> None:
    async with play(tmp_path, prompt="") as launch:
        launch.visible = " ● Loading: 2 skills"
        assert await launch.write_and_read() == []
        launch.visible = READY
        assert kinds(await launch.write_and_read()) == ["idle"]


async def test_a_question_before_the_start(tmp_path: Path) -> None:
    async with play(tmp_path) as launch:
        launch.visible = TRUST
        (report,) = await launch.write_and_read()
        assert isinstance(report, r.PermissionReport) and report.tool == "folder trust"


async def test_events_of_an_earlier_process_are_not_reported(tmp_path: Path, events: Path) -> None:
    first = play(tmp_path)
    async with first:
        await first.write_and_read(events, event("user.message", content="Fix it"), event("assistant.turn_start"))
    later = replace(
        play(tmp_path, prompt="", before=str(events.stat().st_size)), cursors=first.read_positions(), visible=READY
    )
    async with later:
        assert kinds([report for heard in later.batches for report in heard.reports]) == ["idle"]


# -- launching ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    for folder in ("bin", "workspace", "private", "home", "repo/.git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin/copilot").write_text("#!/bin/sh\n")
    (tmp_path / "bin/copilot").chmod(0o755)
    (tmp_path / "workspace/.git").write_text("gitdir: …")
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
        repo=tmp_path / "repo",
        commands=("make test", "pytest"),
        allowed=(Permission("shell", "gh pr view 1"),),
        env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")},
    )


async def test_the_agent_is_started_with_our_session_id_and_its_rules(context: AgentContext) -> None:
    plan = await Copilot({}, LocalHost()).launch(context)
    assert f"--session-id={plan.conversation}" in plan.argv and plan.argv[-2:] == ("--interactive", "Fix it")
    folder = Path(plan.env["COPILOT_CUSTOM_INSTRUCTIONS_DIRS"])
    assert (folder / "worker.instructions.md").read_text() == "Work here."
    allowed = [word for word in plan.argv if word.startswith("--allow-tool")]
    assert allowed == ["--allow-tool=write"], "it knows commands by their names alone: that would allow every argument"


async def test_its_folder_is_trusted_and_nothing_is_lost(context: AgentContext, tmp_path: Path) -> None:
    config = tmp_path / "home/.copilot/config.json"
    config.parent.mkdir()
    config.write_text('// managed\n{"firstLaunchAt": "x", "trustedFolders": ["/other"]}')
    for _ in range(2):
        await Copilot({}, LocalHost()).launch(context)
    text = config.read_text()
    assert text.startswith("// managed\n")
    data = json.loads(text.partition("\n")[2])
    assert data == {"firstLaunchAt": "x", "trustedFolders": ["/other", str(context.repo)]}


async def test_the_agent_is_resumed(context: AgentContext, tmp_path: Path) -> None:
    events_file = tmp_path / "home/.copilot/session-state" / ID / "events.jsonl"
    plan = await Copilot({}, LocalHost()).launch(replace(context, resume=ID, message="And now?"))
    assert plan.argv[-1] == "Fix it", "it had not begun yet"
    events_file.parent.mkdir(parents=True)
    events_file.write_text("{}\n")
    plan = await Copilot({}, LocalHost()).launch(replace(context, resume=ID[:8], message="And now?"))
    assert f"--session-id={ID}" in plan.argv and plan.argv[-1] == "And now?"
    plan = await Copilot({}, LocalHost()).launch(replace(context, resume="my work"))
    assert "--resume=my work" in plan.argv and plan.waits


@pytest.mark.parametrize("text", ["/clear", "!ls", "? what"])
def test_a_message_is_no_command(text: str) -> None:
    assert Copilot({}, LocalHost()).escape_input(text) == f" {text}"


@pytest.mark.parametrize(("input_text", "unsent"), [("fix it now", True), ("", False), ("somebody else's", False)])
def test_a_text_that_was_not_sent_off_is_seen(input_text: str, unsent: bool) -> None:
    screen = ("❯ old words\n" + "─" * 40 + "\n❯ {}\n" + "─" * 40 + "\n ctrl+q enqueue").format(input_text)
    assert Copilot({}, LocalHost()).has_unsent_text(screen, "fix it\nnow, please") == unsent


async def test_nothing_is_typed_into_a_dialog(tmp_path: Path) -> None:
    agent = Copilot({}, LocalHost())
    async with play(tmp_path) as launch:
        launch.visible = "│ ↑/↓ to navigate · enter to select · esc to cancel │"
        assert isinstance(await agent.deliver(launch.run, "m", "x", interrupt=False), NotReady)
        launch.visible = "❯"
        assert await agent.deliver(launch.run, "m", "x", interrupt=False) is None
