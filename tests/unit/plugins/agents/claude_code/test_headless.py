"""Turns of Claude Code without a terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_orchestrator.plugins.agents.claude_code import dialogs
from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode
from agent_orchestrator.protocols import Activity, AgentContext
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.claude_code.claude import SESSION
from tests.unit.plugins.agents.claude_code.launch_files import settings, write_transcript


def test_a_turn_without_a_terminal_reads_standard_input(agent: ClaudeCode, context: AgentContext) -> None:
    first = agent.turn(context, "--do it", None)
    assert first.stdin == "--do it" and "-p" in first.argv and "stream-json" in first.argv
    assert "--session-id" in first.argv
    write_transcript(context, SESSION)
    later = agent.turn(context, "more", SESSION)
    assert later.argv[later.argv.index("--resume") + 1] == SESSION
    (hook,) = settings(context)["hooks"]["PreToolUse"]
    assert hook["matcher"] == "Bash" and "agent_orchestrator.sessions.permissions.hook" in hook["hooks"][0]["command"]
    agent.turn(replace(context, permissions="default"), "more", SESSION)
    assert "hooks" not in settings(context)


def test_a_turn_may_require_structured_output(agent: ClaudeCode, context: AgentContext) -> None:
    argv = agent.turn(replace(context, schema='{"type": "object"}'), "plan", None).argv
    assert argv[argv.index("--json-schema") + 1] == '{"type": "object"}'
    assert "--json-schema" not in agent.turn(context, "plan", None).argv
    ended = {"type": "result", "result": "I am done.", "structured_output": {"tasks": ["é"]}}
    assert agent.read_turn(json.dumps(ended)).reports == (r.TurnReport('{"tasks": ["é"]}'),)


def test_the_output_of_a_turn_is_parsed(agent: ClaudeCode) -> None:
    def read(**data: Any) -> Any:
        return agent.read_turn(json.dumps(data))

    assert read(type="system", subtype="init", session_id=SESSION).reports == (r.ConversationReport(SESSION),)
    retry = read(
        type="system", subtype="api_retry", attempt=1, max_retries=10, error_status=529, error="overloaded"
    ).reports
    assert retry == (r.ActivityReport(Activity.RETRYING, "529 overloaded, attempt 1/10"),)
    limit = read(type="rate_limit_event", rate_limit_info={"status": "rejected", "resetsAt": 1794749796}).reports
    assert limit == (r.LimitReport(datetime(2026, 11, 15, 13, 36, 36, tzinfo=UTC)),)
    parsed = read(type="assistant", message={"content": [{"type": "text", "text": "Fine."}]})
    assert parsed.show == "Fine."
    used = {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 3, "costUSD": 0.01}
    end = read(type="result", result="Fine.", usage={"input_tokens": 10}, model_usage_since_last_result={"opus": used})
    assert end.reports == (r.UsageReport("opus", 10, 5, 3, 0, 0.01), r.TurnReport("Fine."))
    older = read(type="result", is_error=True, result="API Error", usage={"input_tokens": 10, "output_tokens": 2})
    assert older.reports == (r.UsageReport("", 10, 2),)
    assert agent.read_turn("no JSON").show == "no JSON"


def test_a_command_is_reported_completely() -> None:
    """`WORKSPACE/git` is a program in the workspace, and the end of a long command counts too."""
    workspace = Path("/w")
    assert dialogs.permission_subject({"command": "/w/git status"}, workspace)[0] == "/w/git status"
    assert dialogs.permission_subject({"file_path": "/w/src/a.py"}, workspace)[0] == "src/a.py"
    long = "git add " + "a " * 3000 + "&& evil"
    assert dialogs.permission_subject({"command": long}, workspace)[0] == long
