"""What all steps of the fold share. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts

Step = Callable[[SessionFacts, Event, Any], SessionFacts]
"""Returns a session's facts after an event, given the facts, the event and its body."""


def is_outdated(facts: SessionFacts, event: Event, *, is_own_report: bool = True) -> bool:
    """Return whether a newer activity is already recorded.

    The agent's first own report counts whatever its time, because until then the activity is only inferred by others.
    """
    return event.time < facts.activity.at and (facts.has_reported or not is_own_report)
