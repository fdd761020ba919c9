"""From events to facts: what a session used, the usage limit it met, and its budgets.

Part of the fold in `core/fold/sessions.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import (
    ActivityFact,
    SessionFacts,
    Usage,
)
from agent_orchestrator.core.fold.step import Step, is_outdated

MAX_MODELS_PER_DAY = 50
"""Number of models of one day whose usage is counted separately in a session."""

MAX_MODEL_NAME_LENGTH = 200
"""Longest model name that is kept, in characters."""

OTHER_MODELS = "other models"
"""The name under which the usage of further models is counted."""

MAX_LIMIT_SECONDS = 8 * 86400.0
"""Seconds; a reset time of a usage limit that is further away is ignored as implausible."""


def _apply_agent_usage(facts: SessionFacts, event: Event, body: e.AgentUsage) -> SessionFacts:
    """Add tokens and cost to the session's total and to the day and model."""
    used = Usage(body.input, body.output, body.cache_read, body.cache_write, body.usd, body.forge)
    key = _usage_key(facts, e.rfc3339(event.time)[:10], body.model[:MAX_MODEL_NAME_LENGTH])
    spent = {**facts.daily_usage, key: facts.daily_usage.get(key, Usage()).plus(used)}
    return replace(facts, usage=facts.usage.plus(used), daily_usage=spent)


def _usage_key(facts: SessionFacts, day: str, model: str) -> str:
    """Return the key under which a day's usage of a model is counted.

    An agent can name any number of models, so those beyond `MAX_MODELS_PER_DAY` per day share one key.
    """
    key = f"{day} {model}"
    if (
        key in facts.daily_usage
        or sum(other_key.startswith(f"{day} ") for other_key in facts.daily_usage) < MAX_MODELS_PER_DAY
    ):
        return key
    return f"{day} {OTHER_MODELS}"


def _apply_budget_raised(facts: SessionFacts, _event: Event, body: e.BudgetRaised) -> SessionFacts:
    """Count one more raise of a budget."""
    key = f"{body.scope} {body.day}".strip()
    return replace(facts, budget_raises={**facts.budget_raises, key: facts.budget_raises.get(key, 0) + 1})


def _apply_agent_limit(facts: SessionFacts, event: Event, body: e.AgentLimit) -> SessionFacts:
    """Record that the agent met its account's usage limit, and its plausible reset time."""
    if not facts.live or is_outdated(facts, event):
        return facts
    until = plausible_reset_time(body.resets_at, event.time)
    activity = ActivityFact("limited", event.source, event.time)
    return replace(
        facts, limited_at=event.time, limit_until=until, limit_model=body.model, activity=activity, has_reported=True
    )


def plausible_reset_time(resets_at: float | None, now: float) -> float | None:
    """Return the reset time that an agent named, or None if it is past or more than `MAX_LIMIT_SECONDS` away."""
    return resets_at if resets_at is not None and now < resets_at <= now + MAX_LIMIT_SECONDS else None


def _apply_account_hold(facts: SessionFacts, event: Event, body: e.AccountHeld | e.AccountReleased) -> SessionFacts:
    """Set when a session that met the usage limit continues: at the end of its account's hold, or now if it was released."""
    if not facts.limited:
        return facts
    if isinstance(body, e.AccountReleased):
        return replace(facts, limit_until=event.time)
    return replace(facts, limit_until=body.until if body.waits is None else max(body.until, body.waits))


STEPS: Mapping[type[e.Body], Step] = {
    e.AgentUsage: _apply_agent_usage,
    e.BudgetRaised: _apply_budget_raised,
    e.AgentLimit: _apply_agent_limit,
    e.AccountHeld: _apply_account_hold,
    e.AccountReleased: _apply_account_hold,
}
