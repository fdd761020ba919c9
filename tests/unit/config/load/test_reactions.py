"""Reaction rules of a configuration."""

from __future__ import annotations

from agent_orchestrator.config.overlay import merge_rules
from tests.unit.config.load.documents import load_config_text


def test_a_rule_is_merged_field_by_field() -> None:
    rule = {r.name: r for r in merge_rules(load_config_text("reactions: {ci-failed: {retries: 3}}").reactions)}[
        "ci-failed"
    ]
    assert (rule.retries, rule.action, rule.auto, rule.escalate_after_count) == (3, "send-to-agent", True, 2)
    assert "{{errors}}" in rule.message


def test_escalation_by_time_replaces_escalation_by_count() -> None:
    rule = {r.name: r for r in merge_rules(load_config_text("reactions: {ci-failed: {escalateAfter: 30m}}").reactions)}[
        "ci-failed"
    ]
    assert (rule.escalate_after_count, rule.escalate_after_seconds) == (None, 1800.0)
    none = {
        r.name: r for r in merge_rules(load_config_text("reactions: {ci-failed: {escalateAfter: null}}").reactions)
    }["ci-failed"]
    assert (none.escalate_after_count, none.escalate_after_seconds) == (None, None)


def test_higher_levels_override_rules_of_lower_levels() -> None:
    low = load_config_text("reactions: {ci-failed: {retries: 5, priority: info}}").reactions
    high = load_config_text("reactions: {ci-failed: {retries: 7}}").reactions
    rule = {r.name: r for r in merge_rules(low, high)}["ci-failed"]
    assert (rule.retries, rule.priority) == (7, "info")


def test_several_rules_for_one_trigger_get_distinct_names() -> None:
    text = "reactions:\n  - {trigger: label-added, condition: \"label == 'a'\"}\n  - {trigger: label_added, action: stop}\n"
    label_rules = [r for r in merge_rules(load_config_text(text).reactions) if r.trigger == "label-added"]
    assert [(r.name, r.action) for r in label_rules] == [("label-added", "notify"), ("label-added-2", "stop")]
    named = merge_rules(load_config_text("reactions: {tests: {trigger: label-added, action: stop}}").reactions)
    assert [(r.name, r.trigger) for r in named if r.action == "stop" and r.name == "tests"] == [
        ("tests", "label-added")
    ]


def test_a_command_reaction_runs_in_a_shell() -> None:
    all_rules = merge_rules(
        load_config_text("reactions: {agent-idle: {action: command, command: make tidy}}").reactions
    )
    assert next(r.command for r in all_rules if r.name == "agent-idle") == ("sh", "-c", "make tidy")
