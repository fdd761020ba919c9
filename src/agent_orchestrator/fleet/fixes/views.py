"""A fixing run as people and programs see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fixes import Fix, FixGroup, FixRound
from agent_orchestrator.core.status import Status
from agent_orchestrator.fleet.fixes.model import tool_from


def fix_json(
    fix: Fix, sessions: Mapping[str, SessionFacts], progress: str, status: Callable[[SessionFacts], Status]
) -> dict[str, Any]:
    """Every key is always there."""
    first, last = (fix.rounds[0], fix.rounds[-1]) if fix.rounds else (None, None)
    return {
        "id": fix.id,
        "project": fix.project,
        "state": fix.outcome or ("working" if last and any(one.session for one in last.groups) else "measuring"),
        "ended": fix.ended,
        "reason": fix.reason or None,
        "base": fix.base,
        "commands": list(fix.request.get("commands") or ()),
        "agent": fix.request.get("agent") or None,
        "model": fix.request.get("model") or None,
        "maxRounds": fix.max_rounds,
        "maxAgents": fix.request.get("maxAgents") or None,
        "merge": fix.lands,
        "dryRun": fix.dry,
        "progress": None if fix.ended else progress or _progress(last),
        "before": first.total if first else None,
        "after": last.total if last else None,
        "tools": [_tool(data, first, last) for data in fix.tools],
        "rounds": [_round(one, sessions, status) for one in fix.rounds],
        "createdAt": rfc3339(fix.created_at),
        "updatedAt": rfc3339(fix.updated_at),
    }


def _progress(last: FixRound | None) -> str | None:
    if last is None:
        return None
    settled = sum(group.settled for group in last.groups)
    return f"round {last.number}: {settled} of {len(last.groups)} causes settled"


def _tool(data: Mapping[str, Any], first: FixRound | None, last: FixRound | None) -> dict[str, Any]:
    tool = tool_from(data)
    return {
        "name": tool.name,
        "command": tool.command,
        "folder": tool.folder or None,
        "before": first.counts.get(tool.name) if first else None,
        "after": last.counts.get(tool.name) if last else None,
        "problem": last.problems.get(tool.name) if last else None,
    }


def _round(
    one: FixRound, sessions: Mapping[str, SessionFacts], status: Callable[[SessionFacts], Status]
) -> dict[str, Any]:
    return {
        "number": one.number,
        "commit": one.commit,
        "at": rfc3339(one.at),
        "total": one.total,
        "counts": dict(one.counts),
        "problems": dict(one.problems),
        "groups": [_group(group, sessions, status) for group in one.groups],
    }


def _group(
    group: FixGroup, sessions: Mapping[str, SessionFacts], status: Callable[[SessionFacts], Status]
) -> dict[str, Any]:
    facts = sessions.get(group.session or "")
    now = status(facts) if facts else None
    return {
        "number": group.number,
        "title": group.title,
        "count": group.count,
        "tools": dict(group.tools),
        "files": list(group.files),
        "session": group.session,
        "status": now.name if now else None,
        "why": now.why if now else None,
        "outcome": group.outcome or None,
        "commit": group.commit,
        "reason": group.reason or None,
    }
