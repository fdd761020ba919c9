"""How long to wait for a forge that does not do as it should: effects that are tried again, and pauses that grow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from agent_orchestrator.errors import AoError, Denied
from agent_orchestrator.flow.effects import Hindered
from agent_orchestrator.flow.events import Event
from agent_orchestrator.flow.reactions import Intent

Run = Callable[[Intent, int], Awaitable[Sequence[Event]]]


def patient(run: Run, passes: Callable[[AoError], bool] = lambda _: True) -> Run:
    """The same effect, which is tried again after every error that may pass, as long as it is wanted."""

    async def tried(intent: Intent, attempts: int) -> Sequence[Event]:
        try:
            return await run(intent, attempts)
        except AoError as error:
            if passes(error):
                raise Hindered(error) from error
            raise

    return tried


def of_the_host(error: AoError) -> bool:
    """Does it say nothing of what was asked for, but of the host or the token?"""
    return error.retryable or isinstance(error, Denied)


def longer(pause: float, first: float, most: float, error: Exception, now: float) -> float:
    """The pause after another failure: twice the last one, but not beyond the end of a limit that is known."""
    grown = min(max(2 * pause, first), most)
    until: float | None = getattr(error, "until", None)
    return grown if until is None else min(grown, max(first, until - now))
