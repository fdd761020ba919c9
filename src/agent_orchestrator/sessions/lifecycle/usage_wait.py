"""The reason why a session may not use its account at the moment, and who decides that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.protocols import Clock

MAX_RECHECK_SECONDS = 60.0
"""Seconds after which it is checked again, at the latest, whether an agent may be started or sent a message."""


@dataclass(frozen=True, slots=True)
class SessionWait:
    """Why a session must wait, and when to check again."""

    reason: str
    until: float


class UsageGate(Protocol):
    """Decides which sessions may use their account now, by usage limits and budgets."""

    def claim_turn_or_wait(self, facts: SessionFacts) -> SessionWait | None:
        """Return why a session may not be started or sent a message yet, or None; then it has taken its account's next turn."""
        ...


def seconds_until_recheck(wait: SessionWait, clock: Clock) -> float:
    """Return the seconds until a wait should be checked again."""
    return min(max(wait.until - clock(), 0.2), MAX_RECHECK_SECONDS)
