"""Values of a configuration: durations, sizes, money, checks, variables."""

from __future__ import annotations

from typing import Any

import pytest

from agent_orchestrator.config import units
from agent_orchestrator.config.model import Config
from tests.unit.config.load.documents import load_config_text, load_document, load_problems


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("30m", 1800), ("1h30m", 5400), ("500ms", 0.5), ("90", 90), (90, 90), ("2 days", 172800)],
)
def test_durations_are_parsed(text: Any, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["soon", "", "30x", "-5s", "1e400", True, None, [], "9" * 5000, float("inf"), "30 minutos"]
)
def test_invalid_durations_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"accepted|finite"):
        units.parse_duration(text)


def test_sizes_money_and_pauses_are_parsed() -> None:
    assert (units.parse_size("4g"), units.parse_size("512m"), units.parse_size("1.5 GiB"), units.parse_size(7)) == (
        4 << 30,
        512 << 20,
        3 << 29,
        7,
    )
    assert units.parse_amount("5 USD") == units.parse_amount("$5") == units.parse_amount(5) == units.Amount(5.0, "USD")
    assert units.parse_amount("2M tokens") == units.Amount(2e6, "tokens")
    assert units.parse_backoff("30s..10m") == units.Backoff(30, 600)
    assert units.parse_escalate_after(2) == units.EscalateAfter(count=2)
    assert units.parse_escalate_after("30m") == units.EscalateAfter(seconds=1800)
    for parse, wrong in (
        (units.parse_size, "4 apples"),
        (units.parse_amount, "5 EUR"),
        (units.parse_backoff, "10m..1s"),
    ):
        with pytest.raises(ValueError, match="accepted"):
            parse(wrong)


def test_the_documented_example_loads() -> None:
    document = load_document(EXAMPLE, SLACK_WEBHOOK_URL="https://hooks.example/x", MY_KEY="k", HOME="/h")
    assert document.warnings == ()
    project = document.config.projects["my-app"]
    check = project.ci["default"]
    assert (check.command, check.timeout, check.parallel, check.on) == ("make test", 1800.0, 2, "done")
    assert (project.copy_, project.symlinks, project.post_create) == ((".env",), ("node_modules",), ("npm ci",))
    assert project.docker.memory == 4 << 30
    assert project.budget.per_session == units.Amount(5.0)
    assert project.scm.options == {
        "apiUrl": "https://ghe.example/api",
        "webhook": {"secretEnvVar": "GITHUB_WEBHOOK_SECRET"},
    }
    assert document.config.notifiers["slack"].options == {"webhookUrl": "https://hooks.example/x"}
    assert document.config.agents["my-cli"].command[2] == "{{prompt}}"
    assert document.config.agents["my-cli"].screen.blocked == r"Allow\?"
    assert document.config.agents["my-cli"].env == {"MY_KEY": "k"}
    assert document.config.cluster is not None
    assert document.config.cluster.resources.memory == 2 << 30


def test_folders_of_a_sparse_checkout_are_normalized() -> None:
    project = load_document("project:\n  sparse: [apps/web/, 'apps/[id]', libs]\n").config.project
    assert project is not None and project.sparse == ("apps/web", "apps/[id]", "libs")


EXAMPLE = r"""
port: 3000
defaults: {runtime: auto, agent: claude-code, workspace: worktree, tracker: auto, scm: auto, notifiers: [desktop]}
projects:
  my-app:
    repo: owner/my-app
    path: ~/my-app
    defaultBranch: main
    sessionPrefix: app
    tracker: {plugin: linear, teamId: T}
    scm: {plugin: github, apiUrl: "https://ghe.example/api", webhook: {secretEnvVar: GITHUB_WEBHOOK_SECRET}}
    ci: {command: make test, timeout: 30m, parallel: 2, on: done}
    symlinks: [node_modules]
    copy: [.env]
    postCreate: [npm ci]
    ports: {base: 4000, count: 5}
    env: {NAME: value}
    worktreeDir: ../trees
    branchPattern: feature/{{name}}
    agentRules: |
      Run the tests before you finish.
    agentConfig: {model: m, permissions: auto-edit, mode: tui}
    budget: {perSession: 5 USD, perDay: 50 USD}
    docker: {image: i, dockerfile: d, network: allowlist, cpus: 2, memory: 4g}
    sandbox: none
agents:
  frontend-specialist: {tool: claude-code, runtime: tmux, skills: [react], filters: {labels: [ui], excludeLabels: [backend]}}
  my-cli:
    tool: command
    command: [my-agent-cli, --task, "{{prompt}}", --worktree, "{{workspacePath}}", --branch, "{{branch}}"]
    prompt: argument
    resume: [my-agent-cli, --continue]
    screen: {ready: '^> $', busy: 'esc to interrupt', blocked: 'Allow\?'}
    env: {MY_KEY: "${MY_KEY}"}
orchestrator: {maxParallelAgents: 4, autoAssign: false, coordinator: {agent: claude-code, auto: false}}
notifiers: {slack: {plugin: slack, webhookUrl: "${SLACK_WEBHOOK_URL}"}}
notificationRouting: {urgent: [desktop, slack], action: [desktop], warning: [slack], info: []}
power: {preventIdleSleep: true}
plugins: [{path: ./my_plugin.py}]
database: sqlite
cluster: {address: auto, labels: {gpu: yes}, resources: {cpus: 1, memory: 2g}}
"""


def test_numbers_stay_as_written_where_text_is_meant() -> None:
    project = load_config_text("projects: {a: {path: x, defaultBranch: 1.10, env: {N: 010, T: true, E: }}}").projects[
        "a"
    ]
    assert project.default_branch == "1.10"
    assert project.env == {"N": "010", "T": "true", "E": ""}


def test_checks_are_given_as_one_command_one_check_or_several() -> None:
    assert load_config_text("project: {ci: make test}").project.ci["default"].command == "make test"  # type: ignore[union-attr]
    several = load_config_text("project: {ci: {lint: ruff check, test: {command: pytest, on: commit}}}").project
    assert several is not None
    assert {name: (c.command, c.on) for name, c in several.ci.items()} == {
        "lint": ("ruff check", "done"),
        "test": ("pytest", "commit"),
    }


def test_an_empty_section_equals_an_absent_one() -> None:
    assert load_config_text("reactions:\nprojects:\n  a:\n    path: x\n    ci:\n") == load_config_text(
        "projects: {a: {path: x}}"
    )
    assert load_config_text("") == load_config_text("# nothing\n") == Config()


def test_variables_expand() -> None:
    expanded = load_config_text('host: "${H}"\ndatabase: "${D:-postgresql}://h/$${X}"', H="0.0.0.0")
    assert (expanded.host, expanded.database) == ("0.0.0.0", "postgresql://h/${X}")


def test_an_unset_variable_omits_an_option_and_is_an_error_elsewhere() -> None:
    document = load_document("notifiers:\n  slack: {webhookUrl: '${NOPE}'}\nproject: {env: {A: '${NOPE}', B: b}}\n")
    assert document.config.notifiers["slack"].options == {}
    assert document.config.project is not None
    assert document.config.project.env == {"B": "b"}
    assert [w.split(": ")[:2] for w in document.warnings] == [
        ["ao.yaml:2", "notifiers.slack.webhookUrl"],
        ["ao.yaml:3", "project.env.A"],
    ]
    assert load_problems("projects:\n  a:\n    path: ${NOPE}/x\n") == [
        "ao.yaml:3: projects.a.path: the variable NOPE is not set: "
        "set NOPE and restart the daemon (ao shutdown, ao start), or write $${NOPE} if it is meant literally"
    ]
