"""From events to facts: corrections of time after the clock was wrong or the machine slept.

Part of the fold in `core/fold/sessions.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.step import Step


def _apply_clock_set_back(facts: SessionFacts, event: Event, body: e.ClockSetBack) -> SessionFacts:
    """Move recorded times that now lie in the future to the present, and the end of a usage limit back by the correction."""
    now = event.time

    def not_after_now(time: float | None) -> float | None:
        """Return the time, or the current time if that is earlier."""
        return None if time is None else min(time, now)

    launch, until = facts.launch, facts.limit_until
    return replace(
        facts,
        updated_at=min(facts.updated_at, now),
        slot_wait_since=not_after_now(facts.slot_wait_since),
        displaced_at=min(facts.displaced_at, now),
        unseen_since=not_after_now(facts.unseen_since),
        launch=replace(launch, at=min(launch.at, now), ended_at=not_after_now(launch.ended_at)) if launch else None,
        activity=replace(facts.activity, at=min(facts.activity.at, now)),
        last_sign_at=min(facts.last_sign_at, now),
        limited_at=not_after_now(facts.limited_at),
        limit_until=until if until is None or until <= now else max(now, until - body.seconds),
        messages=tuple(
            replace(
                entry,
                at=min(entry.at, now),
                delivered_at=not_after_now(entry.delivered_at),
                acknowledged_at=not_after_now(entry.acknowledged_at),
            )
            for entry in facts.messages
        ),
        episodes={name: replace(entry, since=min(entry.since, now)) for name, entry in facts.episodes.items()},
    )


def _apply_machine_woke(facts: SessionFacts, event: Event, _body: e.MachineWoke) -> SessionFacts:
    """Count the wake-up as a sign of life, because an agent cannot report while the machine sleeps."""
    return replace(facts, last_sign_at=max(facts.last_sign_at, event.time))


STEPS: Mapping[type[e.Body], Step] = {e.ClockSetBack: _apply_clock_set_back, e.MachineWoke: _apply_machine_woke}
