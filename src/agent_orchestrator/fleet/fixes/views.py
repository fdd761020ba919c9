"""Fixing runs as JSON, for the API and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fixes import Fix, FixGroup, FixRound
from agent_orchestrator.core.status import Status
from agent_orchestrator.fleet.fixes.model import tool_from_json


def fix_json(
    fix: Fix, sessions: Mapping[str, SessionFacts], progress: str, status: Callable[[SessionFacts], Status]
) -> dict[str, Any]:
    """Return a run as JSON; every key is always present."""
    first, last = (fix.rounds[0], fix.rounds[-1]) if fix.rounds else (None, None)
    return {
        "id": fix.id,
        "project": fix.project,
        "state": fix.outcome or ("working" if last and any(item.session for item in last.groups) else "measuring"),
        "ended": fix.ended,
        "reason": fix.reason or None,
        "base": fix.request.base,
        "commands": list(fix.request.commands),
        "agent": fix.request.agent or None,
        "model": fix.request.model or None,
        "maxRounds": fix.request.max_rounds,
        "maxAgents": fix.request.max_agents or None,
        "merge": fix.request.merge,
        "dryRun": fix.request.dry_run,
        "progress": None if fix.ended else progress or _progress(last),
        "before": first.total if first else None,
        "after": last.total if last else None,
        "tools": [_tool(data, first, last) for data in fix.tools],
        "rounds": [_round(item, sessions, status) for item in fix.rounds],
        "createdAt": rfc3339(fix.created_at),
        "updatedAt": rfc3339(fix.updated_at),
    }


def _progress(last: FixRound | None) -> str | None:
    """Return how many causes of the last round are settled, or None before the first measurement."""
    if last is None:
        return None
    settled = sum(group.settled for group in last.groups)
    return f"round {last.number}: {settled} of {len(last.groups)} causes settled"


def _tool(data: Mapping[str, Any], first: FixRound | None, last: FixRound | None) -> dict[str, Any]:
    """Return one tool with its failures in the first and the last round."""
    tool = tool_from_json(data)
    return {
        "name": tool.name,
        "command": tool.command,
        "folder": tool.folder or None,
        "before": first.counts.get(tool.name) if first else None,
        "after": last.counts.get(tool.name) if last else None,
        "problem": last.problems.get(tool.name) if last else None,
    }


def _round(
    fix_round: FixRound, sessions: Mapping[str, SessionFacts], status: Callable[[SessionFacts], Status]
) -> dict[str, Any]:
    """Return one round with its causes."""
    return {
        "number": fix_round.number,
        "commit": fix_round.commit,
        "at": rfc3339(fix_round.at),
        "total": fix_round.total,
        "counts": dict(fix_round.counts),
        "problems": dict(fix_round.problems),
        "groups": [_group(group, sessions, status) for group in fix_round.groups],
    }


def _group(
    group: FixGroup, sessions: Mapping[str, SessionFacts], status: Callable[[SessionFacts], Status]
) -> dict[str, Any]:
    """Return one cause with its session's status."""
    facts = sessions.get(group.session or "")
    session_status = status(facts) if facts else None
    return {
        "number": group.number,
        "title": group.title,
        "count": group.count,
        "tools": dict(group.tools),
        "files": list(group.files),
        "session": group.session,
        "status": session_status.name if session_status else None,
        "why": session_status.why if session_status else None,
        "outcome": group.outcome or None,
        "commit": group.commit,
        "reason": group.reason or None,
    }
