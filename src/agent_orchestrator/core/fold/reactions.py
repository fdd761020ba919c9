"""From events to facts: attempts of rules, escalations and offers. Part of the fold in `core/fold/sessions.py`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Episode, Offer, SessionFacts
from agent_orchestrator.core.fold.step import Step
from agent_orchestrator.core.pull_request import DEPENDENCY_ENDED

MAX_OFFERS = 50
"""Number of open offers that a session keeps; older ones are dropped."""


def _apply_reacted(facts: SessionFacts, event: Event, body: e.Reacted) -> SessionFacts:
    """Record an attempt of a rule in the trigger's episode."""
    recorded = facts.episodes.get(body.trigger) or Episode(event.time, first_occurrence=body.occurrence)
    episode = replace(recorded, attempts=max(recorded.attempts, body.attempt), last_occurrence=body.occurrence)
    return replace(facts, episodes={**facts.episodes, body.trigger: episode})


def _apply_escalated(facts: SessionFacts, event: Event, body: e.Escalated) -> SessionFacts:
    """Mark the trigger's episode as escalated."""
    recorded = facts.episodes.get(body.trigger) or Episode(event.time)
    return replace(facts, episodes={**facts.episodes, body.trigger: replace(recorded, escalated=True)})


def _apply_action_offered(facts: SessionFacts, event: Event, body: e.ActionOffered) -> SessionFacts:
    """Add an offer; it replaces an older one of the same rule that it repeats."""
    others = tuple(offer for offer in facts.offers if offer.id != body.offer and not _is_repeated(offer, body))
    new_offer = Offer(
        id=body.offer,
        rule=body.rule,
        trigger=body.trigger,
        occurrence=body.occurrence,
        action=body.action,
        text=body.text,
        attempt=body.attempt,
        at=event.time,
        event=body.event,
    )
    return replace(facts, offers=(*others, new_offer)[-MAX_OFFERS:])


def _is_repeated(offer: Offer, body: e.ActionOffered) -> bool:
    """Return whether an offer is repeated by a newer one of the same rule."""
    return offer.rule == body.rule and not body.event


def _apply_offer_answered(facts: SessionFacts, _event: Event, body: e.OfferAnswered) -> SessionFacts:
    """Remove an offer that a person answered; an accepted one no longer needs that person, so its episode is not escalated."""
    offer = next((other for other in facts.offers if other.id == body.offer), None)
    if offer is None:
        return facts
    episodes, episode = facts.episodes, facts.episodes.get(offer.trigger)
    if episode is not None and body.decision == "allow":
        episodes = {**episodes, offer.trigger: replace(episode, escalated=False)}
    if offer.trigger == DEPENDENCY_ENDED:
        facts = _apply_dependency_answer(facts, str(offer.event.get("other", "")), body.decision)
    return replace(facts, offers=tuple(other for other in facts.offers if other.id != body.offer), episodes=episodes)


def _apply_dependency_answer(facts: SessionFacts, other: str, decision: str) -> SessionFacts:
    """Apply the answer to a dependency that ended badly: the session starts without it, or is stopped if it has not started."""
    if decision == "allow":
        return replace(facts, waived_dependencies=tuple(dict.fromkeys((*facts.waived_dependencies, other))))
    return (
        facts if facts.admitted else replace(facts, requested_state="stop", keep_workspace=False, stopped_by="person")
    )


def _apply_offer_withdrawn(facts: SessionFacts, _event: Event, body: e.OfferWithdrawn) -> SessionFacts:
    """Remove an offer that was withdrawn."""
    return replace(facts, offers=tuple(offer for offer in facts.offers if offer.id != body.offer))


STEPS: Mapping[type[e.Body], Step] = {
    e.Reacted: _apply_reacted,
    e.Escalated: _apply_escalated,
    e.ActionOffered: _apply_action_offered,
    e.OfferAnswered: _apply_offer_answered,
    e.OfferWithdrawn: _apply_offer_withdrawn,
}
