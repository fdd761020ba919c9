"""Turns of OpenCode without a terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agent_orchestrator.plugins.agents.opencode.plugin import OpenCode
from agent_orchestrator.protocols import (
    Activity,
    AgentContext,
)
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.opencode.server import SESSION


def test_a_turn_reads_its_prompt_from_standard_input(agent: OpenCode, context: AgentContext) -> None:
    turn = agent.turn(replace(context, model="openai/gpt-5", permissions="plan"), "--help", SESSION)
    assert turn.stdin == "--help" and "--help" not in turn.argv
    assert turn.argv[1:] == (
        *("run", "--format", "json", "--model=openai/gpt-5", "--agent", "plan", "--session", SESSION),
    )
    assert "OPENCODE_PERMISSION" in turn.env


def test_a_model_is_no_option(agent: OpenCode, context: AgentContext) -> None:
    """A repository's configuration names the model without trust; `--attach` has all output sent to a foreign server."""
    model = "--attach=http://evil.example/"
    turn = agent.turn(replace(context, model=model), "x", None)
    assert model not in turn.argv and f"--model={model}" in turn.argv


STEP = {"tokens": {"total": 1550, "input": 1200, "output": 50, "reasoning": 0, "cache": {"write": 0, "read": 300}}}
RUN: list[dict[str, Any]] = [
    {"type": "step_start", "part": {"type": "step-start"}},
    {
        "type": "tool_use",
        "part": {
            "type": "tool",
            "tool": "bash",
            "state": {
                "status": "completed",
                "input": {"command": "git add a"},
                "output": "(no output)",
                "title": "git add a",
            },
        },
    },
    {"type": "step_finish", "part": {"reason": "tool-calls", **STEP, "cost": 0.00133}},
    {"type": "step_start", "part": {"type": "step-start"}},
    {"type": "text", "part": {"type": "text", "text": "Done one"}},
    {"type": "step_finish", "part": {"reason": "stop", **STEP, "cost": 0.00133}},
]


def test_a_turns_lines_are_shown_and_reported(agent: OpenCode) -> None:
    lines = [agent.read_turn(json.dumps({"sessionID": SESSION, "timestamp": 1, **event})) for event in RUN]
    reports = [report for line in lines for report in line.reports]
    usage = r.UsageReport("", input=1200, output=50, cache_read=300, usd=0.00133)
    assert [item for item in reports if isinstance(item, r.UsageReport)] == [usage, usage]
    assert reports[0] == r.ConversationReport(SESSION) and reports[-1] == r.TurnReport("Done one")
    assert [line.show for line in lines if line.show] == ["bash: git add a\n(no output)", "Done one"]
    assert agent.read_turn("permission requested: bash (ls); auto-rejecting").show.startswith("permission requested")


def test_a_failed_turn_is_reported(agent: OpenCode) -> None:
    error = {"name": "APIError", "data": {"message": "no such key", "statusCode": 401}}
    line = agent.read_turn(json.dumps({"type": "error", "sessionID": SESSION, "error": error}))
    assert line.reports == (r.ActivityReport(Activity.WAITING_INPUT, "no such key (HTTP 401)"),)
    assert "no such key" in line.show
