"""How long to wait for a forge that does not do as it should: what may pass, and pauses that grow."""

from __future__ import annotations

from agent_orchestrator.errors import AoError, Denied


def of_the_host(error: AoError) -> bool:
    """Does it say nothing of what was asked for, but of the host or the token?"""
    return error.retryable or isinstance(error, Denied)


def longer(pause: float, first: float, most: float, error: Exception, now: float) -> float:
    """The pause after another failure: twice the last one, but not beyond the end of a limit that is known."""
    grown = min(max(2 * pause, first), most)
    until: float | None = getattr(error, "until", None)
    return grown if until is None else min(grown, max(first, until - now))
