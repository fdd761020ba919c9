"""Cursor's agent: its launch, and reports from its transcript and screen."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.agents import cursor
from agent_orchestrator.plugins.agents.cursor import Cursor, project_key, text_of
from agent_orchestrator.plugins.agents.shared.journals import MAX_JOURNALS
from agent_orchestrator.protocols import AgentContext
from tests.unit.plugins.agents.played_launch import PlayedLaunch, kinds

pytestmark = pytest.mark.anyio


def record(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "message": {"content": [{"type": "text", "text": text}]}}


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "SCREEN_POLL_SECONDS", 0.0)


async def test_a_turn(tmp_path: Path) -> None:
    transcripts = tmp_path / "transcripts"
    launch = PlayedLaunch(Cursor({}, LocalHost()), tmp_path, {"folder": str(transcripts), "before": "old"})
    async with launch:
        chat = transcripts / "c1/c1.jsonl"
        launch.visible = " ⬢ Working\n ctrl+c to stop"
        began = await launch.write_and_read(chat, record("user", "<user_query>\nFix it\n</user_query>"))
        assert kinds(began) == ["Conversation", "MessageTaken", "active"]
        assert (began[0].conversation, began[1].text) == ("c1", "Fix it")
        launch.visible = "Run this command?\n Run (once) (y)"
        assert kinds(await launch.write_and_read(prints=".")) == ["blocked"]
        launch.visible = " ctrl+c to stop"
        assert kinds(await launch.write_and_read(prints=".")) == ["active"]
        launch.visible = " → Add a follow-up"
        (ended,) = await launch.write_and_read(chat, record("assistant", "Done one"), prints=".")
        assert ended.text == "Done one"


def test_text_without_a_tag() -> None:
    assert text_of(record("user", "plain")) == "plain"
    assert text_of({"role": "user"}) == ""


def test_a_folders_name() -> None:
    assert project_key(Path("/no-such/My.App_x")) == "no-such-My-App-x"


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cursor-agent").write_text("#!/bin/sh\n")
    (tmp_path / "bin/cursor-agent").chmod(0o755)
    return AgentContext(
        session="app-x",
        project="app",
        workspace=tmp_path,
        branch="feature/x",
        base="main",
        prompt="Fix it",
        task="Fix it",
        task_file=tmp_path / "task.md",
        private=tmp_path,
        env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)},
    )


async def test_how_it_is_started(context: AgentContext) -> None:
    agent = Cursor({}, LocalHost())
    assert (await agent.launch(context)).argv[1:] == ("--trust", "Fix it")
    plan = await agent.launch(replace(context, permissions="plan", model="auto", resume="c1", message="-x"))
    assert plan.argv[1:] == ("--trust", "--model", "auto", "--mode", "plan", "--resume=c1", " -x")
    assert (await agent.launch(replace(context, resume="", permissions="full"))).argv[1:] == (
        "--trust",
        "--force",
        "--continue",
    )


async def test_only_the_latest_chats_are_read(context: AgentContext) -> None:
    folder = context.workspace / ".cursor/projects" / project_key(context.workspace) / "agent-transcripts"
    for number in range(MAX_JOURNALS + 50):
        chat = folder / f"c{number}/c{number}.jsonl" if number % 2 else folder / f"c{number}.jsonl"
        chat.parent.mkdir(parents=True, exist_ok=True)
        chat.touch()
        os.utime(chat, (number, number))
    chats = (await Cursor({}, LocalHost()).launch(context)).plugin_data["before"].split("\n")
    assert chats == [f"c{number}" for number in range(50, MAX_JOURNALS + 50)]
