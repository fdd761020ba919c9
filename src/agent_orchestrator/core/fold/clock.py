"""The fold's part for time that is not what it seems: a clock that was wrong, a machine that slept. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import Step


def _set_back(facts: SessionFacts, event: Event, body: e.ClockSetBack) -> SessionFacts:
    now = event.time

    def dated(time: float | None) -> float | None:
        return None if time is None else min(time, now)

    launch, until = facts.launch, facts.limit_until
    return replace(
        facts,
        updated_at=min(facts.updated_at, now),
        turn_since=dated(facts.turn_since),
        displaced_at=min(facts.displaced_at, now),
        unseen_since=dated(facts.unseen_since),
        launch=replace(launch, at=min(launch.at, now), ended_at=dated(launch.ended_at)) if launch else None,
        activity=replace(facts.activity, at=min(facts.activity.at, now)),
        heard_at=min(facts.heard_at, now),
        limited_at=dated(facts.limited_at),
        limit_until=until if until is None or until <= now else max(now, until - body.seconds),
        messages=tuple(
            replace(
                one,
                at=min(one.at, now),
                delivered_at=dated(one.delivered_at),
                acknowledged_at=dated(one.acknowledged_at),
            )
            for one in facts.messages
        ),
        episodes={name: replace(one, since=min(one.since, now)) for name, one in facts.episodes.items()},
    )


def _woke(facts: SessionFacts, event: Event, _body: e.MachineWoke) -> SessionFacts:
    return replace(facts, heard_at=max(facts.heard_at, event.time))


STEPS: Mapping[type[e.Body], Step] = {e.ClockSetBack: _set_back, e.MachineWoke: _woke}
