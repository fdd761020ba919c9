"""The suite that every Agent plugin must pass. To run it on yours:

    from agent_orchestrator.testing.contracts.agent import AgentContract

    class TestMyAgent(AgentContract):
        @pytest.fixture
        def agent(self) -> Agent:
            return MyAgent({}, LocalHost())

Its CLI must be on the PATH of the fixture `env`; `absent` may return a plugin whose CLI is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.errors import Missing
from agent_orchestrator.protocols import Agent, AgentContext, AgentLaunch, InstalledAgent, ScreenRules

HOSTILE = {
    "quotes": """it's a "test" \\ with 'quotes'""",
    "shell": "$(touch pwned) `touch pwned`; touch pwned && $HOME | cat > pwned",
    "template": "{{7*7}} {% raw %} {{prompt}} ${HOME} %s {0}",
    "lines": "first line\n\nthird line\n",
    "dash": "--help -rf",
    "unicode": "ein Übel, 日本語, 🚀, e\u0301",
    "blank": "   spaces   and\ttab   ",
}


class AgentContract:
    """Subclass it and define the fixture `agent`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def agent(self) -> Agent:
        """The plugin under test."""
        raise NotImplementedError("give a fixture named `agent`")

    @pytest.fixture
    def absent(self) -> Agent | None:
        """The plugin with its CLI not installed, or None if its CLI is always there."""
        return None

    @pytest.fixture
    def env(self) -> Mapping[str, str]:
        """The environment in which the CLI is found."""
        return dict(os.environ)

    @pytest.fixture
    def context(self, tmp_path: Path, env: Mapping[str, str]) -> AgentContext:
        """A session that is about to start."""
        for name in ("workspace", "private"):
            (tmp_path / name).mkdir()
        return with_prompt(
            AgentContext(
                session="app-fix-login",
                project="app",
                workspace=tmp_path / "workspace",
                branch="feature/fix-login",
                base="main",
                prompt="",
                task_file=tmp_path / "private" / "task.md",
                private=tmp_path / "private",
                env=env,
            ),
            "Fix the login",
        )

    def test_it_implements_the_agent_protocol(self, agent: Agent) -> None:
        assert isinstance(agent, Agent), "let its class inherit from agent_orchestrator.protocols.Agent"
        assert isinstance(agent.screen, ScreenRules)
        assert set(agent.permission_keys) <= {"allow", "always", "deny"}
        for keys in (agent.interrupt_keys, *agent.permission_keys.values()):
            assert isinstance(keys, tuple) and keys and all(isinstance(key, str) and key for key in keys)

    async def test_launch_returns_a_program_that_can_be_started(self, agent: Agent, context: AgentContext) -> None:
        assert_startable(await agent.launch(context), context)

    async def test_two_launches_differ_only_in_ids(self, agent: Agent, context: AgentContext) -> None:
        first, second = await agent.launch(context), await agent.launch(context)
        assert first.argv[0] == second.argv[0] and len(first.argv) == len(second.argv)

    async def test_launch_writes_nothing_into_the_workspace(self, agent: Agent, context: AgentContext) -> None:
        await agent.launch(context)
        assert list(context.workspace.iterdir()) == []

    @pytest.mark.parametrize("prompt", HOSTILE.values(), ids=HOSTILE.keys())
    async def test_a_hostile_prompt_arrives_unchanged(self, agent: Agent, context: AgentContext, prompt: str) -> None:
        plain = await agent.launch(with_prompt(context, "plain"))
        launch = await agent.launch(with_prompt(context, prompt))
        assert_startable(launch, context)
        assert len(launch.argv) == len(plain.argv), "the prompt was split into several arguments"
        carrying = [argument for argument in plain.argv if "plain" in argument]
        holding = [argument for argument in launch.argv if prompt in argument]
        assert len(holding) == len(carrying), "the prompt was changed on its way into an argument"
        for before, argument in zip(launch.argv, launch.argv[1:], strict=False):
            assert not (argument == prompt and prompt.startswith("-")) or before == "--", "taken for an option"
        assert launch.paste == (None if plain.paste is None else prompt)

    async def test_it_starts_without_a_task(self, agent: Agent, context: AgentContext) -> None:
        launch = await agent.launch(with_prompt(context, ""))
        assert_startable(launch, context)
        assert launch.paste is None

    async def test_a_conversation_can_be_continued(self, agent: Agent, context: AgentContext) -> None:
        first = await agent.launch(context)
        for conversation in {first.conversation or "", ""}:
            assert_startable(await agent.launch(replace(context, resume=conversation)), context)

    async def test_detect_returns_the_program(self, agent: Agent) -> None:
        program = await agent.detect()
        assert program is None or (isinstance(program, InstalledAgent) and program.path)

    async def test_a_missing_program_raises_missing_with_a_remedy(
        self, absent: Agent | None, context: AgentContext, tmp_path: Path
    ) -> None:
        if absent is None:
            pytest.skip("this agent's program cannot be missing")
        with pytest.raises(Missing) as caught:
            await absent.launch(replace(context, env={**context.env, "PATH": str(tmp_path)}))
        assert caught.value.remedy
        assert "\n" not in str(caught.value)


def with_prompt(context: AgentContext, prompt: str) -> AgentContext:
    """Return the context of the same session with another task."""
    context.task_file.write_text(prompt, encoding="utf-8")
    return replace(context, prompt=prompt)


def assert_startable(launch: AgentLaunch, context: AgentContext) -> None:
    """Assert an absolute executable program, valid arguments and variables, and the session's task file as standard input, if any."""
    assert isinstance(launch.argv, tuple) and launch.argv
    program = Path(launch.argv[0])
    assert program.is_absolute() and os.access(program, os.X_OK), f"{program} cannot be started"
    texts = [*launch.argv, *launch.env.keys(), *launch.env.values()]
    assert all(isinstance(text, str) and "\0" not in text for text in texts)
    assert launch.stdin is None or launch.stdin == context.task_file
