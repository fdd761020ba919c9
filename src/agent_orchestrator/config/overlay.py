"""Merge settings of several files: the later one wins, field by field, and only where it sets something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from agent_orchestrator.config.model import Model, Reaction
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.rules.model import Rule

M = TypeVar("M", bound=Model)


def overlay(base: M, top: Model) -> M:
    """Return `base` with every field that `top` sets: nested models and maps field by field, lists as a whole."""
    settings = {name: getattr(top, name) for name in top.model_fields_set if name in type(base).model_fields}
    extra = {**(base.model_extra or {}), **(top.model_extra or {})}
    update = {name: _merge_values(getattr(base, name), value) for name, value in settings.items()}
    return base.model_copy(update={**update, **extra})


def _merge_values(base: Any, top: Any) -> Any:
    if isinstance(base, Model) and isinstance(top, Model):
        return replaced if (replaced := _replacement_plugin(base, top)) else overlay(base, top)
    if isinstance(base, dict) and isinstance(top, dict):
        return {
            **base,
            **{key: _merge_values(base[key], value) if key in base else value for key, value in top.items()},
        }
    return top


def _replacement_plugin(base: Model, top: Model) -> Model | None:
    """Return `top` if it names another plugin, else None: options of one plugin mean nothing to another, so they are not merged."""
    name = getattr(top, "plugin", None)
    if name is not None and "plugin" in top.model_fields_set and name != getattr(base, "plugin", None):
        return top
    return None


def merge_rules(*levels: Mapping[str, Reaction]) -> tuple[Rule, ...]:
    """Return the default rules with each level's reactions merged in: global, then project, then profile."""
    merged = {rule.name: rule for rule in DEFAULT_RULES}
    for level in levels:
        for name, reaction in level.items():
            merged[name] = _override_rule(merged.get(name) or Rule(name, reaction.trigger or name), reaction)
    return tuple(merged.values())


_COPIED_FIELDS = frozenset(
    {"trigger", "auto", "action", "message", "retries", "escalate", "threshold", "delay", "unless_watched", "condition"}
    | {"priority", "strategy", "delete_after", "include_summary", "approval_after", "timeout", "agent"}
)
_NULLABLE = frozenset({"retries", "threshold", "delay", "priority", "strategy", "agent", "approval_after"})


def _override_rule(base: Rule, reaction: Reaction) -> Rule:
    """Return the rule changed by a reaction. A field set to null resets the field to null where that is possible."""
    fields = reaction.model_fields_set
    changes: dict[str, Any] = {}
    for name in _COPIED_FIELDS & fields:
        value = getattr(reaction, name)
        if value is not None or name in _NULLABLE:
            changes[name] = value
    if "backoff" in fields:
        changes["backoff"] = (reaction.backoff.first, reaction.backoff.most) if reaction.backoff else None
    if "escalate_after" in fields:
        changes["escalate_after_count"] = reaction.escalate_after.count if reaction.escalate_after else None
        changes["escalate_after_seconds"] = reaction.escalate_after.seconds if reaction.escalate_after else None
    if "command" in fields:
        changes["command"] = ("sh", "-c", reaction.command) if reaction.command else ()
    return replace(base, **changes)
