"""When a session counts as stuck: after how many seconds of silence in a turn. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent_orchestrator.core.rules.model import Rule

STUCK_AFTER_SECONDS = 600.0
"""Seconds of silence in a turn after which a session is stuck, unless its rules set another threshold."""


def stuck_after_seconds(rules: Sequence[Rule]) -> float:
    """Return the seconds of silence after which these rules consider a session stuck."""
    return next(
        (rule.threshold for rule in rules if rule.trigger == "agent-stuck" and rule.threshold), STUCK_AFTER_SECONDS
    )
