"""Looking at a session's work while its workspace may be removed at any moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from agent_orchestrator.errors import AoError
from agent_orchestrator.flow.engine import Flow
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.git import Git
from agent_orchestrator.host import Host

T = TypeVar("T")

Look = Callable[[Git, SessionFacts, bool], Awaitable[T]]
"""Given Git, the session, and whether that Git is in its workspace."""


async def at_its_work(flow: Flow, host: Host, session: str, look: Look[T]) -> T:
    """Look at a session's work in its workspace or, where that is not there, in its repository.

    What was seen of a workspace that was removed meanwhile is not believed: it is looked at again where it is now.
    """
    facts = flow.sessions[session]
    while (folder := _folder(facts)) is not None and facts.place is not None:
        try:
            seen = await look(Git(host, Path(facts.place.path)), facts, True)
        except (AoError, OSError):
            if _folder(facts) == folder:
                raise
        else:
            if _folder(facts) == folder:
                return seen
        facts = flow.sessions[session]
    return await look(Git(host, Path(facts.spec.repo)), facts, False)


def _folder(facts: SessionFacts) -> tuple[int, int] | None:
    """Names the workspace's folder for good; none: there is none."""
    if facts.place is None or not facts.place.present:
        return None
    try:
        status = Path(facts.place.path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
