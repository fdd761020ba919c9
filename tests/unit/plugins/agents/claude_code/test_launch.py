"""Launches of Claude Code: task, rules, permissions, hooks and conversation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.claude_code.listener import projects_folder
from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode, permission_rules
from agent_orchestrator.protocols import AgentContext, Permission
from tests.unit.plugins.agents.claude_code.claude import SESSION
from tests.unit.plugins.agents.claude_code.launch_files import settings, write_transcript

pytestmark = pytest.mark.anyio


async def test_the_task_is_its_first_message_and_the_rules_its_system_prompt(
    agent: ClaudeCode, context: AgentContext
) -> None:
    launch = await agent.launch(replace(context, model="opus"))
    argv = list(launch.argv)
    assert argv[-2:] == ["--", "Fix it"]
    assert argv[argv.index("--append-system-prompt") + 1] == "Be kind."
    assert argv[argv.index("--model") + 1] == "opus"
    assert argv[argv.index("--session-id") + 1] == launch.conversation
    assert not launch.waits


@pytest.mark.parametrize(
    ("permissions", "mode"),
    [("default", "default"), ("plan", "plan"), ("auto-edit", "acceptEdits"), ("full", "bypassPermissions")],
)
async def test_permissions_become_its_modes(
    agent: ClaudeCode, context: AgentContext, permissions: str, mode: str
) -> None:
    argv = (await agent.launch(replace(context, permissions=permissions))).argv
    assert argv[argv.index("--permission-mode") + 1] == mode
    assert settings(context).get("skipDangerousModePermissionPrompt", False) == (permissions == "full")


def test_auto_edit_allows_exactly_the_projects_commands(context: AgentContext) -> None:
    allowed_rules = permission_rules(replace(context, commands=("npm ci && npm test", "rm *.pyc")))
    assert allowed_rules[1:] == ["Bash(npm ci && npm test)"], (
        "a pattern would allow more; such a command is asked for, and allowed by our rule"
    )
    assert not any(rule.startswith("Bash") for rule in permission_rules(replace(context, permissions="default")))


def test_a_persons_rule_allows_exactly_that_request(context: AgentContext) -> None:
    allowed = (
        Permission("Bash", "echo (a)"),
        Permission("WebSearch"),
        Permission("Write", "docs/x.md"),
        Permission("mcp__forge__list", '{"repo": "a"}'),
        Permission("Bash", "rm *.pyc"),
        Permission("Bash", "git commit:*"),
    )
    allowed_rules = permission_rules(replace(context, permissions="default", allowed=allowed))
    assert allowed_rules[1:] == [
        "Bash(echo \\(a\\))",
        "WebSearch",
        f"Edit(/{context.workspace}/docs/x.md)",
    ], "and what would be a pattern is asked for"


async def test_hooks_append_to_a_file_of_their_launch(agent: ClaudeCode, context: AgentContext) -> None:
    first = await agent.launch(context)
    second = await agent.launch(context)
    assert first.plugin_data["hooks"] != second.plugin_data["hooks"]
    commands = {hook["command"] for event in settings(context)["hooks"].values() for hook in event[0]["hooks"]}
    assert commands == {f"cat >> {context.private / second.plugin_data['hooks']}"}


async def test_the_program_on_the_agents_path_is_started(
    agent: ClaudeCode, context: AgentContext, tmp_path: Path
) -> None:
    allowed_rules = await ClaudeCode({}, LocalHost()).detect()
    assert allowed_rules is None or allowed_rules.version
    assert (await agent.launch(context)).argv[0] == str(tmp_path / "bin" / "claude")


async def test_a_very_long_task_is_read_from_a_file_and_a_message_pasted(
    agent: ClaudeCode, context: AgentContext
) -> None:
    long = "x" * 150_000
    first = await agent.launch(replace(context, task=long, prompt=long))
    assert str(context.task_file) in first.argv[-1] and f"Read(/{context.task_file})" in permission_rules(context)
    write_transcript(context, SESSION)
    later = await agent.launch(replace(context, resume=SESSION, message=long, prompt=long))
    assert later.paste == long and "--" not in later.argv


async def test_a_conversation_is_continued_with_rules_and_the_next_message(
    agent: ClaudeCode, context: AgentContext
) -> None:
    write_transcript(context, SESSION)
    launch = await agent.launch(replace(context, resume=SESSION, message="go on", prompt="go on"))
    assert launch.argv[launch.argv.index("--resume") + 1] == SESSION == launch.conversation
    assert launch.argv[-1] == "go on" and "--append-system-prompt" in launch.argv
    silent = await agent.launch(replace(context, resume=SESSION))
    assert silent.waits and "Fix it" not in silent.argv


async def test_the_last_conversation_is_continued_if_there_is_one(agent: ClaudeCode, context: AgentContext) -> None:
    assert "--session-id" in (await agent.launch(replace(context, resume=""))).argv
    write_transcript(context, SESSION)
    launch = await agent.launch(replace(context, resume=""))
    assert "--continue" in launch.argv and launch.conversation is None


async def test_an_unwritten_conversation_starts_over_with_its_task(agent: ClaudeCode, context: AgentContext) -> None:
    launch = await agent.launch(replace(context, resume=SESSION))
    assert launch.argv[launch.argv.index("--session-id") + 1] == SESSION
    assert launch.argv[-1] == "Fix it"


async def test_a_conversation_of_another_folder_is_copied(agent: ClaudeCode, context: AgentContext) -> None:
    there = Path(context.env["HOME"]) / ".claude" / "projects" / "-home-me-app" / f"{SESSION}.jsonl"
    there.parent.mkdir(parents=True)
    there.write_text('{"type": "user"}\n')
    launch = await agent.launch(replace(context, resume=SESSION))
    assert "--resume" in launch.argv
    here = projects_folder(Path(context.env["HOME"]) / ".claude", context.workspace) / f"{SESSION}.jsonl"
    assert here.read_text() == there.read_text()


def test_special_input_is_escaped(agent: ClaudeCode) -> None:
    assert agent.escape_input("!rm -rf x") == " !rm -rf x"
    assert agent.escape_input("ends with \\") == "ends with \\ "
    assert agent.escape_input("/compact") == "/compact"


def test_arguments_must_be_a_list(context: AgentContext) -> None:
    with pytest.raises(UsageError):
        ClaudeCode({"args": "--effort high"}, LocalHost())


async def test_configured_arguments_come_before_the_task(context: AgentContext) -> None:
    argv = (await ClaudeCode({"args": ["--effort", "high"]}, LocalHost()).launch(context)).argv
    assert argv[argv.index("--effort") + 1] == "high" and argv.index("--effort") < argv.index("--")
