"""Older and shorter spellings of configuration keys."""

from __future__ import annotations

import pytest

from tests.unit.config.load.documents import load_config_text, load_document, load_problems

OLDER = """
$schema: https://schema.invalid/x.json
port: 3000
terminalPort: 14800
directTerminalPort: 14801
readyThresholdMs: 300000
lifecycle: {autoCleanup: true}
dashboard: {attentionZones: simple}
defaults:
  runtime: tmux
  agent: claude-code
  orchestrator: {agent: opencode}
  worker: {agent: codex}
  notifiers: [desktop, hook]
projects:
  app:
    name: My App
    repo: o/app
    path: ~/app
    runtime: process
    agent: aider
    workspace: clone
    orchestrator: {agent: claude-code, agentConfig: {permissions: permissionless, model: big}}
    worker: {agent: codex, agentConfig: {model: small}}
    agentConfig: {permissions: skip, orchestratorModel: ignored-for-the-role-wins}
    agentRulesFile: RULES.md
    orchestratorRules: Plan first.
    orchestratorSessionStrategy: reuse
    opencodeIssueSessionStrategy: reuse
    scm: {plugin: github, webhook: {path: /x, secret_env_var: S}}
    reactions:
      approved-and-green: {auto: true, action: auto-merge}
  other:
    repo: o/other
    path: ~/other
    opencodeIssueSessionStrategy: delete
    agentConfig: {permissions: suggest, orchestratorModel: huge}
notifiers:
  hook: {plugin: webhook, url: "https://x.invalid"}
  chat: {plugin: slack, webhook: "https://s.invalid", channel: "#a"}
  own: {plugin: own, path: ./own.py}
  strange: {plugin: strange, package: "@acme/x"}
plugins:
  - {name: x, source: npm, package: "@acme/y"}
  - {name: z, source: local, path: ./z.py, enabled: true}
"""


def test_a_file_of_the_older_form_loads() -> None:
    document = load_document(OLDER, HOME="/h")
    config, app, other = document.config, document.config.projects["app"], document.config.projects["other"]
    assert config.defaults.agent == "codex"
    assert config.orchestrator.coordinator.agent == "opencode"
    assert (app.name, app.runtime, app.agent, app.workspace) == ("My App", "process", "codex", "clone")
    assert (app.agent_config.permissions, app.agent_config.model) == ("full", "small")
    coordinator = app.coordinator
    assert (coordinator.agent, coordinator.permissions, coordinator.model) == ("claude-code", "full", "big")
    assert (coordinator.rules, coordinator.conversation) == ("Plan first.", "continue")
    assert (other.agent_config.permissions, other.coordinator.model) == ("default", "huge")
    assert app.scm.options["webhook"] == {"path": "/x", "secretEnvVar": "S"}
    assert app.reactions["approved-and-green"].action == "merge"
    assert config.notifiers["hook"].options == {"webhookUrl": "https://x.invalid"}
    assert config.notifiers["chat"].options == {"webhookUrl": "https://s.invalid", "channel": "#a"}
    assert [p.path for p in config.plugins] == ["./z.py", "./own.py"]


@pytest.mark.parametrize(
    ("old_value", "expected"), [("reuse", "continue"), ("delete", "new"), ("ignore", "new"), ("kill-previous", "new")]
)
def test_the_old_key_for_the_last_conversation_is_mapped(old_value: str, expected: str) -> None:
    text = f"projects: {{a: {{path: x, orchestratorSessionStrategy: {old_value}}}}}"
    assert load_document(text).config.projects["a"].coordinator.conversation == expected
    assert not load_document(text).warnings


def test_each_key_without_a_meaning_gives_one_warning() -> None:
    warnings = load_document(OLDER, HOME="/h").warnings
    names = sorted(w.split(": ")[1] for w in warnings)
    assert names == sorted(
        {
            "lifecycle",
            "readyThresholdMs",
            "terminalPort",
            "directTerminalPort",
            "dashboard",
            "opencodeIssueSessionStrategy",
            "notifiers.strange.package",
            "plugins.package",
        }
    )


def test_snake_case_keys_are_accepted() -> None:
    snake = load_config_text("projects: {a: {path: x, default_branch: b, post_create: [c], agent_config: {model: m}}}")
    assert snake == load_config_text(
        "projects: {a: {path: x, defaultBranch: b, postCreate: [c], agentConfig: {model: m}}}"
    )


def test_a_key_in_two_spellings_is_refused() -> None:
    assert load_problems("project:\n  defaultBranch: a\n  default_branch: b\n") == [
        'ao.yaml:3: default_branch: given twice: "defaultBranch" in line 2 is the same'
    ]


def test_keys_of_a_project_may_be_at_the_top_level() -> None:
    flat = load_config_text("repo: o/r\nci: make test\nruntime: process\nagentRules: Be kind.\n")
    assert flat.project is not None
    assert (flat.project.repo, flat.project.runtime, flat.project.agent_rules) == ("o/r", "process", "Be kind.")


def test_a_command_in_one_text_is_split() -> None:
    profile = load_config_text("agents: {x: {command: \"cli --task '{{ prompt }}' -v\"}}").agents["x"]
    assert (profile.tool, profile.command) == ("command", ("cli", "--task", "{{prompt}}", "-v"))
