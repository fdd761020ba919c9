"""Resources: sessions, their logs, changes and stories, the merge queue and plans, each by its address."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from agent_orchestrator.errors import NotFound
from agent_orchestrator.server.mcp.fleet_tools import Listing, list_sessions, log_lines, session_view
from agent_orchestrator.server.mcp.plan_tools import plan_view
from agent_orchestrator.server.mcp.scopes import Caller, Scope, is_over
from agent_orchestrator.server.mcp.tools import LONGEST

PAGE = 100
"""Sessions that one page of the list names."""
LOG_LINES = 500
_ENTRIES = 200
_SAFE = ("agent", "checks", "git")
"""Whose words in a story are nobody else's."""
_ADDRESS = re.compile(r"ao://[A-Za-z0-9._~%/-]{1,400}")


@dataclass(frozen=True, slots=True)
class Place:
    """A resource, or a family of them."""

    address: str
    """With `{id}` where there is one for each."""
    name: str
    about: str
    read: Callable[[Caller, str], Awaitable[Any]]
    """JSON, or text as it is."""
    own: bool = False
    """A session's own agent may read it of itself."""

    @property
    def mime(self) -> str:
        """What it is."""
        return "text/plain" if self.name in ("log", "diff") else "application/json"

    def match(self, address: str) -> str | None:
        """The id in an address of this kind; none: it is of another."""
        before, _, after = self.address.partition("{id}")
        if "{id}" not in self.address:
            return "" if address == self.address else None
        middle = address[len(before) : len(address) - len(after)]
        whole = address.startswith(before) and address.endswith(after) and middle and "/" not in middle
        return unquote(middle) if whole else None


async def _sessions(caller: Caller, _id: str) -> Any:
    return await list_sessions(caller, Listing.model_validate({"limit": 200}))


async def _session(caller: Caller, name: str) -> Any:
    return session_view(caller, name)


async def _log(caller: Caller, name: str) -> Any:
    return (await log_lines(caller, caller.find(name).id, LOG_LINES))["text"]


async def _diff(caller: Caller, name: str) -> Any:
    text: str = (await caller.services.inspection.diff(caller.find(name).id))["diff"]
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… the tool get_diff gives the rest, page by page\n"


async def _transcript(caller: Caller, name: str) -> Any:
    story = await caller.services.stories.timeline(caller.find(name).id, _ENTRIES)
    if caller.session is None:
        return story
    # Agents are not told by this way what strangers wrote: of that, only that it was written.
    entries = [one if one["by"] in _SAFE else one | {"detail": None} for one in story["entries"]]
    return story | {"entries": entries}


async def _queue(caller: Caller, _id: str) -> Any:
    return {"entries": caller.services.queue.entries(await caller.project(None))}


async def _plan(caller: Caller, name: str) -> Any:
    return plan_view(caller, name)


PLACES = (
    Place("ao://sessions", "sessions", "The sessions that are not over, and how each stands.", _sessions),
    Place("ao://queue", "queue", "The merge queue: what is to land, in order.", _queue),
    Place("ao://sessions/{id}", "session", "One session in full.", _session, own=True),
    Place("ao://sessions/{id}/log", "log", f"What its terminal showed last, {LOG_LINES} lines.", _log, own=True),
    Place(
        "ao://sessions/{id}/diff", "diff", "Its change against its base, uncommitted work included.", _diff, own=True
    ),
    Place("ao://sessions/{id}/transcript", "transcript", "What happened to it, told in order.", _transcript, own=True),
    Place("ao://plans/{id}", "plan", "A plan and its tasks.", _plan),
)


def places_for(caller: Caller) -> list[Place]:
    """The kinds of resources that are for this caller."""
    return [place for place in PLACES if caller.may(Scope.READ) or place.own]


def listed(caller: Caller, start: int) -> tuple[list[tuple[str, Place, str]], int | None]:
    """A page of the resources that there are: address, kind and what it is of; and where the next page begins."""
    places = places_for(caller)
    single = [(place.address, place, place.name) for place in places if "{id}" not in place.address]
    flow = caller.services.sessions.flow
    if caller.session is not None and not caller.coordinates:
        seen = [caller.session]
    else:
        project = caller.session.project if caller.session else None
        seen = [one for one in flow.sessions.values() if project in (None, one.project) and not is_over(one)]
    of_sessions = [place for place in places if place.address.startswith("ao://sessions/")]
    page = seen[start : start + PAGE]
    found = [
        (place.address.replace("{id}", quote(facts.id, safe="")), place, f"{place.name} of {facts.id}")
        for facts in page
        for place in of_sessions
    ]
    end = start + len(page)
    return (single if start == 0 else []) + found, end if end < len(seen) else None


async def read(caller: Caller, address: str) -> tuple[str, str]:
    """What is at an address, and what kind of text that is."""
    if _ADDRESS.fullmatch(address):
        for place in places_for(caller):
            if (name := place.match(address)) is not None:
                found = await place.read(caller, name)
                text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
                return text, place.mime
    raise NotFound(
        f"there is nothing at {address[:200]}", "resources/list and resources/templates/list tell what there is"
    )
