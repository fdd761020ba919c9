"""Reading what `claude -p --output-format stream-json` prints: what to show, and what it means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.plugins.agents.claude_code.transcript import limited_model
from agent_orchestrator.protocols import Activity, TurnLine
from agent_orchestrator.protocols import reports as r

SHOWN = 2000
"""Characters of a tool's output that the terminal shows."""


def read(line: str) -> TurnLine:
    """One line of a turn; what is no JSON object is shown as it is."""
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
            return _retry(data)
        case "system", "permission_denied":
            why = data.get("message") or data.get("decision_reason") or "nobody is asked in this mode"
            return TurnLine(show=f"-- not allowed: {data.get('tool_name')}: {why} --")
        case "rate_limit_event", _:
            return _limit(data.get("rate_limit_info"))
        case "assistant", _:
            return _assistant(data)
        case "user", _:
            return TurnLine(show=_results(data))
        case "result", _:
            return _result(data)
    return TurnLine()


def _retry(data: Mapping[str, Any]) -> TurnLine:
    what = " ".join(str(data[key]) for key in ("error_status", "error") if data.get(key)) or "API error"
    detail = f"{what}, attempt {data.get('attempt')}/{data.get('max_retries')}"
    return TurnLine(f"-- retrying: {detail} --", (r.ActivityReport(Activity.RETRYING, detail),))


def _limit(info: object) -> TurnLine:
    if not isinstance(info, dict) or info.get("status") != "rejected":
        return TurnLine()
    resets = info.get("resetsAt")
    until = datetime.fromtimestamp(resets, UTC) if isinstance(resets, int) else None
    return TurnLine(reports=(r.LimitReport(until, model=limited_model(info, "")),))


def _assistant(data: Mapping[str, Any]) -> TurnLine:
    shown = []
    for block in _blocks(data):
        if block.get("type") == "text":
            shown.append(str(block.get("text") or ""))
        elif block.get("type") == "tool_use":
            given = block.get("input")
            subject = given.get("command") or given.get("file_path") if isinstance(given, dict) else None
            shown.append(f"* {block.get('name')}: {subject or json.dumps(given, ensure_ascii=False)}")
    failed = data.get("is_api_error_message")
    return TurnLine("\n".join(shown), () if failed else (r.ActivityReport(Activity.ACTIVE),))


def _results(data: Mapping[str, Any]) -> str:
    shown = []
    for block in _blocks(data):
        content = block.get("content")
        if block.get("type") == "tool_result" and isinstance(content, str) and content.strip():
            shown.append("\n".join(f"  {line}" for line in content[:SHOWN].splitlines()))
    return "\n".join(shown)


def _result(data: Mapping[str, Any]) -> TurnLine:
    told: list[r.Report] = list(_usage(data))
    if not data.get("is_error"):
        shaped = data.get("structured_output")
        told.append(
            r.TurnReport(
                json.dumps(shaped, ensure_ascii=False) if shaped is not None else str(data.get("result") or "")
            )
        )
    return TurnLine(reports=tuple(told))


def _usage(data: Mapping[str, Any]) -> list[r.UsageReport]:
    """What this turn used, by model with its dollars; older versions say it for all models together, and no dollars of one turn."""
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
    message = data.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _count(used: Mapping[str, Any], key: str) -> int:
    value = used.get(key)
    return value if isinstance(value, int) and value >= 0 else 0
