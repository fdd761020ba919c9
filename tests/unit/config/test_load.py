"""Loading: values, variables, older spellings, and what is said when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_orchestrator.config import values
from agent_orchestrator.config.load import Loaded, find, load, load_text
from agent_orchestrator.config.merge import rules
from agent_orchestrator.config.model import Config
from agent_orchestrator.errors import ConfigError

FILE = Path("ao.yaml")


def config(text: str, **environ: str) -> Config:
    return load_text(text, FILE, environ).config


def loaded(text: str, **environ: str) -> Loaded:
    return load_text(text, FILE, environ)


def refused(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(text, FILE, environ)
    return str(caught.value).splitlines()


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("30m", 1800), ("1h30m", 5400), ("500ms", 0.5), ("90", 90), (90, 90), ("2 days", 172800)],
)
def test_durations(text: Any, seconds: float) -> None:
    assert values.duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["soon", "", "30x", "-5s", "1e400", True, None, [], "9" * 5000, float("inf"), "30 minutos"]
)
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match=r"accepted|finite"):
        values.duration(text)


def test_sizes_money_and_pauses() -> None:
    assert (values.size("4g"), values.size("512m"), values.size("1.5 GiB"), values.size(7)) == (
        4 << 30,
        512 << 20,
        3 << 29,
        7,
    )
    assert values.money("5 USD") == values.money("$5") == values.money(5) == values.Amount(5.0, "USD")
    assert values.money("2M tokens") == values.Amount(2e6, "tokens")
    assert values.backoff("30s..10m") == values.Backoff(30, 600)
    assert values.escalate_after(2) == values.EscalateAfter(count=2)
    assert values.escalate_after("30m") == values.EscalateAfter(seconds=1800)
    for parse, wrong in ((values.size, "4 apples"), (values.money, "5 EUR"), (values.backoff, "10m..1s")):
        with pytest.raises(ValueError, match="accepted"):
            parse(wrong)


def test_the_documented_example_loads() -> None:
    made = loaded(EXAMPLE, SLACK_WEBHOOK_URL="https://hooks.example/x", MY_KEY="k", HOME="/h")
    assert made.warnings == ()
    project = made.config.projects["my-app"]
    check = project.ci["default"]
    assert (check.command, check.timeout, check.parallel, check.on) == ("make test", 1800.0, 2, "done")
    assert (project.copy_, project.symlinks, project.post_create) == ((".env",), ("node_modules",), ("npm ci",))
    assert project.docker.memory == 4 << 30
    assert project.budget.per_session == values.Amount(5.0)
    assert project.scm.options == {
        "apiUrl": "https://ghe.example/api",
        "webhook": {"secretEnvVar": "GITHUB_WEBHOOK_SECRET"},
    }
    assert made.config.notifiers["slack"].options == {"webhookUrl": "https://hooks.example/x"}
    assert made.config.agents["my-cli"].command[2] == "{{prompt}}"
    assert made.config.agents["my-cli"].screen.blocked == r"Allow\?"
    assert made.config.agents["my-cli"].env == {"MY_KEY": "k"}
    assert made.config.cluster is not None
    assert made.config.cluster.resources.memory == 2 << 30


def test_folders_of_a_sparse_checkout() -> None:
    made = loaded("project:\n  sparse: [apps/web/, 'apps/[id]', libs]\n").config.project
    assert made is not None and made.sparse == ("apps/web", "apps/[id]", "libs")


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
    made = config("projects: {a: {path: x, defaultBranch: 1.10, env: {N: 010, T: true, E: }}}").projects["a"]
    assert made.default_branch == "1.10"
    assert made.env == {"N": "010", "T": "true", "E": ""}


def test_checks_take_one_command_one_check_or_several() -> None:
    assert config("project: {ci: make test}").project.ci["default"].command == "make test"  # type: ignore[union-attr]
    several = config("project: {ci: {lint: ruff check, test: {command: pytest, on: commit}}}").project
    assert several is not None
    assert {name: (c.command, c.on) for name, c in several.ci.items()} == {
        "lint": ("ruff check", "done"),
        "test": ("pytest", "commit"),
    }


def test_an_empty_section_is_one_not_given() -> None:
    assert config("reactions:\nprojects:\n  a:\n    path: x\n    ci:\n") == config("projects: {a: {path: x}}")
    assert config("") == config("# nothing\n") == Config()


# -- variables ---------------------------------------------------------------------------------------------------------


def test_variables_expand() -> None:
    made = config('host: "${H}"\ndatabase: "${D:-postgresql}://h/$${X}"', H="0.0.0.0")
    assert (made.host, made.database) == ("0.0.0.0", "postgresql://h/${X}")


def test_an_unset_variable_leaves_an_option_out_and_is_wrong_elsewhere() -> None:
    made = loaded("notifiers:\n  slack: {webhookUrl: '${NOPE}'}\nproject: {env: {A: '${NOPE}', B: b}}\n")
    assert made.config.notifiers["slack"].options == {}
    assert made.config.project is not None
    assert made.config.project.env == {"B": "b"}
    assert [w.split(": ")[:2] for w in made.warnings] == [
        ["ao.yaml:2", "notifiers.slack.webhookUrl"],
        ["ao.yaml:3", "project.env.A"],
    ]
    assert refused("projects:\n  a:\n    path: ${NOPE}/x\n") == [
        "ao.yaml:3: projects.a.path: the variable NOPE is not set: "
        "set NOPE and restart the daemon (ao shutdown, ao start), or write $${NOPE} if it is meant literally"
    ]


# -- older spellings ---------------------------------------------------------------------------------------------------

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
    made = loaded(OLDER, HOME="/h")
    config, app, other = made.config, made.config.projects["app"], made.config.projects["other"]
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
    ("written", "meant"), [("reuse", "continue"), ("delete", "new"), ("ignore", "new"), ("kill-previous", "new")]
)
def test_the_older_forms_word_on_the_last_conversation_counts(written: str, meant: str) -> None:
    text = f"projects: {{a: {{path: x, orchestratorSessionStrategy: {written}}}}}"
    assert loaded(text).config.projects["a"].coordinator.conversation == meant
    assert not loaded(text).warnings


def test_what_has_no_meaning_gives_one_warning_each() -> None:
    warnings = loaded(OLDER, HOME="/h").warnings
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


def test_snake_case_is_camel_case() -> None:
    snake = config("projects: {a: {path: x, default_branch: b, post_create: [c], agent_config: {model: m}}}")
    assert snake == config("projects: {a: {path: x, defaultBranch: b, postCreate: [c], agentConfig: {model: m}}}")


def test_a_key_in_two_spellings_is_refused() -> None:
    assert refused("project:\n  defaultBranch: a\n  default_branch: b\n") == [
        'ao.yaml:3: default_branch: given twice: "defaultBranch" in line 2 is the same'
    ]


def test_keys_of_a_project_may_stand_at_the_top() -> None:
    made = config("repo: o/r\nci: make test\nruntime: process\nagentRules: Be kind.\n")
    assert made.project is not None
    assert (made.project.repo, made.project.runtime, made.project.agent_rules) == ("o/r", "process", "Be kind.")


def test_a_command_in_one_text_is_split() -> None:
    profile = config("agents: {x: {command: \"cli --task '{{ prompt }}' -v\"}}").agents["x"]
    assert (profile.tool, profile.command) == ("command", ("cli", "--task", "{{prompt}}", "-v"))


# -- reactions ---------------------------------------------------------------------------------------------------------


def test_a_rule_is_merged_field_by_field() -> None:
    made = {r.name: r for r in rules(config("reactions: {ci-failed: {retries: 3}}").reactions)}["ci-failed"]
    assert (made.retries, made.action, made.auto, made.escalate_after_count) == (3, "send-to-agent", True, 2)
    assert "{{errors}}" in made.message


def test_escalation_by_time_replaces_escalation_by_count() -> None:
    made = {r.name: r for r in rules(config("reactions: {ci-failed: {escalateAfter: 30m}}").reactions)}["ci-failed"]
    assert (made.escalate_after_count, made.escalate_after_seconds) == (None, 1800.0)
    none = {r.name: r for r in rules(config("reactions: {ci-failed: {escalateAfter: null}}").reactions)}["ci-failed"]
    assert (none.escalate_after_count, none.escalate_after_seconds) == (None, None)


def test_levels_of_rules() -> None:
    low = config("reactions: {ci-failed: {retries: 5, priority: info}}").reactions
    high = config("reactions: {ci-failed: {retries: 7}}").reactions
    made = {r.name: r for r in rules(low, high)}["ci-failed"]
    assert (made.retries, made.priority) == (7, "info")


def test_several_rules_for_one_trigger() -> None:
    text = "reactions:\n  - {trigger: label-added, condition: \"label == 'a'\"}\n  - {trigger: label_added, action: stop}\n"
    made = [r for r in rules(config(text).reactions) if r.trigger == "label-added"]
    assert [(r.name, r.action) for r in made] == [("label-added", "notify"), ("label-added-2", "stop")]
    named = rules(config("reactions: {tests: {trigger: label-added, action: stop}}").reactions)
    assert [(r.name, r.trigger) for r in named if r.action == "stop" and r.name == "tests"] == [
        ("tests", "label-added")
    ]


def test_a_command_reaction() -> None:
    made = rules(config("reactions: {agent-idle: {action: command, command: make tidy}}").reactions)
    assert next(r.command for r in made if r.name == "agent-idle") == ("sh", "-c", "make tidy")


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("defaults:\n  runtme: x\n", 'ao.yaml:2: defaults.runtme: unknown key: did you mean "runtime"?'),
        (
            "project:\n  default_brnch: x\n",
            'ao.yaml:2: project.default_brnch: unknown key: did you mean "defaultBranch"?',
        ),
        ("port: many\n", 'ao.yaml:1: port: "many" is not accepted: write a whole number'),
        ("port: 70000\n", "ao.yaml:1: port: 70000 is not accepted: write a number up to 65535"),
        ("projects: 3\n", "ao.yaml:1: projects: 3 is not accepted: write a mapping of keys"),
        (
            "projects: {a: {path: ., env: DB_PASSWORD=hunter22}}\n",
            "ao.yaml:1: projects.a.env: a text is not accepted: write a mapping of keys",
        ),
        ("- a\n", "ao.yaml:1: the file is not a mapping of keys: begin with a key such as projects:"),
        ("a: [\n", "ao.yaml:2: not valid YAML at column 1:"),
        ("a:\n\tb: 1\n", "ao.yaml:2: not valid YAML at column 1: found character '\\t' that cannot start any token"),
        ("port: 1\nport: 2\n", "ao.yaml:2: port: given twice, first in line 1"),
        ("a: &a [*a]\n", "ao.yaml:1: a.0: contains itself"),
        (
            "a: !!python/object:os.system x\n",
            'ao.yaml:1: a: the tag "tag:yaml.org,2002:python/object:os.system" is not',
        ),
        ("? [a]\n: b\n", "ao.yaml:1: a key is a list or a mapping"),
        ("reactions:\n  ci-faild: {}\n", 'ao.yaml:2: reactions.ci-faild: "ci-faild" is no trigger'),
        (
            "reactions:\n  ci-failed:\n    message: '{{erors}}'\n",
            "ao.yaml:3: reactions.ci-failed.message: the template '{{erors}}' names the unknown variable erors: did you mean errors?",
        ),
        (
            "reactions:\n  ci-failed:\n    message: '{{ x'\n",
            "ao.yaml:3: reactions.ci-failed.message: the template '{{ x' is wrong",
        ),
        (
            "reactions:\n  ci-failed:\n    message: '{{ errors|nofilter }}'\n",
            "ao.yaml:3: reactions.ci-failed.message: the template '{{ errors|nofilter }}' is wrong",
        ),
        (
            "reactions:\n  ci-failed:\n    condition: 'label =='\n",
            "ao.yaml:3: reactions.ci-failed.condition: the condition 'label ==' is wrong",
        ),
        (
            "reactions:\n  ci-failed:\n    condition: 'lable == 1'\n",
            "ao.yaml:3: reactions.ci-failed.condition: the condition 'lable == 1' names the unknown variable lable: did you mean label?",
        ),
        (
            "reactions:\n  ci-failed:\n    action: send\n",
            'ao.yaml:3: reactions.ci-failed.action: "send" is not accepted',
        ),
        (
            "project:\n  branchPattern: 'x/{{nam}}'\n",
            "ao.yaml:2: project.branchPattern: the template 'x/{{nam}}' names the unknown variable nam: did you mean name?",
        ),
        ("agents:\n  x: {tool: command}\n", "ao.yaml:2: agents.x: tool command needs a command"),
        (
            "agents:\n  x: {command: ['{{promt}}']}\n",
            "ao.yaml:2: agents.x.command.0: the template '{{promt}}' names the unknown variable promt: did you mean prompt?",
        ),
        (
            "agents:\n  x: {command: [a], screen: {busy: '('}}\n",
            'ao.yaml:2: agents.x.screen.busy: "(" is no regular expression',
        ),
        ("agents:\n  x: {command: a && b}\n", "ao.yaml:2: command: no shell reads &&"),
        ("agents:\n  - tool: codex\n", "ao.yaml:2: agents: the item has no id"),
        ("defaults: {runtime: tmx}\n", 'ao.yaml:1: defaults.runtime: there is no runtime "tmx": did you mean "tmux"?'),
        ("defaults: {agent: cluade-code}\n", 'ao.yaml:1: defaults.agent: there is no agent "cluade-code"'),
        ("project:\n  copy: [../../secret]\n", 'ao.yaml:2: project.copy.0: "../../secret" is not a path inside'),
        ("project:\n  sparse: [../x]\n", 'ao.yaml:2: project.sparse.0: "../x" is not a path inside'),
        (
            "project:\n  sparse: packages/*\n",
            'ao.yaml:2: project.sparse.0: "packages/*" is no folder of the repository',
        ),
        ("project:\n  sparse: [a, .]\n", 'ao.yaml:2: project.sparse.1: "." is no folder of the repository'),
        ("project:\n  sparse: ['a\\b']\n", 'ao.yaml:2: project.sparse.0: "a\\b" is no folder of the repository'),
        ("project:\n  sparse: [a//b]\n", 'ao.yaml:2: project.sparse.0: "a//b" is no folder of the repository'),
        ("project:\n  sparse: {a: b}\n", "ao.yaml:2: project.sparse: "),
        ("project:\n  symlinks: /etc\n", 'ao.yaml:2: project.symlinks.0: "/etc" is not a path inside'),
        ("projects:\n  ../x: {path: y}\n", 'ao.yaml:2: projects.../x: "../x" is no name'),
        ("projects:\n  a: {path: x}\n  b: {}\n", "ao.yaml:3: projects.b.path: is missing"),
        ("project:\n  ci: {timeout: 3}\n", "ao.yaml:2: project.ci.default.command: is missing"),
        ("project:\n  env: {'A=B': c}\n", 'ao.yaml:2: project.env.A=B: "A=B" is no name of an environment variable'),
        (
            "project:\n  agentConfig: {permissions: ful}\n",
            'ao.yaml:2: project.agentConfig.permissions: "ful" is not accepted',
        ),
        ("project:\n  budget: {perDay: 5 EUR}\n", 'ao.yaml:2: project.budget.perDay: "5 EUR" is no amount'),
    ],
)
def test_errors_name_line_key_and_remedy(text: str, line: str) -> None:
    assert refused(text)[0].startswith(line)


def test_all_errors_are_told_at_once_in_order() -> None:
    lines = refused("port: x\ndefaults:\n  agnt: y\nreactions:\n  ci-failed: {retries: -1}\n")
    assert [line.split(": ")[0] for line in lines] == ["ao.yaml:1", "ao.yaml:3", "ao.yaml:5"]


def test_one_error_has_its_remedy_apart() -> None:
    with pytest.raises(ConfigError) as caught:
        config("prot: 3\n")
    assert caught.value.remedy == 'did you mean "port"?'


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: b\nname: caf\xe9\n")
    for path, what in (
        (tmp_path / "none.yaml", "is not there"),
        (tmp_path, "cannot be read"),
        (latin, ":2: not UTF-8"),
    ):
        with pytest.raises(ConfigError, match=what):
            load(path, {})


# -- hostile documents -------------------------------------------------------------------------------------------------


def test_an_alias_bomb_is_refused_quickly() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    assert "more than 20000 values" in refused(bomb)[0]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1500,
        "{a: " * 3000,
        "a: " + "[" * 200 + "]" * 200,
        "reactions: {ci-failed: {message: '{{" + "(" * 5000 + "'}}",
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert refused(text)


def test_constants_in_templates_are_not_computed() -> None:
    assert "pow" in refused("reactions: {ci-failed: {message: '{{ 9**9**9**9 }}'}}")[0]


def test_unicode_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "ö.yaml"
    path.write_bytes("\ufeffproject: {agentRules: 'Grüße 🎉'}".encode())
    project = load(path, {}).config.project
    assert project is not None
    assert project.agent_rules == "Grüße 🎉"


def test_merge_keys_and_aliases() -> None:
    made = config("projects:\n  a: &a {path: x, defaultBranch: main}\n  b: {<<: *a, path: y}\n")
    assert (made.projects["b"].path, made.projects["b"].default_branch) == ("y", "main")


_KEYS = st.sampled_from(
    [
        *Config.model_json_schema()["properties"],
        "ci-failed",
        "id",
        "config",
        "name",
        "path",
        "worker",
        "coordinator",
        "trigger",
        "agentConfig",
        "ci",
        "reactions",
        "env",
        "command",
        "message",
        "webhook",
        "reaction_handlers",
        "<<",
        "agents",
        "tracker",
    ]
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["${X}", "30m", "{{", "tmux"]),
)
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=20,
)


def _never_anything_else(text: str) -> None:
    try:
        load_text(text, FILE, {"HOME": "/h"})
    except ConfigError as error:
        assert str(error).startswith("ao.yaml:")


@settings(deadline=None)
@given(st.text())
def test_arbitrary_text_is_loaded_or_refused(text: str) -> None:
    _never_anything_else(text)


@settings(deadline=None)
@given(st.text(alphabet="abc:{}[]-&*!|>'\"%@`#?, \n\t<~0.$"))
def test_arbitrary_yaml_is_loaded_or_refused(text: str) -> None:
    _never_anything_else(text)


@settings(deadline=None)
@given(st.dictionaries(_KEYS, _TREES, max_size=5))
def test_arbitrary_structures_are_loaded_or_refused(tree: dict[str, Any]) -> None:
    _never_anything_else(json.dumps(tree))


# -- discovery ---------------------------------------------------------------------------------------------------------


def test_discovery(tmp_path: Path) -> None:
    user, home = tmp_path / "user", tmp_path / "user" / ".ao"
    deep = user / "repo" / "src" / "deep"
    deep.mkdir(parents=True)
    home.mkdir()
    environ = {"HOME": str(user)}
    (tmp_path / "agent-orchestrator.yaml").write_text("")
    assert find(deep, environ, home) is None
    (home / "config.yaml").write_text("")
    assert find(deep, environ, home) == home / "config.yaml"
    (user / "repo" / "agent-orchestrator.yml").write_text("")
    assert find(deep, environ, home) == user / "repo" / "agent-orchestrator.yml"
    (user / "other.yaml").write_text("")
    assert find(deep, {**environ, "AO_CONFIG": "~/other.yaml"}, home) == user / "other.yaml"
    with pytest.raises(ConfigError, match="AO_CONFIG"):
        find(deep, {**environ, "AO_CONFIG": "nowhere.yaml"}, home)


def test_a_file_in_a_workspace_is_never_found(tmp_path: Path) -> None:
    user, home = tmp_path / "user", tmp_path / "user" / ".ao"
    real, moved = home / "worktrees" / "app" / "fix", tmp_path / "elsewhere" / "fix"
    repo = user / "repo"
    for folder in (real, moved, repo / ".worktrees"):
        folder.mkdir(parents=True)
    (repo / ".worktrees" / "fix").symlink_to(real)
    (real / "agent-orchestrator.yaml").write_text("")
    (moved / "agent-orchestrator.yaml").write_text("")
    (repo / "agent-orchestrator.yaml").write_text("")
    environ = {"HOME": str(user)}
    assert find(real, environ, home) is None
    assert find(moved, environ, home, [tmp_path / "elsewhere"]) is None
    assert find(repo / ".worktrees" / "fix", environ, home) == repo / "agent-orchestrator.yaml"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: " + "[a," * 5_000, "nested too deeply"),
        ("".join(f"k{number}: v\n" for number in range(20_000)), "20000 keys and items"),
        ("- " * 20_000, "20000 keys and items"),
        ("x" * (1 << 19), "is larger than"),
    ],
)
def test_a_file_that_would_keep_the_daemon_busy_is_refused_at_once(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load(file, {})


@pytest.mark.parametrize("number", ["0x" + "f" * 5_000, "9" * 4_000, "-0b" + "1" * 20_000])
@pytest.mark.parametrize("key", ["port", "ports.base", "defaults.checkpoint", "maxTotal"])
def test_a_number_without_an_end_is_refused_in_a_line(key: str, number: str) -> None:
    """Nothing counts with it, and no error tries to spell it out: Python refuses to, which would keep the daemon from starting."""
    first, *rest = key.split(".")
    said = refused(f"{first}: " + "".join(f"{{{one}: " for one in rest) + number + "}" * len(rest))
    assert said and all(len(line) < 300 for line in said)


@pytest.mark.parametrize("number", ["9" * 4_000, "9" * 90, "1000000000000000000000"])
@pytest.mark.parametrize(
    "key",
    [
        *("reactions.ci-failed.retries", "reactions.ci-failed.approvalAfter", "reactions.ci-failed.escalateAfter"),
        *("reactions.ci-failed.delay", "reactions.ci-failed.backoff", "reactions.ci-failed.timeout", "docker.cpus"),
        *("docker.memory", "maxParallelAgents", "review.maxRounds", "fix.parallel", "cluster.resources.cpus"),
        *("orchestrator.planner.maxTasks", "orchestrator.coordinator.maxSessions", "notifications.digest"),
    ],
)
def test_nothing_is_counted_without_an_end(key: str, number: str) -> None:
    first, *rest = key.split(".")
    [said] = refused(f"{first}: " + "".join(f"{{{one}: " for one in rest) + number + "}" * len(rest))
    assert key in said and len(said) < 300, said


@pytest.mark.parametrize("part", [*"`$;|&<>\"'\\#*?()", "\n", "\x1b", "\u2028"])
def test_workspaces_are_in_no_folder_that_a_shell_or_tmux_would_interpret(part: str) -> None:
    written = json.dumps(f"trees {part}x")
    [said] = refused(f"project: {{worktreeDir: {written}}}")
    assert said.startswith("ao.yaml:1: project.worktreeDir: ") and "a shell or tmux would interpret" in said
    [said] = refused("project: {worktreeDir: '${WHERE}/trees'}", WHERE=f"/tmp/{part}x")
    assert "a shell or tmux would interpret" in said


def test_workspaces_are_in_any_other_folder() -> None:
    for folder in ("../trees of mine", "~/.worktrees", "~me/träume", "/a-b_c/d.e,f+g@h=i/[1]{2}%"):
        found = config(f"project: {{worktreeDir: {json.dumps(folder)}}}").project
        assert found and found.worktree_dir == folder
