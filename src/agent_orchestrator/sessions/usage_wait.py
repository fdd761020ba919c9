"""Why a session may not use its account just now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a session may not go on just now, and when to ask again."""

    reason: str
    until: float
