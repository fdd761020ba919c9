"""The `command` agent: how a prompt reaches a CLI, where the CLI is found, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Missing, UsageError
from agent_orchestrator.plugins.agents.command import CommandAgent
from agent_orchestrator.protocols import AgentContext, AgentLaunch, InstalledAgent

pytestmark = pytest.mark.anyio


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    (tmp_path / "bin").mkdir()
    for program in (tmp_path / "bin/my-cli", tmp_path / "workspace/agent.sh"):
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return AgentContext(
        session="app-x",
        project="app",
        workspace=tmp_path / "workspace",
        branch="feature/x",
        base="main",
        prompt="Fix it",
        task_file=tmp_path / "task.md",
        private=tmp_path,
        model="big",
        env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)},
    )


async def launch(context: AgentContext, **config: Any) -> AgentLaunch:
    return await CommandAgent(config, LocalHost()).launch(context)


async def test_variables_are_filled_in(context: AgentContext) -> None:
    names = "prompt workspacePath branch base session taskFile project model conversation"
    plan = await launch(context, command=["my-cli", *(f"--{name}={{{{ {name} }}}}" for name in names.split())])
    assert plan.argv == (
        f"{context.private}/bin/my-cli",
        "--prompt=Fix it",
        f"--workspacePath={context.workspace}",
        "--branch=feature/x",
        "--base=main",
        "--session=app-x",
        f"--taskFile={context.task_file}",
        "--project=app",
        "--model=big",
        "--conversation=",
    )
    assert (plan.stdin, plan.paste) == (None, None)


@pytest.mark.parametrize(
    ("config", "arguments", "stdin", "paste"),
    [
        ({"command": ["my-cli", "{{prompt}}"]}, ["Fix it"], False, False),
        ({"command": "my-cli --task {{ prompt }}"}, ["--task", "Fix it"], False, False),
        ({"command": ["my-cli", "-y"], "prompt": "argument"}, ["-y", "Fix it"], False, False),
        ({"command": ["my-cli"], "prompt": "file"}, [], False, False),
        ({"command": ["my-cli"], "prompt": "stdin"}, [], True, False),
        ({"command": ["my-cli"], "prompt": "paste"}, [], False, True),
        ({"command": ["my-cli"]}, [], False, False),
        ({"command": ["my-cli"], "screen": {"ready": "^> $"}}, [], False, True),
        ({"command": ["my-cli", "{{taskFile}}"], "screen": {"ready": "^> $"}}, ["TASK"], False, False),
    ],
)
async def test_ways_of_a_prompt(
    context: AgentContext, config: dict[str, Any], arguments: list[str], stdin: bool, paste: bool
) -> None:
    plan = await launch(context, **config)
    expected = [str(context.task_file) if word == "TASK" else word for word in arguments]
    assert list(plan.argv[1:]) == expected
    assert plan.stdin == (context.task_file if stdin else None)
    assert plan.paste == ("Fix it" if paste else None)


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        ({"command": ["my-cli", "{{prompt}}"]}, []),
        ({"command": ["my-cli", "--task", "{{prompt}}"]}, ["--task", ""]),
        ({"command": ["my-cli"], "prompt": "argument"}, []),
        ({"command": ["my-cli"], "prompt": "paste"}, []),
    ],
)
async def test_without_a_task(context: AgentContext, config: dict[str, Any], arguments: list[str]) -> None:
    plan = await launch(replace(context, prompt=""), **config)
    assert list(plan.argv[1:]) == arguments and plan.paste is None


@pytest.mark.parametrize("config", [{"command": ["my-cli", "{{prompt}}"]}, {"command": "my-cli", "prompt": "argument"}])
async def test_a_prompt_is_never_an_option(context: AgentContext, config: dict[str, Any]) -> None:
    plan = await launch(replace(context, prompt="--yolo\0"), **config)
    assert plan.argv[1:] == (" --yolo",)


async def test_resume(context: AgentContext) -> None:
    again = replace(context, resume="")
    config = {"command": ["my-cli"], "prompt": "paste"}
    assert (await launch(again, **config)).paste == "Fix it"
    plan = await launch(again, **config, resume="my-cli --continue")
    assert plan.argv[1:] == ("--continue",) and plan.paste is None


async def test_programs_are_found_where_the_agent_will_look(context: AgentContext) -> None:
    assert (await launch(context, command=["./agent.sh"])).argv == (str(context.workspace / "agent.sh"),)
    assert (await launch(context, command=["~/bin/my-cli"])).argv == (f"{context.private}/bin/my-cli",)
    assert (await launch(context, command=["/bin/sh"])).argv == ("/bin/sh",)
    with pytest.raises(Missing, match=rf"'sh' was not found: .*looked for in {context.private}/bin\)"):
        await launch(context, command=["sh"])
    with pytest.raises(Missing, match=r"workspace/nope\.sh is not there"):
        await launch(context, command=["./nope.sh"])
    (context.workspace / "agent.sh").chmod(0o644)
    with pytest.raises(Missing, match="may not be run: chmod"):
        await launch(context, command=["./agent.sh"])


async def test_a_prompt_too_long_for_an_argument_is_refused(context: AgentContext) -> None:
    with pytest.raises(UsageError, match="too long for a command: set prompt: file"):
        await launch(replace(context, prompt="x" * 200_000), command=["my-cli", "{{prompt}}"])
    await launch(replace(context, prompt="x" * 200_000), command=["my-cli"], prompt="stdin")


async def test_env_and_screen(context: AgentContext) -> None:
    agent = CommandAgent(
        {
            "command": ["my-cli"],
            "env": {"A": 1, "B": True},
            "screen": {"ready": "^> $", "busy": "esc to interrupt", "blocked": r"Allow\?"},
        },
        LocalHost(),
    )
    assert (await agent.launch(context)).env == {"A": "1", "B": "true"}
    screen = agent.screen
    assert screen.ready and screen.busy and screen.blocked
    for text in ("a\n>", "a\n> \nb", "a\n>        \nb"):
        assert screen.ready.search(text)
    assert not screen.ready.search("> hello")
    assert agent.interrupt_keys == ("Escape",)
    assert CommandAgent({"command": ["my-cli"]}, LocalHost()).interrupt_keys == ("C-c",)


async def test_permission_keys() -> None:
    assert CommandAgent({"command": ["my-cli"]}, LocalHost()).permission_keys == {
        "allow": ("y", "Enter"),
        "deny": ("n", "Enter"),
    }
    config = {"command": ["my-cli"], "keys": {"allow": "1", "always": ["2", "Enter"]}, "screen": {"ready": None}}
    plan = CommandAgent(config, LocalHost()).permission_keys
    assert plan == {"allow": ("1",), "always": ("2", "Enter"), "deny": ("n", "Enter")}


async def test_detect() -> None:
    assert await CommandAgent({"command": ["no-such-agent"]}, LocalHost()).detect() is None
    installed = await CommandAgent({"command": ["sh"]}, LocalHost()).detect()
    assert installed and Path(installed.path).is_absolute()
    assert await CommandAgent({"command": ["./agent.sh"]}, LocalHost()).detect() == InstalledAgent("./agent.sh")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "has no `command`"),
        ({"command": {"a": 1}}, "`command` of the command agent is not a list of words"),
        ({"command": ["a", ["b"]]}, "is not a list of words"),
        ({"command": "a 'b"}, "No closing quotation"),
        ({"command": "a && b"}, "has shell syntax, '&&'"),
        ({"command": "a $AO_TASK_FILE"}, "has shell syntax, '$AO_TASK_FILE'"),
        ({"command": ["a", "{{prmpt}}"]}, "unknown variable prmpt: did you mean prompt?"),
        ({"command": ["a", "{{prompt"]}, "is wrong"),
        ({"command": ["a"], "resume": ["{{x}}"]}, "unknown variable x"),
        ({"command": ["a"], "prompt": "stdn"}, "`prompt` of the command agent is 'stdn': did you mean stdin?"),
        ({"command": ["a"], "screen": {"ready": "("}}, "`screen.ready` is no regular expression: '('"),
        ({"command": ["a"], "screen": {"ready": 3}}, "`screen.ready` is not text"),
        ({"command": ["a"], "screen": {"redy": "x"}}, "has no key 'redy': did you mean ready?"),
        ({"command": ["a"], "screen": "x"}, "`screen` of the command agent is not a map"),
        ({"command": ["a"], "keys": {"yes": "y"}}, "`keys` of the command agent is {'yes': 'y'}"),
        ({"command": ["a"], "keys": {"allow": [1]}}, "`keys` of the command agent is {'allow': [1]}"),
        ({"command": ["a"], "env": ["x"]}, "`env` of the command agent is not a map"),
    ],
)
async def test_a_wrong_configuration_is_refused_with_the_reason(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        CommandAgent(config, LocalHost())
    assert reason in str(caught.value)
