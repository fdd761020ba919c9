"""The schema, help text and reference page generated from the configuration models."""

from __future__ import annotations

import json
from pathlib import Path

from agent_orchestrator.base.text.templates import check
from agent_orchestrator.config.field_types import check_trigger
from agent_orchestrator.config.schema import help_text, json_schema, list_keys, reference_markdown, update_schema_file
from agent_orchestrator.core.events import EVENT_KINDS
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.rules.model import TEMPLATE_VARIABLES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def test_the_default_rules_have_the_documented_values() -> None:
    rules = {rule.trigger: rule for rule in DEFAULT_RULES}
    ci = rules["ci-failed"]
    assert (ci.action, ci.retries, ci.backoff, ci.escalate_after_count) == ("send-to-agent", 2, (30, 600), 2)
    for trigger, seconds in (("changes-requested", 1800), ("review-comment", 1800), ("merge-conflicts", 900)):
        assert (rules[trigger].action, rules[trigger].escalate_after_seconds) == ("send-to-agent", seconds)
    green = rules["approved-and-green"]
    assert (green.auto, green.action, green.strategy, green.delete_after) == (False, "merge", "squash", True)
    for trigger in ("agent-needs-input", "agent-blocked"):
        assert (rules[trigger].action, rules[trigger].priority, rules[trigger].delay) == ("notify", "urgent", 20)
        assert rules[trigger].unless_watched
    assert (rules["agent-stuck"].threshold, rules["agent-stuck"].priority) == (600, "urgent")
    assert (rules["agent-exited"].action, rules["usage-limit"].action, rules["pr-merged"].action) == (
        "notify",
        "hold",
        "clean-up",
    )
    assert (rules["budget-exceeded"].action, rules["budget-exceeded"].priority) == ("stop", "urgent")
    assert {rules[t].action for t in ("pr-closed", "all-complete", "conflict-predicted")} == {"notify"}


def test_the_messages_of_the_default_rules_are_valid() -> None:
    for rule in DEFAULT_RULES:
        check(rule.message, TEMPLATE_VARIABLES)
    assert len({rule.name for rule in DEFAULT_RULES}) == len(DEFAULT_RULES)


def test_every_event_type_is_a_trigger() -> None:
    assert EVENT_KINDS
    for kind in EVENT_KINDS:
        assert check_trigger(kind) == kind


def test_every_key_has_a_description_and_is_in_the_help() -> None:
    text = help_text()
    for key in list_keys():
        assert key.description, key.path
        assert key.path.rpartition(".")[2] in text


def test_the_schema_uses_the_canonical_keys() -> None:
    schema = json_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert {"port", "projects", "agents", "reactions", "notificationRouting", "$schema"} <= set(schema["properties"])
    project = schema["$defs"]["Project"]
    assert project["additionalProperties"] is False
    assert {"defaultBranch", "postCreate", "copy", "agentConfig"} <= set(project["properties"])
    assert {"$ref": "#/$defs/Check"} in project["properties"]["ci"]["anyOf"]
    assert {"type": "string"} in project["properties"]["postCreate"]["anyOf"]
    assert "examples" in json.dumps(schema["$defs"]["Budget"])


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text() == reference_markdown(), (
        "rewrite it: python -c 'from agent_orchestrator.config.schema import *; print(reference_markdown(), end=\"\")'"
    )


def test_an_outdated_schema_file_for_editors_is_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    update_schema_file(file)
    text = file.read_text()
    assert {key: value for key, value in json.loads(text).items() if key != "$comment"} == json_schema()
    file.write_text(text[:-1] + " }")
    update_schema_file(file)
    assert file.read_text().endswith(" }"), "this version's own is not written again"
    for other in ('{"$comment": "agent-orchestrator 0.0.1"}', "", "{"):
        file.write_text(other)
        update_schema_file(file)
        assert file.read_text() == text
    update_schema_file(tmp_path / "not there" / "schema.json")
