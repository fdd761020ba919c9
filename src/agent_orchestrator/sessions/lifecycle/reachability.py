"""Effects that wait while a session's node cannot be reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from agent_orchestrator.core.effects import RetryLater
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import Temporary
from agent_orchestrator.sessions.part import Core

UNREACHABLE_PAUSE = 0.5
"""Seconds until it is checked again whether a session's node can be reached."""

RunEffect = Callable[[Intent, int], Awaitable[Sequence[Event]]]
"""Carries out an intent; the number says how often that was tried before."""


def is_reachable(core: Core, facts: SessionFacts) -> bool:
    """Return whether a session is on this machine or on a node that can be reached."""
    return facts.node is None or core.sites.for_session(facts).reachable


def retry_while_unreachable(core: Core, run: RunEffect) -> RunEffect:
    """Return an effect that is retried while the session's node is unreachable.

    The node either comes back, or is declared lost, which changes the session's facts.
    """

    async def run_when_reachable(intent: Intent, attempts: int) -> Sequence[Event]:
        """Run the effect; raise `RetryLater` if the node is unreachable, before or afterwards."""
        if not is_reachable(core, core.flow.sessions[intent.session]):
            raise RetryLater(UNREACHABLE_PAUSE)
        try:
            return await run(intent, attempts)
        except Temporary:
            if not is_reachable(core, core.flow.sessions[intent.session]):
                raise RetryLater(UNREACHABLE_PAUSE) from None
            raise

    return run_when_reachable
