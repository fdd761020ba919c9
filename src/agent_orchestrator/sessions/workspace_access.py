"""Looking at a session's work while its workspace may be removed at any moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.plugins import Plugins

T = TypeVar("T")

Look = Callable[[Git, SessionFacts, bool], Awaitable[T]]
"""Given Git, the session, and whether that Git is in its workspace."""


async def at_its_work(flow: Flow, plugins: Plugins, session: str, look: Look[T]) -> T:
    """Look at a session's work in its workspace or, where that is not there, in its repository.

    What was seen of a workspace that was removed meanwhile is not believed: it is looked at again where it is now.
    """
    facts = flow.sessions[session]
    while (folder := await _folder(plugins, facts)) and facts.place is not None:
        host = plugins.site_of(facts).host
        try:
            seen = await look(Git(host, Path(facts.place.path)), facts, True)
        except (AoError, OSError):
            if await _folder(plugins, facts) == folder:
                raise
        else:
            if await _folder(plugins, facts) == folder:
                return seen
        facts = flow.sessions[session]
    return await look(Git(plugins.here.host, Path(facts.spec.repo)), facts, False)


async def _folder(plugins: Plugins, facts: SessionFacts) -> str:
    """Names the workspace's folder for good; nothing: there is none, or none that could be looked at."""
    if facts.place is None or not facts.place.present or (facts.remote and facts.node is None):
        return ""
    site = plugins.site_of(facts)
    return await site.identity(Path(facts.place.path)) if site.reachable else ""
