"""The reason why a session may not use its account at the moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a session must wait, and when to check again."""

    reason: str
    until: float
