"""Agents that are the `command` agent with a description."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import Missing
from agent_orchestrator.plugins.agents import yaml_agents
from agent_orchestrator.protocols import AgentContext, AgentLaunch
from agent_orchestrator.sessions.lifecycle.environment import AGENT_SECRETS

pytestmark = pytest.mark.anyio

NAMES = sorted(path.stem for path in Path(yaml_agents.__file__).parent.glob("*.yaml"))


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    for name in NAMES:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return AgentContext(
        session="app-x",
        project="app",
        workspace=tmp_path,
        branch="feature/x",
        base="main",
        prompt="Fix it\n\nrules",
        task="Fix it",
        system="Work here.",
        task_file=tmp_path / "task.md",
        private=tmp_path,
        env={"PATH": str(tmp_path / "bin")},
    )


async def launch(name: str, context: AgentContext, **options: object) -> AgentLaunch:
    plan: AgentLaunch = await PluginRegistry().create("agent", name, options, LocalHost()).launch(context)
    return plan


@pytest.mark.parametrize("name", NAMES)
async def test_each_is_an_agent_by_its_name(name: str, context: AgentContext) -> None:
    assert name in PluginRegistry().names("agent")
    assert AGENT_SECRETS[name], "it gets its own key"
    first = await launch(name, context)
    text = "\n".join([*first.argv, first.paste or ""])
    assert "Fix it" in text and "Work here." in text, "task and rules reach it"
    again = await launch(name, replace(context, resume=""))
    assert again.argv != first.argv and not again.paste and "Fix it" not in " ".join(again.argv), (
        "the task is not given again"
    )
    sent = await launch(name, replace(context, resume="", message="And now?"))
    assert "And now?" in (*sent.argv, sent.paste)


@pytest.mark.parametrize("name", NAMES)
async def test_a_missing_program_has_an_installation_hint(name: str, context: AgentContext) -> None:
    with pytest.raises(Missing) as caught:
        await launch(name, replace(context, env={"PATH": ""}))
    assert caught.value.remedy.startswith("install it: npm install -g ")
    assert "your login shell's PATH" in caught.value.remedy


async def test_words_on_a_condition(context: AgentContext) -> None:
    full = await launch("qwen", replace(context, permissions="full", model="big"))
    assert full.argv[1:] == (
        "--approval-mode=yolo",
        "--model=big",
        "--append-system-prompt=Work here.",
        "--prompt-interactive",
        "Fix it",
    )
    edits = await launch("qwen", context)
    assert edits.argv[1] == "--approval-mode=auto-edit" and "run_shell_command(git commit -m)" in " ".join(edits.argv)


async def test_options_are_laid_over_the_description(context: AgentContext) -> None:
    plan = await launch("crush", context, command=["crush", "--debug"], rules=None)
    assert plan.argv[1:] == ("--debug",) and plan.paste == "Fix it\n\nrules"
