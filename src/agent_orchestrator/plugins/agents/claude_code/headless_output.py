"""Parses what `claude -p --output-format stream-json` prints: the text to show, and the reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.plugins.agents.claude_code.transcript import limited_model
from agent_orchestrator.protocols import Activity, TurnLine
from agent_orchestrator.protocols import reports as r

MAX_SHOWN_CHARACTERS = 2000
"""The number of characters of a tool's output that the terminal shows."""


def parse_line(line: str) -> TurnLine:
    """Parse one line of a turn; a line that is no JSON object is shown as it is."""
    try:
        data = json.loads(line)
    except ValueError:
        return TurnLine(show=line)
    if not isinstance(data, dict):
        return TurnLine(show=line)
    match data.get("type"), data.get("subtype"):
        case "system", "init":
            return TurnLine(reports=(r.ConversationReport(str(data.get("session_id") or "")),))
        case "system", "api_retry":
            return _parse_retry(data)
        case "system", "permission_denied":
            reason = data.get("message") or data.get("decision_reason") or "nobody is asked in this mode"
            return TurnLine(show=f"-- not allowed: {data.get('tool_name')}: {reason} --")
        case "rate_limit_event", _:
            return _parse_limit(data.get("rate_limit_info"))
        case "assistant", _:
            return _parse_assistant(data)
        case "user", _:
            return TurnLine(show=_render_results(data))
        case "result", _:
            return _parse_result(data)
    return TurnLine()


def _parse_retry(data: Mapping[str, Any]) -> TurnLine:
    """Parse the retry of a request."""
    error = " ".join(str(data[key]) for key in ("error_status", "error") if data.get(key)) or "API error"
    detail = f"{error}, attempt {data.get('attempt')}/{data.get('max_retries')}"
    return TurnLine(f"-- retrying: {detail} --", (r.ActivityReport(Activity.RETRYING, detail),))


def _parse_limit(info: object) -> TurnLine:
    """Parse a usage limit; a warning before it is reached gives nothing."""
    if not isinstance(info, dict) or info.get("status") != "rejected":
        return TurnLine()
    resets_at = info.get("resetsAt")
    reset_time = datetime.fromtimestamp(resets_at, UTC) if isinstance(resets_at, int) else None
    return TurnLine(reports=(r.LimitReport(reset_time, model=limited_model(info, "")),))


def _parse_assistant(data: Mapping[str, Any]) -> TurnLine:
    """Parse a message of the model: show its text and tool calls."""
    parts = []
    for block in _blocks(data):
        if block.get("type") == "text":
            parts.append(str(block.get("text") or ""))
        elif block.get("type") == "tool_use":
            arguments = block.get("input")
            subject = arguments.get("command") or arguments.get("file_path") if isinstance(arguments, dict) else None
            parts.append(f"* {block.get('name')}: {subject or json.dumps(arguments, ensure_ascii=False)}")
    failed = data.get("is_api_error_message")
    return TurnLine("\n".join(parts), () if failed else (r.ActivityReport(Activity.ACTIVE),))


def _render_results(data: Mapping[str, Any]) -> str:
    """Return the output of tools, indented and cut."""
    parts = []
    for block in _blocks(data):
        content = block.get("content")
        if block.get("type") == "tool_result" and isinstance(content, str) and content.strip():
            parts.append("\n".join(f"  {line}" for line in content[:MAX_SHOWN_CHARACTERS].splitlines()))
    return "\n".join(parts)


def _parse_result(data: Mapping[str, Any]) -> TurnLine:
    """Parse the end of a turn: its usage, and its answer unless it failed."""
    reports: list[r.Report] = list(_usage_reports(data))
    if not data.get("is_error"):
        structured_output = data.get("structured_output")
        reports.append(
            r.TurnReport(
                json.dumps(structured_output, ensure_ascii=False)
                if structured_output is not None
                else str(data.get("result") or "")
            )
        )
    return TurnLine(reports=tuple(reports))


def _usage_reports(data: Mapping[str, Any]) -> list[r.UsageReport]:
    """Return this turn's usage by model, with dollars. Older versions give one sum for all models, and no dollars per turn."""
    by_model = data.get("model_usage_since_last_result")
    if isinstance(by_model, dict):
        return [
            r.UsageReport(
                str(model),
                _count(used, "inputTokens"),
                _count(used, "outputTokens"),
                _count(used, "cacheReadInputTokens"),
                _count(used, "cacheCreationInputTokens"),
                used["costUSD"] if isinstance(used.get("costUSD"), int | float) else None,
            )
            for model, used in by_model.items()
            if isinstance(used, dict)
        ]
    used = data.get("usage")
    if not isinstance(used, dict):
        return []
    models = data.get("modelUsage")
    model = next(iter(models), "") if isinstance(models, dict) else ""
    return [
        r.UsageReport(
            str(model),
            _count(used, "input_tokens"),
            _count(used, "output_tokens"),
            _count(used, "cache_read_input_tokens"),
            _count(used, "cache_creation_input_tokens"),
        )
    ]


def _blocks(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the content blocks of a message."""
    message = data.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _count(usage: Mapping[str, Any], key: str) -> int:
    """Return a number of tokens, 0 if it is missing."""
    value = usage.get(key)
    return value if isinstance(value, int) and value >= 0 else 0
