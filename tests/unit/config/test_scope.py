"""Several configuration files at once: precedence, reloading and broken files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent_orchestrator.config.config_set import ConfigSet, slug
from agent_orchestrator.config.effective import ProjectConfig, resolve_project
from agent_orchestrator.config.load import LoadedConfig
from agent_orchestrator.errors import ConfigError
from tests.parts import TrustsAccepted, TrustsEverything


class World:
    """A home folder, repositories, and the set of loaded files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "ao" / "config.yaml"
        self.home.parent.mkdir()
        self.environ = {"HOME": str(folder)}
        self.configs = ConfigSet(self.home, self.environ, trust=TrustsEverything())

    def file(self, name: str, text: str) -> Path:
        (self.folder / name / ".git").mkdir(parents=True, exist_ok=True)
        path = self.folder / name / "agent-orchestrator.yaml"
        path.write_text(text)
        return path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_projects_own_value_has_precedence(world: World) -> None:
    world.home.write_text(
        "defaults: {runtime: process, agent: codex, agentConfig: {permissions: plan, model: m}, notifiers: [slack]}\n"
        "agents: {fast: {tool: aider, model: small}}\nreactions: {ci-failed: {retries: 9, priority: info}}\n"
        "notifiers: {slack: {webhookUrl: u}}\n"
    )
    world.configs.load_home()
    world.configs.add(
        world.file(
            "shop",
            "defaults: {agent: claude-code}\nagents: {fast: {model: tiny}}\nreactions: {ci-failed: {retries: 4}}\n"
            "projects:\n  shop: {path: ., agentConfig: {model: big}, reactions: {ci-failed: {backoff: 5s}}}\n",
        )
    )
    project = world.configs.project("shop")
    assert project is not None
    assert (project.runtime, project.agent, project.workspace) == ("process", "claude-code", None)
    assert (project.agent_config.permissions, project.agent_config.model) == ("plan", "big")
    assert (project.path, project.session_prefix, project.name) == (world.folder / "shop", "shop", "shop")
    assert project.routing["info"] == ("slack",)
    assert project.notifiers["slack"].options == {"webhookUrl": "u"}
    fast = world.configs.profile("shop", "fast")
    assert fast is not None
    assert (fast.tool, fast.model) == ("aider", "tiny")
    rule = next(r for r in world.configs.rules("shop") if r.name == "ci-failed")
    assert (rule.retries, rule.priority, rule.backoff, rule.action) == (4, "info", (5.0, 5.0), "send-to-agent")


def test_a_profiles_reactions_have_precedence(world: World) -> None:
    world.configs.add(
        world.file(
            "shop", "reactions: {ci-failed: {retries: 4}}\nagents: {x: {reactions: {ci-failed: {retries: 1}}}}\n"
        )
    )
    retries = {p: next(r.retries for r in world.configs.rules("shop", p) if r.name == "ci-failed") for p in (None, "x")}
    assert retries == {None: 4, "x": 1}


def test_merged_rules_are_cached_until_the_configuration_changes(world: World) -> None:
    file = world.file("shop", "reactions: {ci-failed: {retries: 4}}\n")
    world.configs.add(file)
    first = world.configs.rules("shop")
    assert world.configs.rules("shop") is first
    file.write_text("reactions: {ci-failed: {retries: 5}}\n")
    world.configs.add(file)
    assert next(r.retries for r in world.configs.rules("shop") if r.name == "ci-failed") == 5


def test_an_agents_name_resolves_to_its_profile_or_tool(world: World) -> None:
    world.configs.add(
        world.file(
            "shop",
            "agents:\n  mine: {tool: command, command: [cli], screen: {ready: x}, env: {B: b}, permissions: full, runtime: docker}\n"
            "project: {agent: codex, agentConfig: {model: m, permissions: plan, extra: 1}, env: {A: a}}\n",
        )
    )
    own = world.configs.agent("shop")
    mine = world.configs.agent("shop", "mine")
    other = world.configs.agent("shop", "aider")
    assert own and mine and other
    assert (own.tool, own.profile, own.model, own.permissions, dict(own.options)) == (
        "codex",
        None,
        "m",
        "plan",
        {"extra": 1},
    )
    assert (mine.tool, mine.profile, mine.model, mine.permissions) == ("command", "mine", None, "full")
    assert (mine.runtime, dict(mine.env)) == ("docker", {"A": "a", "B": "b"})
    assert dict(mine.options) == {"command": ("cli",), "screen": {"ready": "x"}}
    assert (other.tool, other.model, other.permissions, dict(other.options)) == ("aider", None, "plan", {})


def test_a_tracker_of_another_plugin_inherits_no_options(world: World) -> None:
    world.home.write_text("defaults: {tracker: {plugin: linear, teamId: T}}")
    world.configs.load_home()
    world.configs.add(world.file("shop", "project: {tracker: github}"))
    world.configs.add(world.file("blog", "project: {tracker: {states: x}}"))
    shop, blog = world.configs.project("shop"), world.configs.project("blog")
    assert shop and blog
    assert (shop.tracker.plugin, shop.tracker.options) == ("github", {})
    assert (blog.tracker.plugin, blog.tracker.options) == ("linear", {"teamId": "T", "states": "x"})


def test_a_file_without_projects_describes_its_repository(world: World) -> None:
    file = world.file("My Shop", "reactions: {}\n")
    world.configs.add(file)
    project = world.configs.project("my-shop")
    assert project is not None
    assert (project.path, project.file) == (world.folder / "My Shop", file)
    loose = world.folder / "loose" / "ao.yaml"
    loose.parent.mkdir()
    loose.write_text("defaults: {runtime: process}\n")
    world.configs.add(loose)
    assert [p.id for p in world.configs.projects()] == ["my-shop"]
    assert world.configs.add_adhoc("x", world.folder / "x", loose).runtime == "process"
    world.configs.reload(loose)
    assert [p.id for p in world.configs.projects()] == ["my-shop", "x"]


def test_settings_of_the_daemon_count_in_its_own_files_only(world: World) -> None:
    world.home.write_text("port: 4000\nhost: 0.0.0.0\n")
    started = world.file("a", "port: 5000\n")
    configs = ConfigSet(world.home, world.environ, started_with=started, trust=TrustsEverything())
    assert configs.load_home().warnings == ()
    assert configs.add(started).warnings == ()
    other = configs.add(world.file("b", "port: 6000\npower: {preventIdleSleep: false}\n"))
    assert len(other.warnings) == 1
    assert "port, power count only in" in other.warnings[0]
    daemon = configs.daemon
    assert (daemon.port, daemon.is_port_set, daemon.host, daemon.power.prevent_idle_sleep) == (
        5000,
        True,
        "0.0.0.0",
        True,
    )
    assert (world.configs.daemon.port, world.configs.daemon.is_port_set) == (3000, False)


def test_a_project_belongs_to_one_file(world: World) -> None:
    first = world.file("a", "projects: {shop: {path: .}}")
    second = world.file("b", "projects: {shop: {path: .}, other: {path: x}}")
    world.configs.add(first)
    with pytest.raises(ConfigError) as caught:
        world.configs.add(second)
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)
    assert [p.id for p in world.configs.projects()] == ["shop"]
    world.configs.add(second, without=["shop"])
    assert [p.id for p in world.configs.projects()] == ["other", "shop"]


def test_a_changed_file_is_reloaded_and_its_changed_keys_are_returned(world: World) -> None:
    file = world.file("shop", "defaults: {runtime: tmux}\nprojects: {shop: {path: .}, old: {path: x}}\n")
    world.configs.add(file)
    file.write_text("defaults: {runtime: process}\nprojects: {shop: {path: ., ci: make test}}\n")
    assert world.configs.reload(file) == ["defaults.runtime", "projects.old.path", "projects.shop.ci.default.command"]
    shop = world.configs.project("shop")
    assert shop is not None
    assert (shop.runtime, shop.ci["default"].command) == ("process", "make test")
    assert world.configs.project("old") is None
    assert world.configs.reload(file) == []


def test_a_broken_file_leaves_the_last_valid_version_in_effect(world: World) -> None:
    file = world.file("shop", "projects: {shop: {path: ., runtime: process}}\n")
    world.configs.add(file)
    file.write_text("projects: {shop: {path: ., runtme: tmux}}\n")
    with pytest.raises(ConfigError, match="runtme"):
        world.configs.reload(file)
    shop = world.configs.project("shop")
    assert shop is not None
    assert shop.runtime == "process"
    assert "runtme" in world.configs.file_errors[file]
    file.write_text("projects: {shop: {path: ., runtime: tmux}}\n")
    assert world.configs.reload(file) == ["projects.shop.runtime"]
    assert world.configs.file_errors == {}


class Trap(dict[str, str]):
    """An environment in which reading one name raises an unexpected error."""

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        if name == "TRAP":
            raise LookupError("a trap\nof two lines")
        return super().get(name, default)


@pytest.mark.parametrize("when", ["read", "trust check", "put in force"])
def test_an_unexpected_error_affects_only_its_own_file(
    world: World, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def trusts(loaded: LoadedConfig) -> bool:
        if when == "trust check" and "odd" in str(loaded.path):
            raise LookupError("a trap\nof two lines")
        return True

    def resolve_or_raise(name: str, *args: Any) -> ProjectConfig:
        if when == "put in force" and name == "odd":
            raise LookupError("a trap\nof two lines")
        return resolve_project(name, *args)

    monkeypatch.setattr("agent_orchestrator.config.config_set.resolve_project", resolve_or_raise)
    world.configs = ConfigSet(world.home, Trap(world.environ), trust=TrustsAccepted(trusts))
    world.configs.add(world.file("shop", "port: 1\n"))
    name = '"${TRAP}"' if when == "read" else "x"
    odd = world.file("odd", f"projects: {{odd: {{path: ., name: {name}}}}}\n")
    with capture_logs() as logged:
        for _ in range(2):
            with pytest.raises(
                ConfigError, match=r'odd/agent-orchestrator.yaml cannot be used \("LookupError: a trap of two lines"'
            ):
                world.configs.add(odd)
    assert [bool(line["exc_info"]) for line in logged] == [True]
    assert list(world.configs.file_errors) == [odd] and "\n" not in world.configs.file_errors[odd]
    assert [project.id for project in world.configs.projects()] == ["shop"] and world.configs.loaded(odd) is None
    odd.write_text("port: 2\n")
    when = "fixed"
    world.configs.add(odd)
    assert world.configs.file_errors == {} and [project.id for project in world.configs.projects()] == ["odd", "shop"]


def test_the_users_own_file_is_reloaded_for_all_projects(world: World) -> None:
    world.configs.load_home()
    world.configs.add(world.file("shop", ""))
    world.home.write_text("defaults: {agent: codex}")
    assert world.configs.reload(world.home) == ["defaults.agent"]
    shop = world.configs.project("shop")
    assert shop is not None
    assert shop.agent == "codex"
    world.home.unlink()
    world.configs.reload(world.home)
    shop = world.configs.project("shop")
    assert shop is not None
    assert shop.agent == "claude-code"


def test_the_users_own_file_may_not_describe_a_repository(world: World) -> None:
    world.home.write_text("runtime: process\nci: make test\n")
    with pytest.raises(ConfigError, match="ci, runtime belongs to a project"):
        world.configs.load_home()
    assert list(world.configs.file_errors) == [world.home]


def test_removed_projects_and_files_stay_removed(world: World) -> None:
    file = world.file("a", "projects: {x: {path: x}, y: {path: y}}")
    world.configs.add(file)
    world.configs.remove_project("x")
    world.configs.reload(file)
    assert [p.id for p in world.configs.projects()] == ["y"]
    world.configs.remove(file)
    assert (world.configs.projects(), world.configs.files) == ((), ())


def test_a_repository_without_a_file_can_be_added(world: World) -> None:
    adhoc = world.configs.add_adhoc("lone", world.folder / "lone")
    assert (adhoc.file, adhoc.path, adhoc.agent) == (None, world.folder / "lone", "claude-code")
    world.configs.add_adhoc("lone", world.folder / "lone")
    with pytest.raises(ConfigError, match="another id"):
        world.configs.add_adhoc("lone", world.folder / "elsewhere")


def test_limits_are_collected_from_all_files(world: World) -> None:
    world.home.write_text("orchestrator: {maxParallelAgents: 9}")
    world.configs.load_home()
    world.configs.add(
        world.file(
            "a", "orchestrator: {maxParallelAgents: 3}\nprojects: {x: {path: x}, y: {path: y, maxParallelAgents: 1}}"
        )
    )
    world.configs.add_adhoc("z", world.folder / "z")
    assert [(sorted(limit.projects), limit.count) for limit in world.configs.parallel_limits()] == [
        (["x", "y", "z"], 9),
        (["x", "y"], 3),
        (["y"], 1),
    ]


def test_limits_of_profiles_and_machines_are_collected(world: World) -> None:
    world.home.write_text("cluster: {maxParallelAgents: 5}\nagents: {any: {maxParallelAgents: 6}}")
    world.configs.load_home()
    world.configs.add(
        world.file("a", "agents: {ui: {maxParallelAgents: 2}, api: {}}\nprojects: {x: {path: x}, y: {path: y}}")
    )
    world.configs.add_adhoc("z", world.folder / "z")
    limits = [
        (sorted(limit.projects), limit.count, limit.profile, limit.machine) for limit in world.configs.parallel_limits()
    ]
    assert limits == [
        (["x", "y", "z"], 6, "any", False),
        (["x", "y"], 2, "ui", False),
        (["x", "y", "z"], 5, None, True),
    ]
    world.configs.remove_project("y")
    assert sorted(world.configs.parallel_limits()[1].projects) == ["x"], "they follow the projects"


def test_paths_are_resolved_relative_to_the_file(world: World) -> None:
    world.configs.add(
        world.file("a", "projects: {x: {path: ~/x, worktreeDir: ../trees}, y: {path: sub/y, agentRulesFile: R.md}}")
    )
    x, y = world.configs.project("x"), world.configs.project("y")
    assert x and y
    assert (x.path, x.worktree_dir) == (world.folder / "x", world.folder / "trees")
    assert (y.path, y.agent_rules_file) == (world.folder / "a/sub/y", world.folder / "a/sub/y/R.md")
    assert world.configs.workspaces() == (world.folder / "trees", world.folder / "a/sub/y/.worktrees")
    assert world.configs.project_at(world.folder / "a/sub/y/src") is y
    assert world.configs.project_at(world.folder) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("My App", "my-app"), ("..", "project"), ("Größe_2", "groe-2"), ("-x-", "x"), ("日本", "project")],
)
def test_project_ids_are_derived_from_names(name: str, expected: str) -> None:
    assert slug(name) == expected
