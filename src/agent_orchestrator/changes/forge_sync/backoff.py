"""Errors of a forge that may pass, and growing pauses between attempts."""

from __future__ import annotations

from agent_orchestrator.errors import AoError, Denied


def is_host_error(error: AoError) -> bool:
    """Return whether an error is about the host or the token, and not about what was requested."""
    return error.retryable or isinstance(error, Denied)


def next_pause(pause: float, first: float, most: float, error: Exception, now: float) -> float:
    """Return the pause after another failure: twice the last one, at most `most`, and not beyond the end of a known rate limit."""
    doubled = min(max(2 * pause, first), most)
    until: float | None = getattr(error, "until", None)
    return doubled if until is None else min(doubled, max(first, until - now))
