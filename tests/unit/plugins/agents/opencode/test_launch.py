"""Launches of OpenCode: task, rules, model and permissions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.opencode.plugin import OpenCode
from agent_orchestrator.protocols import (
    AgentContext,
    Delivered,
    NotReady,
    Permission,
)
from tests.unit.plugins.agents.opencode.server import SESSION, SimulatedOpenCode, make_launch

pytestmark = pytest.mark.anyio


def test_the_agent_supports_all_optional_features(agent: OpenCode) -> None:
    assert agent.listens and agent.delivers_messages and agent.answers_requests and agent.has_headless_mode


async def test_the_task_is_handed_over_and_the_rules_are_a_file(agent: OpenCode, context: AgentContext) -> None:
    launch = await agent.launch(context)
    assert launch.paste == "Fix it" and launch.conversation is None
    assert launch.argv[1:] == ("--port", launch.plugin_data["port"], "--hostname", "127.0.0.1")
    content = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])
    assert [Path(path).read_text() for path in content["instructions"]] == ["Be kind."]


async def test_the_password_is_given_to_the_agent_only(agent: OpenCode, context: AgentContext) -> None:
    launch = await agent.launch(context)
    password = launch.env["OPENCODE_SERVER_PASSWORD"]
    assert len(password) >= 30
    assert password not in " ".join([*launch.argv, *launch.plugin_data.values()])
    assert (context.private / "opencode.json").stat().st_mode & 0o777 == 0o600


async def test_the_same_launch_has_the_same_port_and_the_next_another(agent: OpenCode, context: AgentContext) -> None:
    first, again = await agent.launch(context), await agent.launch(context)
    later = await agent.launch(replace(context, resume="", env={**context.env, "AO_SPOOL": "spool.2.jsonl"}))
    secret = "OPENCODE_SERVER_PASSWORD"
    assert (first.plugin_data["port"], first.env[secret]) == (again.plugin_data["port"], again.env[secret])
    assert first.plugin_data["port"] != later.plugin_data["port"] and first.env[secret] != later.env[secret]


async def test_a_conversation_is_continued_with_the_message_it_is_started_for(
    agent: OpenCode, context: AgentContext
) -> None:
    (context.private / "opencode.json").write_text(json.dumps({"conversation": SESSION}))
    launch = await agent.launch(replace(context, resume=SESSION, message="go on"))
    assert launch.argv[-2:] == ("--session", SESSION) and launch.conversation == SESSION
    assert launch.paste == "go on" and "OPENCODE_CONFIG_CONTENT" in launch.env
    assert (await agent.launch(replace(context, resume=SESSION))).paste is None


async def test_a_conversation_of_another_folder_is_continued_in_a_copy(
    agent: OpenCode, context: AgentContext, server: SimulatedOpenCode
) -> None:
    launch = await agent.launch(replace(context, resume="ses_hand", message="go on"))
    assert (
        "--session" not in launch.argv and launch.conversation is None and launch.env["PWD"] == str(context.workspace)
    )
    stored = json.loads((context.private / "opencode.json").read_text())
    server.password, server.session = stored["password"], {"id": SESSION, "directory": "/elsewhere"}
    run = replace(make_launch(context.private, server, "ses_hand"), workspace=context.workspace)
    assert isinstance(await agent.deliver(run, "m-1", "go on", interrupt=False), NotReady), "it would work elsewhere"
    assert not server.messages
    server.session = {"id": SESSION, "directory": str(context.workspace)}
    for message in ("m-1", "m-2"):
        assert await agent.deliver(run, message, "go on", interrupt=False) == Delivered()
    assert {stored["info"]["sessionID"] for stored in server.messages} == {SESSION}
    assert "/session/ses_hand/prompt_async" not in server.paths()
    later = replace(context, resume=SESSION, env={**context.env, "AO_SPOOL": "spool.2.jsonl"})
    assert (await agent.launch(later)).argv[-2:] == ("--session", SESSION)


async def test_a_launch_that_ended_early_continues_its_conversation(
    agent: OpenCode, context: AgentContext, server: SimulatedOpenCode
) -> None:
    await agent.launch(context)
    run = replace(
        make_launch(context.private, server, None), plugin_data={"port": str(server.port), "model": "", "agent": ""}
    )
    server.password = json.loads((context.private / "opencode.json").read_text())["password"]
    assert await agent.deliver(run, "m-1", "Fix it", interrupt=False) == Delivered()
    later = replace(context, resume="", env={**context.env, "AO_SPOOL": "spool.2.jsonl"})
    assert (await agent.launch(later)).conversation == SESSION
    fresh = replace(later, resume=None, env={**context.env, "AO_SPOOL": "spool.3.jsonl"})
    assert (await agent.launch(fresh)).conversation is None


async def test_a_model_is_named_with_its_provider(agent: OpenCode, context: AgentContext) -> None:
    launch = await agent.launch(replace(context, model="openai/gpt-5"))
    assert json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])["model"] == "openai/gpt-5"
    with pytest.raises(UsageError, match="provider/model"):
        await agent.launch(replace(context, model="gpt-5"))


async def test_the_users_own_variable_is_kept(agent: OpenCode, context: AgentContext) -> None:
    own = {"instructions": ["mine.md"], "theme": "dark"}
    launch = await agent.launch(replace(context, env={**context.env, "OPENCODE_CONFIG_CONTENT": json.dumps(own)}))
    content = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])
    assert content["theme"] == "dark" and content["instructions"][0] == "mine.md" and len(content["instructions"]) == 2
    with pytest.raises(UsageError, match="OPENCODE_CONFIG_CONTENT"):
        await agent.launch(replace(context, env={**context.env, "OPENCODE_CONFIG_CONTENT": "// no"}))


OWN_RULES = {"*": "allow", "edit": "ask", "bash": {"rm *": "deny", "*": "allow"}, "webfetch": "allow"}


def decided(rules: Mapping[str, Any], tool: str, what: str) -> str:
    """As OpenCode 1.18 decides: the last rule that matches; ours are merged behind the user's, by key."""
    merged = {**OWN_RULES, **{key: value for key, value in rules.items() if key not in OWN_RULES}}
    merged |= {key: rules[key] for key in OWN_RULES if key in rules}
    decision = "ask"
    for key, rule in merged.items():
        for pattern, action in {"*": rule}.items() if isinstance(rule, str) else rule.items():
            if _matches(tool, key) and _matches(what, pattern):
                decision = str(action)
    return decision


def _matches(text: str, pattern: str) -> bool:
    expression = re.sub(r"[.+^${}()|\[\]\\]", r"\\\g<0>", pattern).replace("*", ".*").replace("?", ".")
    if expression.endswith(" .*"):
        expression = expression[:-3] + "( .*)?"
    return re.fullmatch(expression, text, re.DOTALL) is not None


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ("default", {"edit a.py": "ask", "bash git add a": "ask", "read a.py": "allow", "mcp_delete x": "ask"}),
        ("plan", {"edit a.py": "deny", "bash ls": "ask", "read a.py": "allow", "webfetch http://x": "ask"}),
        (
            "auto-edit",
            {
                "edit a.py": "allow",
                "bash git add a": "ask",
                "bash git commit -m 'x y'": "ask",
                "bash git push": "ask",
                "bash make test": "allow",
                "bash make test -k x": "ask",
                "bash make testing": "ask",
                "bash mypy": "ask",
                "bash rm -rf x": "ask",
                "bash curl x": "ask",
                "external_directory /etc/*": "ask",
                "mcp_delete x": "ask",
                "read .env": "ask",
                "todowrite *": "allow",
                "question *": "allow",
            },
        ),
        (
            "full",
            {"edit a.py": "allow", "bash rm -rf x": "allow", "external_directory /*": "allow", "mcp_x y": "allow"},
        ),
    ],
)
async def test_permissions(
    agent: OpenCode, context: AgentContext, permissions: str, expected: Mapping[str, str]
) -> None:
    launch = await agent.launch(replace(context, permissions=permissions))
    rules = json.loads(launch.env["OPENCODE_PERMISSION"])
    assert {request: decided(rules, *request.split(" ", 1)) for request in expected} == expected
    assert ("--agent" in launch.argv) == (permissions == "plan")


async def test_without_a_person_it_may_commit(agent: OpenCode, context: AgentContext) -> None:
    turn = agent.turn(replace(context, mode="headless"), "do it", None)
    rules = json.loads(turn.env["OPENCODE_PERMISSION"])
    for command in ("git status", "git add src/a.py b", "git add -A", "git commit -m 'x y'", 'git commit -am "x"'):
        assert decided(rules, "bash", command) == "allow", command
    for command in (
        "git add --pathspec-from-file=/etc/passwd",
        'git add --pat"h"spec-from-file=/etc/passwd',
        "git add x > /etc/y",
        "git commit -m x > y",
        "git commit -F /etc/passwd",
        "git commit -m x --pathspec-from-file=y",
        "git commit -m $(id)",
        "git diff --output=x",
        "git push",
    ):
        assert decided(rules, "bash", command) == "ask", command


async def test_a_persons_permanent_permission_is_not_asked_again(agent: OpenCode, context: AgentContext) -> None:
    allowed = (Permission("bash", "touch x"), Permission("webfetch", "https://example.invalid"))
    launch = await agent.launch(replace(context, permissions="default", allowed=allowed))
    rules = json.loads(launch.env["OPENCODE_PERMISSION"])
    assert decided(rules, "bash", "touch x") == "allow" and decided(rules, "bash", "touch y") == "ask"
    assert decided(rules, "webfetch", "https://example.invalid") == "allow"
    assert decided(rules, "webfetch", "https://other.invalid") == "ask"
