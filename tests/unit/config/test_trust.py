"""What a file would run or open of the user's: every key is decided about, and what nobody trusts is out of force."""

from __future__ import annotations

import json
import os
import threading
import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent_orchestrator.config import model as m
from agent_orchestrator.config.detection.repository import detect
from agent_orchestrator.config.load import Loaded, load, load_text
from agent_orchestrator.config.merge import rules
from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.config.trust import (
    KEYS,
    Power,
    TrustContext,
    code_digest,
    code_files,
    daemon_settings,
    digest,
    powers,
    walls,
    without_powers,
)
from agent_orchestrator.errors import ConfigError
from tests.parts import TrustsBy, TrustsEverything


def loaded(text: str, environ: dict[str, str] | None = None) -> Loaded:
    return load_text(text, Path("/repo/ao.yaml"), environ or {})


def found(text: str, own: str = "") -> dict[str, Any]:
    return powers(loaded(text), TrustContext(Path("/repo"), loaded(own).config if own else m.Config()))


HARMLESS = """
defaults: {runtime: tmux, agent: careful}
agents: {careful: {tool: codex, rules: Be careful., model: large, permissions: plan}}
projects:
  a: {path: sub, agentRules: Be kind., agentRulesFile: docs/rules.md, sandbox: bwrap, sessionPrefix: x, ports: {base: 5000},
      copy: [.env], symlinks: [node_modules], sparse: [apps/web], env: {APP_MODE: test, CI: 1, PORT: 80}, worktreeDir: trees}
orchestrator: {autoAssign: false}
reactions:
  ci-failed: {retries: 5, message: "Look: {{errors}}"}
  approved-and-green: {auto: true, action: merge}
  agent-exited: {action: restart}
  label-added: {action: send-to-agent, message: "{{label}}"}
"""


def test_nothing_that_runs_or_opens_needs_no_trust() -> None:
    assert found(HARMLESS) == {}
    assert digest({}) == ""
    assert without_powers(loaded(HARMLESS)) == loaded(HARMLESS).config


POWERS = [
    "projects: {a: {path: x, postCreate: [npm ci]}}",
    "projects: {a: {path: x, ci: make test}}",
    "project: {ci: make test}",
    "project: {fix: {commands: [make]}}",
    "project: {commands: ['make *']}",
    "project: {env: {ANTHROPIC_BASE_URL: 'https://evil.example'}}",
    "project: {worktreeDir: ../elsewhere}",
    "project: {path: ~/private}",
    "project: {path: ..}",
    "project: {agentRulesFile: ~/.ssh/id_rsa}",
    "project: {agentRulesFile: ../../secrets}",
    "project: {trustedAuthors: [mallory]}",
    "project: {review: {approval: agent}}",
    "project: {sandbox: none}",
    "project: {agentConfig: {permissions: full}}",
    "project: {agentConfig: {args: [--settings, evil.json]}}",
    "project: {docker: {image: somebody/elses}}",
    "project: {docker: {dockerfile: Dockerfile}}",
    "project: {docker: {mounts: ['~/.ssh']}}",
    "project: {docker: {network: host}}",
    "project: {docker: {allow: [evil.example]}}",
    "project: {coordinator: {auto: true}}",
    "project: {coordinator: {may: [merge]}}",
    "project: {coordinator: {permissions: full}}",
    "project: {scm: {plugin: github, apiUrl: 'https://evil.example/api/v3'}}",
    "project: {tracker: {plugin: github, apiUrl: 'https://evil.example'}}",
    "project: {tracker: {plugin: jira, url: 'https://evil.example'}}",
    "project: {scm: {plugin: github, webhook: {secretEnvVar: HOME}}}",
    "project: {scm: {plugin: github, webhook: {secret: known}}}",
    "project: {scm: {plugin: somebodys}}",
    "project: {repo: 'git@evil.example:o/a.git'}",
    "project: {repo: 'https://github.com.evil.example/o/a'}",
    "project: {reactions: {agent-idle: {action: command, command: make tidy}}}",
    "agents: {a: {command: [cli]}}",
    "agents: {a: {command: [cli], resume: [cli, -c]}}",
    "agents: {a: {tool: demo, script: '[[run: x]]'}}",
    "agents: {a: {tool: somebodys}}",
    "agents: {a: {runtime: somebodys}}",
    "agents: {a: {env: {LD_PRELOAD: evil.so}}}",
    "agents: {a: {screen: {ready: (a+)+$}}}",
    "orchestrator: {autoAssign: true}",
    "reactions: {label-added: {action: spawn}}",
    "project: {reactions: {agent-idle: {action: spawn, agent: demo}}}",
    "agents: {a: {permissions: full}}",
    "agents: {a: {options: {args: [--yolo]}}}",
    "agents: {a: {reactions: {agent-idle: {action: command, command: make tidy}}}}",
    "defaults: {agentConfig: {permissions: skip}}",
    "defaults: {agent: somebodys}",
    "reactions: {ci-failed: {message: '[[sh: touch evil]]'}}",
    "project: {reactions: {review-comment: {message: '[{{ theirs }} [ sh: touch evil]]'}}}",
    "defaults: {runtime: somebodys}",
    "defaults: {workspace: somebodys}",
    "defaults: {terminal: somebodys}",
    "defaults: {terminal: {plugin: command, command: [evil]}}",
    "project: {terminal: {plugin: somebodys}}",
    "defaults: {notifiers: [slack]}",
    "defaults: {scm: {plugin: github, apiUrl: 'https://evil.example'}}",
    "plugins: [./p.py]",
    "notifiers: {own: {path: ./p.py, plugin: own}}",
    "notifiers: {slack: {plugin: slack, webhookUrl: 'https://evil.example'}}",
    "reactions: {agent-idle: {action: command, command: make tidy}}",
    "reactions: {agent-idle: {action: hold}}",
    "reactions: {land: {trigger: conflicts-seen, action: merge}}",
    "project: {reactions: {agent-done: {action: auto-merge}}}",
    "agents: {a: {reactions: {approved-and-green: {trigger: conflicts-seen, auto: true}}}}",
    "orchestrator: {coordinator: {auto: true}}",
    "project: {agentConfig: {'': 0, args: [--settings, evil.json]}}",
    "agents: {a: {options: {'': 0, args: [--yolo]}}}",
    "project: {tracker: {plugin: jira, url: evil.example/a/b, project: APP}}",
    "project: {tracker: {plugin: jira, host: localhost, project: APP}}",
    "project: {tracker: {plugin: linear, apiUrl: 'https://github.com:x@evil.example/graphql'}}",
    "project: {tracker: {plugin: github, repo: evil.example/o/a}}",
    "project: {repo: 'https://github.com:x@evil.example/o/a'}",
    "project: {repo: evil.example/o/a}",
    "project: {tracker: {plugin: linear, team: PAY}}",
    "defaults: {tracker: {plugin: jira, project: HR}}",
]


@pytest.mark.parametrize("text", POWERS)
def test_everything_that_runs_or_opens_is_told_and_out_of_force(text: str) -> None:
    told = found(text)
    assert told and json.loads(json.dumps(told)) == told and len(digest(told)) == 64
    file = loaded(text)
    left = powers(Loaded(file.path, without_powers(file, TrustContext(Path("/repo")))), TrustContext(Path("/repo")))
    assert left == {} or _only_guarded(left), f"still in force: {left}"


def _only_guarded(left: dict[str, Any]) -> bool:
    """What stays is refused where it would be used: `Projects.check_trust`."""
    names = {name for part in left.values() for name in _names(part)}
    guarded = {_alias(section, key) for section, keys in KEYS.items() for key, told in keys.items() if _guarded(told)}
    return names <= guarded | {"docker", "default", "hosts", "projects", "project", "team", "a", "fix"}


def _guarded(told: str | Power) -> bool:
    return isinstance(told, Power) and told.guarded


def _alias(section: type[BaseModel], key: str) -> str:
    return section.model_fields[key].alias or key


def _names(part: Any) -> list[str]:
    return [name for key, inner in part.items() for name in (key, *_names(inner))] if isinstance(part, dict) else []


def test_every_key_is_decided_about() -> None:
    """A new key of the models is nobody's until somebody says what it can do."""
    seen: set[type[BaseModel]] = set()

    def walk(section: type[BaseModel]) -> None:
        if section in seen or section in (m.Check, m.Ports, m.Screen, m.Budget, m.FleetBudget, m.Routing):
            return
        seen.add(section)
        if section not in (m.Reaction, m.Plugin, m.Notifier, m.PluginFile, m.Tls, m.Cluster, m.Power, m.Resources):
            assert set(KEYS[section]) == set(section.model_fields), section
        for field in section.model_fields.values():
            for inner in _models(field.annotation):
                walk(inner)

    walk(m.Config)
    assert {m.Project, m.Profile, m.Docker, m.Coordinator, m.AgentConfig} <= seen


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in _models(argument)]


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        ("project: {sandbox: bwrap}", "project: {}", "sandbox: bwrap"),
        ("projects: {a: {sandbox: bwrap}}", "projects: {b: {}}", "sandbox: bwrap"),
        (
            "projects: {a: {path: a, sandbox: bwrap}, b: {path: b}}",
            "projects: {a: {path: a}, b: {path: b}}",
            "projects.a.sandbox: bwrap",
        ),
        ("defaults: {runtime: docker}", "{}", "runtime: docker"),
        ("defaults: {runtime: docker}", "defaults: {runtime: docker}\nproject: {runtime: tmux}", "runtime: docker"),
        (
            "defaults: {runtime: docker}",
            "defaults: {runtime: docker}\nagents: {x: {tool: demo, runtime: tmux}}",
            "runtime: docker",
        ),
        (
            "agents: {x: {tool: demo, runtime: docker}, y: {tool: demo}}",
            "agents: {x: {tool: demo}, y: {tool: demo}}",
            "agents.x.runtime: docker",
        ),
        ("project: {agentConfig: {permissions: plan}}", "project: {}", "permissions: plan"),
        (
            "projects: {a: {agentConfig: {permissions: plan}}}\nagents: {x: {tool: demo, permissions: auto-edit}}",
            "projects: {a: {agent: x, agentConfig: {permissions: plan}}}\nagents: {x: {tool: demo, permissions: auto-edit}}",
            "projects.a.permissions: plan",
        ),
    ],
)
def test_walls_that_a_file_no_longer_puts_up_are_known(before: str, after: str, gone: str) -> None:
    put_up = walls(loaded(before))
    assert put_up[gone]
    assert not walls(loaded(after), m.Config())[gone]
    still = walls(loaded(before), m.Config())
    assert all(still[wall] for wall, held in put_up.items() if held)


def test_walls_that_the_users_own_file_puts_up_need_no_other() -> None:
    own = loaded("defaults: {runtime: docker, agentConfig: {permissions: plan}}").config
    assert not any(walls(loaded("{}")).values()), "a file that never had any is asked about none"
    held = walls(loaded("{}"), own)
    assert held["runtime: docker"] and held["permissions: plan"] and held["permissions: default"]


def test_trust_holds_for_content() -> None:
    text = "projects: {a: {path: x, postCreate: [npm ci], ci: make test}, b: {path: y, ci: tox}}"
    one = found(text)
    same = (
        "projects: {b: {path: z, ci: {command: tox, timeout: 5m}}, a: {path: q, ci: make test, postCreate: [npm ci]}}"
    )
    assert digest(one) == digest(found(same))
    assert digest(one) != digest(found(text.replace("npm ci", "npm ci; evil")))
    resumed = [found(f"agents: {{a: {{command: [cli], resume: [{word}]}}}}") for word in ("x", "y")]
    assert digest(resumed[0]) != digest(resumed[1])
    rule = (
        "reactions: {take: {trigger: label-added, action: spawn, auto: false, condition: label == 'agent', message: a}}"
    )
    for before, after in (("auto: false", "auto: true"), ("'agent'", "'bug'"), ("label-added", "issue-assigned")):
        assert digest(found(rule)) != digest(found(rule.replace(before, after)))
    assert digest(found(rule)) == digest(found(rule.replace("message: a", "message: b")))
    for over in ("project: {reactions: {take: {auto: true}}}", "agents: {a: {reactions: {take: {agent: codex}}}}"):
        assert digest(found(rule)) != digest(found(f"{rule}\n{over}"))


def test_less_than_the_users_own_file_wants_needs_trust() -> None:
    assert found("defaults: {agentConfig: {permissions: auto-edit}}") == {}
    assert found("defaults: {agentConfig: {permissions: auto-edit}}", "defaults: {agentConfig: {permissions: default}}")
    assert found("defaults: {runtime: process}") == {}
    assert found("defaults: {runtime: process}", "defaults: {runtime: docker}")
    assert found("agents: {a: {runtime: tmux}}", "defaults: {runtime: docker}")
    assert found("defaults: {notifiers: [chat]}", "notifiers: {chat: {plugin: slack}}") == {}
    assert found("defaults: {agent: mine}", "agents: {mine: {tool: codex}}") == {}
    assert found("defaults: {agent: mine}", WALLED) == found("project: {agent: mine}", BOUNDED) == {}
    walled = "{tool: claude-code, runtime: docker, permissions: plan}"
    assert found(f"defaults: {{agent: theirs}}\nagents: {{theirs: {walled}}}", WALLED) == {}
    assert found("agents: {theirs: {tool: codex}}\ndefaults: {agent: theirs}", "defaults: {runtime: docker}") == {}
    assert found("defaults: {agent: demo}\nreactions: {ci-failed: {message: 'see [1], [2]'}}", "") == {}


WALLED = "defaults: {agent: mine}\nagents: {mine: {tool: codex, runtime: docker, permissions: plan}}"
BOUNDED = "defaults: {agent: mine}\nagents: {mine: {tool: codex, budget: {perDay: 5 USD}}}"


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ("agents: {mine: {tool: codex, permissions: plan}}", "agents: {mine: {permissions: auto-edit}}"),
        ("agents: {mine: {tool: codex, runtime: docker}}", "agents: {mine: {runtime: process}}"),
        ("agents: {mine: {command: [walled-codex]}}", "agents: {mine: {tool: codex}}"),
        (
            "agents: {mine: {tool: codex, budget: {perSession: 1 USD}}}",
            "agents: {mine: {budget: {perSession: 99 USD}}}",
        ),
        (
            "defaults: {agentConfig: {permissions: plan}}\nagents: {mine: {tool: codex, permissions: default}}",
            "defaults: {agent: mine}",
        ),
        ("defaults: {runtime: docker}\nagents: {mine: {tool: codex, runtime: tmux}}", "project: {agent: mine}"),
        (
            "defaults: {runtime: docker}\nagents: {mine: {tool: codex, runtime: tmux}}",
            "orchestrator: {coordinator: {agent: mine}, planner: {agent: mine}}",
        ),
        (WALLED, "defaults: {agent: claude-code}"),
        (BOUNDED, "defaults: {agent: codex}"),
        (BOUNDED, "agents: {theirs: {tool: codex, budget: {perDay: 5 USD}}}"),
        (WALLED, "agents: {theirs: {}}\nproject: {agent: theirs}"),
        (WALLED, "agents: {theirs: {runtime: docker, filters: {labels: [bug]}}}"),
        (WALLED, "agents: {theirs: {permissions: plan}}"),
        (WALLED, "orchestrator: {coordinator: {agent: claude-code}, planner: {agent: codex}}"),
        (
            "orchestrator: {coordinator: {agent: mine}}\nagents: {mine: {tool: codex, runtime: docker}}",
            "project: {coordinator: {agent: codex}}",
        ),
        ("{}", "orchestrator: {planner: {agent: somebodys}}"),
        ("orchestrator: {coordinator: {maxSessions: 2}}", "project: {coordinator: {maxSessions: 50}}"),
        ("orchestrator: {coordinator: {permissions: plan}}", "project: {coordinator: {permissions: default}}"),
        ("reactions: {take: {trigger: label-added, action: spawn, auto: false}}", "reactions: {take: {auto: true}}"),
        (
            "reactions: {take: {trigger: label-added, action: spawn, condition: label == 'agent'}}",
            "project: {reactions: {take: {condition: label == 'bug', action: spawn}}}",
        ),
        ("reactions: {tidy: {trigger: pr-merged, command: make tidy}}", "reactions: {tidy: {trigger: agent-idle}}"),
        ("reactions: {tidy: {trigger: pr-merged, command: make tidy}}", "reactions: {tidy: {action: command}}"),
        ("reactions: {tidy: {trigger: pr-merged, action: spawn}}", "reactions: {tidy: {agent: codex}}"),
        ("{}", "reactions: {usage-limit: {trigger: agent-exited}}"),
        ("orchestrator: {budget: {perDay: 5 USD}}", "reactions: {budget-exceeded: {action: notify}}"),
        ("orchestrator: {budget: {perDay: 5 USD}}", "project: {reactions: {budget-exceeded: {auto: false}}}"),
        (
            "agents: {mine: {tool: codex, budget: {perDay: 5 USD}}}",
            "reactions: {budget-exceeded: {condition: attempt > 9}}",
        ),
        ("{}", "reactions: {approved-and-green: {trigger: conflicts-seen, auto: true}}"),
        ("reactions: {approved-and-green: {auto: false}}", "reactions: {approved-and-green: {auto: true}}"),
    ],
)
def test_what_the_users_own_file_says_of_an_agent_or_a_rule_is_changed_by_trust_alone(own: str, text: str) -> None:
    mine = loaded(own).config
    assert found(text, own)
    around = TrustContext(Path("/repo"), mine)
    left = Loaded(Path("/repo/ao.yaml"), without_powers(loaded(text), around))
    assert powers(left, around) == {}
    for reactions in (left.config.reactions, (left.config.project or m.Project()).reactions):
        assert rules(mine.reactions, reactions) == rules(mine.reactions)


def test_a_profile_lands_nothing_unseen_by_a_rule_of_its_files_project() -> None:
    land = "reactions: {land: {trigger: approved-and-green, action: merge}}"
    over = "agents: {a: {reactions: {land: {trigger: conflicts-seen}}}}"
    assert found(f"project: {{{land}}}") == {} == found(f"project: {{{land.replace('land:', 'other:')}}}\n{over}")
    for text in (f"project: {{{land}}}\n{over}", f"projects: {{b: {{path: x, {land}}}, c: {{path: y}}}}\n{over}"):
        assert found(text)["agents"]["a"]["reactions"] == {"land": {"trigger": "conflicts-seen"}}
        assert without_powers(loaded(text)).agents["a"].reactions == {}


def test_words_for_an_agent_or_a_rule_of_the_users_are_in_force_at_once() -> None:
    own = "agents: {mine: {tool: codex, permissions: plan}}\nreactions: {take: {trigger: label-added, action: spawn}}"
    assert found("agents: {mine: {rules: Be kind.}}\nreactions: {take: {message: Look at it.}}", own) == {}
    assert found("reactions: {usage-limit: {priority: urgent, trigger: usage-limit, action: notify}}") == {}
    assert found("reactions: {budget-exceeded: {action: notify}}") == {}
    told = "reactions: {budget-exceeded: {auto: true, action: stop, priority: warning}}"
    assert found(told, "orchestrator: {budget: {perDay: 5 USD}}") == {}


@pytest.mark.parametrize(
    ("origin", "repo", "asked"),
    [
        ("git@github.com:o/a.git", "o/a", False),
        ("https://github.com/O/A", "https://github.com/o/a", False),
        ("git@github.com:o/a.git", "mallory/copy", True),
        ("/srv/git/a.git", "o/a", False),
        ("https://evil.example/o/a.git", "o/a", True),
        ("https://evil.example/o/a.git", "https://github.com/o/a", True),
        ("git@gitlab.com:o/a.git", "o/a", True),
        ("ssh://git@ssh.github.com:443/o/a.git", "o/a", False),
        ("git@github-work:o/a.git", "o/a", False),
    ],
)
def test_a_repository_that_is_not_the_checkouts_own_needs_trust(
    tmp_path: Path, origin: str, repo: str, asked: bool
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {origin}\n')
    file = load_text(f"project: {{repo: '{repo}'}}", tmp_path / "ao.yaml", {})
    assert bool(powers(file)) == asked
    tracked = load_text(f"project: {{tracker: {{plugin: github, repo: '{repo}'}}}}", tmp_path / "ao.yaml", {})
    assert bool(powers(tracked)) == asked


def test_a_repository_is_looked_for_where_its_forge_is(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()

    def asked(origin: str, text: str, own: str = "{}") -> bool:
        (tmp_path / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {origin}\n')
        file = load_text(text, tmp_path / "ao.yaml", {})
        return bool(powers(file, TrustContext(tmp_path, loaded(own).config)))

    ours = "defaults: {scm: {plugin: github, apiUrl: 'https://git.example.com/api/v3'}}"
    assert not asked("git@git.example.com:o/a.git", "project: {repo: o/a}", ours)
    assert not asked("git@gitlab.com:o/a.git", "defaults: {scm: gitlab}\nproject: {repo: o/a}")
    assert not asked("git@gitlab.com:o/a.git", "project: {repo: o/a, scm: gitlab, tracker: gitlab}")
    assert asked("git@gitlab.com:o/a.git", "project: {repo: o/a, scm: gitlab, tracker: github}")
    assert asked("git@github.com:o/a.git", "project: {scm: {plugin: github, apiUrl: 'https://github.com/'}}", ours)
    theirs, jira = "project: {tracker: {plugin: jira, project: APP}}", "{plugin: jira, url: 'https://j.example'"
    assert not asked("", theirs, f"defaults: {{tracker: {jira}, project: APP}}}}")
    assert asked("", theirs, f"defaults: {{tracker: {jira}, project: HR}}}}")


STEERING = (
    "AIDER_TEST_CMD OPENCODE_CONFIG_CONTENT OPENCODE_PERMISSION COPILOT_ALLOW_ALL ANTHROPIC_CUSTOM_HEADERS LESSOPEN DOTNET_STARTUP_HOOKS "
    "OPENSSL_CONF CC CXX HOSTALIASES SVN_SSH RSYNC_RSH VIMINIT LUA_INIT PHPRC WGETRC PYTEST_PLUGINS IS_SANDBOX CMAKE_CXX_COMPILER_LAUNCHER "
    "PS0 PS1 PERLLIB DBUS_SESSION_BUS_ADDRESS GH_BROWSER RSYNC_CONNECT_PROG MISE_TRUSTED_CONFIG_PATHS ERL_LIBS ZIPOPT APP_URL TEST_CMD"
)


@pytest.mark.parametrize("name", STEERING.split())
def test_variables_that_have_programs_run_others_need_trust(name: str) -> None:
    assert found(f"project: {{env: {{{name}: x}}}}") and found(f"agents: {{a: {{env: {{{name}: x}}}}}}")


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("Makefile", "package.json", "plugin.py"):
        (tmp_path / name).symlink_to("pipe")
    looking = threading.Thread(target=lambda: (detect(tmp_path), code_digest(tmp_path / "plugin.py")), daemon=True)
    looking.start()
    looking.join(60)
    assert not looking.is_alive()


def test_code_too_long_to_be_read_is_never_trusted(tmp_path: Path) -> None:
    with (tmp_path / "Dockerfile").open("wb") as file:
        file.truncate(17 << 20)
    (tmp_path / "link").symlink_to("Dockerfile")
    assert code_digest(tmp_path / "Dockerfile") != code_digest(tmp_path / "Dockerfile")
    assert code_digest(tmp_path / "link") != code_digest(tmp_path / "link")


def test_what_is_filled_in_from_the_environment_needs_trust() -> None:
    text = "project: {agentRules: 'Say ${SECRET}'}\nreactions: {agent-idle: {action: send-to-agent, message: 'x ${SECRET}'}}"
    file = loaded(text, {"SECRET": "hunter2"})
    assert powers(file) == {"variables": ["SECRET"]}
    assert "hunter2" not in str(without_powers(file).reactions), "a running agent is not told"
    assert loaded("project: {agentRules: '$${SECRET}'}", {"SECRET": "x"}).variables == ()
    assert loaded("project: {agentRules: '${SECRET:-none}'}").variables == ()


def test_what_concerns_the_whole_daemon_is_asked_about_by_itself() -> None:
    file = loaded("host: 0.0.0.0\ndatabase: postgresql://evil.example/x\nport: 4000\n")
    assert powers(file) == {}
    assert set(daemon_settings(file)) == {"host", "database"}


def test_a_committed_file_has_no_say_in_what_concerns_the_daemon(tmp_path: Path) -> None:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text("host: 0.0.0.0\ntls: {own: true}\ndatabase: postgresql://evil.example/x\nport: 4000\n")
    for foreign, host in ((False, "0.0.0.0"), (True, "127.0.0.1")):
        config = ConfigSet(tmp_path / "home.yaml", {}, file, trust=TrustsEverything(), foreign=foreign)
        config.add(file)
        assert (config.daemon.host, config.daemon.port) == (host, 4000)
        assert config.daemon.database.startswith("postgresql" if not foreign else "sqlite")


def test_code_is_trusted_with_its_content(tmp_path: Path) -> None:
    plugin, file = tmp_path / "p.py", tmp_path / "ao.yaml"
    plugin.write_text("x = 1")
    named = load_text("plugins: [./p.py]\nproject: {docker: {dockerfile: ci/Dockerfile}}", file, {})
    assert code_files(named, TrustContext(tmp_path)) == [plugin, tmp_path / "ci" / "Dockerfile"]
    before = code_digest(plugin)
    plugin.write_text("x = 2")
    assert code_digest(plugin) != before != code_digest(tmp_path / "ci" / "Dockerfile")


def test_projects_elsewhere_are_not_taken_before_trust(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    file = tmp_path / "repo" / "ao.yaml"
    file.write_text("projects: {mine: {path: .}, yours: {path: ../private, agentRules: Push it.}}")
    trusted = False
    config = ConfigSet(tmp_path / "home.yaml", {}, trust=TrustsBy(lambda _loaded: trusted))
    config.add(file)
    assert [one.id for one in config.projects()] == ["mine"]
    trusted = True
    config.reload(file)
    assert [one.id for one in config.projects()] == ["mine", "yours"]


def test_without_trust_nobody_sees_the_powers(tmp_path: Path) -> None:
    file = tmp_path / "ao.yaml"
    file.write_text(
        "project: {trustedAuthors: [mallory], commands: [x], env: {A_URL: b}, scm: {plugin: github, webhook: {secret: s}}, sandbox: none}\n"
        "plugins: [./p.py]\nreactions: {approved-and-green: {action: command, command: evil}}\nnotifiers: {n: {plugin: webhook, url: x}}\n"
        "orchestrator: {coordinator: {may: [merge]}}\n"
    )
    (tmp_path / ".git").mkdir()
    trusted = False
    config = ConfigSet(tmp_path / "home.yaml", {}, trust=TrustsBy(lambda _loaded: trusted))
    config.add(file)
    [one] = config.projects()
    assert (one.trusted_authors, one.commands, one.env, one.plugins) == ((), (), {}, ())
    assert (one.scm.plugin, one.scm.options, one.unsandboxed, one.coordinator.may) == ("github", {}, False, ())
    assert set(one.notifiers) == {"desktop"}
    assert not any(rule.command for rule in config.rules(one.id))
    trusted = True
    config.trust_changed()
    [one] = config.projects()
    assert (one.trusted_authors, one.commands, one.env) == (("mallory",), ("x",), {"A_URL": "b"})
    assert any(rule.command for rule in config.rules(one.id))


@pytest.mark.skipif(os.name != "posix", reason="owners and modes")
def test_a_file_that_others_could_have_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text(HARMLESS)
    load(file, {})
    file.chmod(0o666)
    with pytest.raises(ConfigError, match=r"can be written by everybody.*chmod o-w"):
        load(file, {})
    file.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    if file.stat().st_uid:
        with pytest.raises(ConfigError, match="belongs to another user"):
            load(file, {})
        return
    os.chown(file, 4242, 4242)
    with pytest.raises(ConfigError, match="belongs to another user"):
        load(file, {})
