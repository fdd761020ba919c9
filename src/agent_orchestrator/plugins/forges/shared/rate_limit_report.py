"""What is left of a host's rate limits, for background reading and as text for people."""

from __future__ import annotations

from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient


def background_pause(http: ForgeHttpClient | None) -> float:
    """Return how many seconds background reading should wait; 0 if nothing has been requested yet."""
    if http is None:
        return 0.0
    return max([http.budget.pause_before_next(), *(row.pause for row in http.budget.rows())])


def rate_limit_lines(http: ForgeHttpClient | None) -> list[str]:
    """Return one line per kind of request: its remaining requests, their limit and the time until the reset."""
    if http is None:
        return []
    return [
        f"{row.resource}: {row.remaining:,} of {row.limit:,} left, anew in {row.resets_in / 60:.0f} min"
        + (f"; {row.used_by_others:,} used by others with this token" if row.used_by_others else "")
        + (f"; background reading pauses {row.pause:.0f} s" if row.pause else "")
        for row in http.budget.rows()
    ]
