"""What a file would run, and what the models tell of themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_orchestrator.config.kinds import known_trigger
from agent_orchestrator.config.load import load_text
from agent_orchestrator.config.model import Config
from agent_orchestrator.config.schema import help_text, json_schema, keys, reference_markdown
from agent_orchestrator.config.trust import commands_of, digest
from agent_orchestrator.flow.events import KINDS
from agent_orchestrator.flow.rules import DEFAULT_RULES, TEMPLATE_VARIABLES
from agent_orchestrator.templates import check

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def config(text: str) -> Config:
    return load_text(text, Path("ao.yaml"), {}).config


HARMLESS = "defaults: {runtime: tmux}\nprojects: {a: {path: x, env: {APP_MODE: test}, agentRules: Be kind.}}\n"


def test_nothing_that_runs_needs_no_trust() -> None:
    assert commands_of(config(HARMLESS)) == {}
    assert digest({}) == ""


@pytest.mark.parametrize(
    "text",
    [
        "projects: {a: {path: x, postCreate: [npm ci]}}",
        "projects: {a: {path: x, docker: {image: somebody/elses}}}",
        "projects: {a: {path: x, docker: {mounts: ['~/.ssh']}}}",
        "projects: {a: {path: x, docker: {network: host}}}",
        "projects: {a: {path: x, ci: make test}}",
        "project: {ci: make test}",
        "agents: {a: {command: [cli]}}",
        "agents: {a: {command: [cli], resume: [cli, -c]}}",
        "plugins: [./p.py]",
        "notifiers: {own: {path: ./p.py, plugin: own}}",
        "reactions: {agent-idle: {action: command, command: make tidy}}",
        "projects: {a: {path: x, reactions: {agent-idle: {action: command, command: make tidy}}}}",
        "agents: {a: {reactions: {agent-idle: {action: command, command: make tidy}}}}",
        "projects: {a: {path: x, env: {PATH: /evil}}}",
        "projects: {a: {path: x, env: {GIT_SSH_COMMAND: evil}}}",
        "agents: {a: {env: {LD_PRELOAD: evil.so}}}",
        "projects: {a: {path: x, agentConfig: {permissions: full}}}",
        "defaults: {agentConfig: {permissions: skip}}",
    ],
)
def test_everything_that_runs_is_told(text: str) -> None:
    commands = commands_of(config(text))
    assert commands
    assert json.loads(json.dumps(commands)) == commands
    assert len(digest(commands)) == 64


def test_trust_holds_for_content() -> None:
    text = "projects: {a: {path: x, postCreate: [npm ci], ci: make test}, b: {path: y, ci: tox}}"
    one = commands_of(config(text))
    assert one == {
        "projects": {"a": {"postCreate": ["npm ci"], "ci": {"default": "make test"}}, "b": {"ci": {"default": "tox"}}}
    }
    same = commands_of(
        config(
            "projects: {b: {path: z, ci: {command: tox, timeout: 5m}}, a: {path: q, ci: make test, postCreate: [npm ci]}}"
        )
    )
    assert digest(one) == digest(same)
    assert digest(one) != digest(commands_of(config(text.replace("npm ci", "npm ci; evil"))))
    resumed = [commands_of(config(f"agents: {{a: {{command: [cli], resume: [{word}]}}}}")) for word in ("x", "y")]
    assert digest(resumed[0]) != digest(resumed[1])
    assert commands_of(config(text), "b") == {"projects": {"b": {"ci": {"default": "tox"}}}}


def test_the_default_rules() -> None:
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


def test_the_default_rules_are_sound() -> None:
    for rule in DEFAULT_RULES:
        check(rule.message, TEMPLATE_VARIABLES)
    assert len({rule.name for rule in DEFAULT_RULES}) == len(DEFAULT_RULES)


def test_every_event_type_is_a_trigger() -> None:
    assert KINDS
    for kind in KINDS:
        assert known_trigger(kind) == kind


def test_every_key_has_a_description_and_is_in_the_help() -> None:
    text = help_text()
    for key in keys():
        assert key.description, key.path
        assert key.path.rpartition(".")[2] in text


def test_the_schema_speaks_canonically() -> None:
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
        "write it anew: python -c 'from agent_orchestrator.config.schema import *; print(reference_markdown(), end=\"\")'"
    )


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("projects: {a: {repo: o/a}}", None),
        ("projects: {a: {repo: 'https://github.com/o/a'}}", None),
        ("projects: {a: {repo: o/a, scm: {plugin: github, apiUrl: 'https://evil.example/api/v3'}}}", "evil.example"),
        ("projects: {a: {repo: o/a, tracker: {plugin: github, apiUrl: 'https://evil.example'}}}", "evil.example"),
        ("projects: {a: {repo: 'git@evil.example:o/a.git'}}", "evil.example"),
        ("projects: {a: {repo: 'https://github.com.evil.example/o/a'}}", "evil.example"),
    ],
)
def test_a_host_that_a_token_would_be_sent_to_is_to_be_trusted(text: str, hosts: str | None) -> None:
    found = commands_of(config(text)).get("projects", {}).get("a", {}).get("hosts", [])
    assert bool(found) == bool(hosts) and all(hosts in one for one in found if hosts)


def test_the_same_in_the_defaults() -> None:
    text = "defaults: {scm: {plugin: github, apiUrl: 'https://evil.example'}}\nprojects: {a: {repo: o/a}}"
    assert commands_of(config(text))["defaults"] == {"hosts": ["https://evil.example"]}
