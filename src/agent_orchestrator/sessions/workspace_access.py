"""Reads a session's work while its workspace may be removed at any moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Core

T = TypeVar("T")

WorkReader = Callable[[Git, SessionFacts, bool], Awaitable[T]]
"""Reads the work; gets Git, the session, and whether that Git is in the session's workspace."""


async def read_work(core: Core, session: str, read: WorkReader[T]) -> T:
    """Return what `read` reads in a session's workspace or, if that is missing, in its repository.

    A result from a workspace that was removed meanwhile is discarded, and `read` is called again.
    """
    facts = core.flow.sessions[session]
    while (folder := await _folder_identity(core, facts)) and facts.workspace is not None:
        host = core.sites.for_session(facts).host
        try:
            result = await read(Git(host, Path(facts.workspace.path)), facts, True)
        except (AoError, OSError):
            if await _folder_identity(core, facts) == folder:
                raise
        else:
            if await _folder_identity(core, facts) == folder:
                return result
        facts = core.flow.sessions[session]
    return await read(Git(core.host, Path(facts.spec.repo)), facts, False)


async def _folder_identity(core: Core, facts: SessionFacts) -> str:
    """Return a permanent id of the workspace's folder, or "" if there is none or its site cannot be reached."""
    if facts.workspace is None or not facts.workspace.present or (facts.remote and facts.node is None):
        return ""
    site = core.sites.for_session(facts)
    return await site.folder_identity(Path(facts.workspace.path)) if site.reachable else ""
