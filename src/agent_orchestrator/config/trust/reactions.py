"""Values that need trust: reaction rules that run, start, merge or hold something."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.config import model as m
from agent_orchestrator.config.overlay import merge_rules
from agent_orchestrator.config.trust.power import TrustContext, drop_empty

_UNATTENDED_ACTIONS = ("hold", "spawn")
"""Actions of rules that concern more than one session that a person started. In another person's repository, the author of the rules
also writes its issues.
"""

_SCRIPT_COMMAND = re.compile(r"\[(?:\s|\{\{.*?\}\})*\[", re.DOTALL)
"""What the scripted agent, `demo`, obeys in a message, whatever a template puts between the brackets."""

_APPROVED = "approved-and-green"
"""The trigger that requires a person's approval: a merge by any other trigger was not seen by a person."""

_CONDITION_FIELDS = {"trigger", "auto", "condition", "approval_after", "agent"}

_PRESENTATION_FIELDS = {"message", "priority", "include_summary", "strategy", "delete_after"}
"""Fields of a rule that say how something is reported or merged, not when what is done."""


def rule_powers(value: Any, section: Any, around: TrustContext) -> Any:
    """Return what rules would run, start, merge unseen or hold back for all projects.

    What else they do concerns only the project: merging what a person approved and checks passed, and holding back strangers.
    """
    return drop_empty(
        {name: _rule_action(name, rule) or changed_rule(name, rule, section, around) for name, rule in value.items()}
    )


def _rule_action(name: str, rule: m.Reaction) -> Any:
    """Return what a rule runs, starts, merges or holds, with its conditions: without asking, for which label, by which agent."""
    what = rule.command or (rule.action if _acts_unattended(name, rule) else None) or _scripted_message(rule)
    when = rule.model_dump(mode="json", by_alias=True, include=rule.model_fields_set & _CONDITION_FIELDS)
    return [what, when] if what and when else what


def _acts_unattended(name: str, rule: m.Reaction) -> bool:
    """Return whether a rule starts or holds something unattended, or merges what no person approved."""
    return rule.action in _UNATTENDED_ACTIONS or (rule.action == "merge" and (rule.trigger or name) != _APPROVED)


def _scripted_message(rule: m.Reaction) -> str | None:
    return rule.message if rule.message and _SCRIPT_COMMAND.search(rule.message) else None


def changed_rule(name: str, rule: m.Reaction, section: Any, around: TrustContext) -> dict[str, Any]:
    """Return what a rule changes in a rule below it that runs, starts, merges or holds something: when that is done, and by which agent.

    Rules below are the user's and the default ones; for a project or a profile also the file's. A change of the rule that stops a
    session which spent a budget of the user's counts too.
    """
    levels = (around.own.reactions, {} if isinstance(section, m.Config) else around.reactions)
    project_reactions = around.project_reactions if isinstance(section, m.Profile) else ()
    own_budgets = (around.own.orchestrator.budget, *(profile.budget for profile in around.own.agents.values()))
    has_budget = any(budget.model_fields_set for budget in own_budgets)
    return {
        key: value
        for reactions in project_reactions or ({},)
        for key, value in _overridden_fields(name, rule, (*levels, reactions), has_budget).items()
    }


def _overridden_fields(
    name: str, rule: m.Reaction, levels: Sequence[Mapping[str, m.Reaction]], has_budget: bool
) -> dict[str, Any]:
    """Return the fields of a rule that change what the rules in `levels` do under the same name."""
    below = [{name: level[name]} for level in levels if name in level]
    base = next((lower_rule for lower_rule in merge_rules(*below) if lower_rule.name == name), None)
    stops = has_budget and base is not None and (base.trigger, base.action) == ("budget-exceeded", "stop")
    if base is None or not (base.command or base.action in (*_UNATTENDED_ACTIONS, "merge") or stops):
        return {}
    fields_set_below = {key for level in below for key in level[name].model_fields_set}
    unchanged = {key for key in ("action", "trigger", "auto") if getattr(rule, key) in (None, getattr(base, key))}
    widened = (
        rule.model_fields_set if stops else {"agent", "trigger", *(("action",) if rule.action == "command" else ())}
    )
    changed = (rule.model_fields_set & (fields_set_below | widened)) - _PRESENTATION_FIELDS - unchanged
    return rule.model_dump(mode="json", by_alias=True, include=changed)


def without_commands(name: str, rule: m.Reaction) -> m.Reaction:
    """Return a rule without what it would run; its default action remains."""
    fields = rule.model_fields_set - ({"message"} if _scripted_message(rule) else set())
    if rule.command or _acts_unattended(name, rule):
        fields -= {"auto", "action", "command", "agent", "timeout"}
    if fields == rule.model_fields_set:
        return rule
    return m.Reaction.model_construct(fields, **{key: getattr(rule, key) for key in fields})
