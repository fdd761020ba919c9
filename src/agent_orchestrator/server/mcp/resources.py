"""The MCP resources: sessions with their logs, changes and timelines, the merge queue and plans, each with its URI."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from agent_orchestrator.errors import NotFound
from agent_orchestrator.server.access.caller import Caller, Scope, has_ended
from agent_orchestrator.server.mcp.fleet_tools import SessionListQuery, list_sessions, log_lines, session_view
from agent_orchestrator.server.mcp.plan_tools import plan_view
from agent_orchestrator.server.mcp.tools import MAX_TEXT_LENGTH

PAGE_SIZE = 100
"""Sessions listed on one page."""
MAX_LOG_LINES = 500
_MAX_ENTRIES = 200
_TRUSTED_ORIGINS = ("agent", "checks", "git")
"""Origins of timeline entries that contain no text of other people."""
_ADDRESS_PATTERN = re.compile(r"ao://[A-Za-z0-9._~%/-]{1,400}")


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A resource, or a kind of resources."""

    address: str
    """Its URI, with `{id}` if there is one per session or plan."""
    name: str
    about: str
    read: Callable[[Caller, str], Awaitable[Any]]
    """Returns JSON data, or text."""
    is_own: bool = False
    """Whether a session's own agent may read it for its session."""

    @property
    def media_type(self) -> str:
        """The media type."""
        return "text/plain" if self.name in ("log", "diff") else "application/json"

    def match(self, address: str) -> str | None:
        """Return the id in an address of this kind, or None if it is of another kind."""
        before, _, after = self.address.partition("{id}")
        if "{id}" not in self.address:
            return "" if address == self.address else None
        quoted_id = address[len(before) : len(address) - len(after)]
        is_match = address.startswith(before) and address.endswith(after) and quoted_id and "/" not in quoted_id
        return unquote(quoted_id) if is_match else None


async def _sessions(caller: Caller, _id: str) -> Any:
    """Return the sessions that are not over."""
    return await list_sessions(caller, SessionListQuery.model_validate({"limit": 200}))


async def _session(caller: Caller, name: str) -> Any:
    """Return one session."""
    return session_view(caller, name)


async def _log(caller: Caller, name: str) -> Any:
    """Return the last lines of a session's log."""
    return (await log_lines(caller, caller.find_session(name).id, MAX_LOG_LINES))["text"]


async def _diff(caller: Caller, name: str) -> Any:
    """Return a session's change, cut to the longest text of one answer."""
    text: str = (await caller.services.session_details.diff(caller.find_session(name).id))["diff"]
    return (
        text
        if len(text) <= MAX_TEXT_LENGTH
        else f"{text[:MAX_TEXT_LENGTH]}\n… the tool get_diff gives the rest, page by page\n"
    )


async def _timeline(caller: Caller, name: str) -> Any:
    """Return a session's timeline."""
    timeline = await caller.services.timelines.timeline(caller.find_session(name).id, _MAX_ENTRIES)
    if caller.session is None:
        return timeline
    # Agents get no text that others wrote this way, only the fact that it was written.
    entries = [entry if entry["by"] in _TRUSTED_ORIGINS else entry | {"detail": None} for entry in timeline["entries"]]
    return timeline | {"entries": entries}


async def _queue(caller: Caller, _id: str) -> Any:
    """Return the merge queue."""
    return {"entries": caller.services.merge_queue.entries(await caller.resolve_project(None))}


async def _plan(caller: Caller, name: str) -> Any:
    """Return one plan."""
    return plan_view(caller, name)


RESOURCE_KINDS = (
    ResourceKind("ao://sessions", "sessions", "The sessions that are not over, and how each stands.", _sessions),
    ResourceKind("ao://queue", "queue", "The merge queue: what is to land, in order.", _queue),
    ResourceKind("ao://sessions/{id}", "session", "One session in full.", _session, is_own=True),
    ResourceKind(
        "ao://sessions/{id}/log", "log", f"What its terminal showed last, {MAX_LOG_LINES} lines.", _log, is_own=True
    ),
    ResourceKind(
        "ao://sessions/{id}/diff", "diff", "Its change against its base, uncommitted work included.", _diff, is_own=True
    ),
    ResourceKind(
        "ao://sessions/{id}/transcript", "transcript", "What happened to it, told in order.", _timeline, is_own=True
    ),
    ResourceKind("ao://plans/{id}", "plan", "A plan and its tasks.", _plan),
)


def kinds_for(caller: Caller) -> list[ResourceKind]:
    """Return the kinds of resources that this caller may read."""
    return [kind for kind in RESOURCE_KINDS if caller.may_use(Scope.READ) or kind.is_own]


def list_page(caller: Caller, start: int) -> tuple[list[tuple[str, ResourceKind, str]], int | None]:
    """Return a page of the existing resources (address, kind, name) and where the next page begins, or None."""
    kinds = kinds_for(caller)
    single = [(kind.address, kind, kind.name) for kind in kinds if "{id}" not in kind.address]
    flow = caller.services.sessions.flow
    if caller.session is not None and not caller.is_coordinator:
        visible = [caller.session]
    else:
        project = caller.session.project if caller.session else None
        visible = [
            session
            for session in flow.sessions.values()
            if project in (None, session.project) and not has_ended(session)
        ]
    session_kinds = [kind for kind in kinds if kind.address.startswith("ao://sessions/")]
    page = visible[start : start + PAGE_SIZE]
    resources = [
        (kind.address.replace("{id}", quote(facts.id, safe="")), kind, f"{kind.name} of {facts.id}")
        for facts in page
        for kind in session_kinds
    ]
    end = start + len(page)
    return (single if start == 0 else []) + resources, end if end < len(visible) else None


async def read(caller: Caller, address: str) -> tuple[str, str]:
    """Return the content at an address and its media type; raise NotFound if there is none for this caller."""
    if _ADDRESS_PATTERN.fullmatch(address):
        for kind in kinds_for(caller):
            if (name := kind.match(address)) is not None:
                content = await kind.read(caller, name)
                text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
                return text, kind.media_type
    raise NotFound(
        f"there is nothing at {address[:200]}", "resources/list and resources/templates/list tell what there is"
    )
