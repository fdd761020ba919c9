"""The sample configurations: each loads without warnings and has the intended values."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.load import LoadedConfig, load_file
from agent_orchestrator.core.rules.model import Rule
from tests.parts import TrustsEverything

SAMPLES = Path(__file__).parents[2] / "samples"
ENVIRON = {"HOME": "/home/someone"}


def sample(name: str) -> LoadedConfig:
    return load_file(SAMPLES / f"{name}.yaml", ENVIRON)


def rules_of(name: str, tmp_path: Path, project: str = "shop") -> dict[str, Rule]:
    repo = tmp_path / "shop"
    (repo / ".git").mkdir(parents=True)
    file = repo / "agent-orchestrator.yaml"
    file.write_bytes((SAMPLES / f"{name}.yaml").read_bytes())
    configs = ConfigSet(tmp_path / "home" / "config.yaml", ENVIRON, trust=TrustsEverything())
    configs.add(file)
    return {rule.name: rule for rule in configs.rules(project)}


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_samples_load_without_a_warning(path: Path) -> None:
    assert load_file(path, ENVIRON).warnings == ()


def test_all_samples_are_tested() -> None:
    assert len(list(SAMPLES.glob("*.yaml"))) == 5


def test_the_event_routing_sample_has_its_rules(tmp_path: Path) -> None:
    config = sample("event-routing").config
    assert (config.defaults.runtime, config.defaults.agent) == ("tmux", "claude-code")
    assert config.orchestrator.max_parallel_agents == 10
    rules = rules_of("event-routing", tmp_path)
    ci, review = rules["ci-failed"], rules["changes-requested"]
    assert (ci.action, ci.retries, ci.auto) == ("send-to-agent", 3, True)
    assert ci.message == "CI failed with errors: {{errors}}. Fix the issues."
    assert ci.backoff == (30.0, 600.0)
    assert (review.escalate, review.escalate_after_seconds) == (True, 1800.0)
    assert review.message == "Address review comments: {{comments}}"


def test_the_first_run_sample_has_its_project_and_rules(tmp_path: Path) -> None:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_bytes((SAMPLES / "first-run.yaml").read_bytes())
    configs = ConfigSet(tmp_path / "home" / "config.yaml", ENVIRON, started_with=file, trust=TrustsEverything())
    configs.add(file)
    project = configs.project("my-app")
    assert project is not None
    assert (project.repo, project.path) == ("owner/my-app", Path("/home/someone/my-app"))
    assert (project.default_branch, project.session_prefix) == ("main", "app")
    assert (project.runtime, project.agent, project.workspace) == ("tmux", "claude-code", "worktree")
    assert project.routing["urgent"] == ("desktop",)
    daemon = configs.daemon
    assert (daemon.port, daemon.is_port_set, daemon.power.prevent_idle_sleep) == (3000, True, True)
    rules = {rule.name: rule for rule in configs.rules("my-app")}
    assert (rules["approved-and-green"].auto, rules["approved-and-green"].action) == (False, "notify")
    assert rules["changes-requested"].escalate_after_seconds == 1800.0


def test_the_multi_project_sample_has_its_projects() -> None:
    projects = sample("multi-project").config.projects
    assert {name: p.session_prefix for name, p in projects.items()} == {
        "frontend": "fe",
        "backend": "be",
        "docs": "docs",
    }
    assert projects["backend"].default_branch == "develop"


def test_the_reactions_sample_has_its_rules(tmp_path: Path) -> None:
    config = sample("reactions").config
    assert config.defaults.tracker.plugin == "github"
    assert config.defaults.notifiers == ("desktop", "slack")
    rules = rules_of("reactions", tmp_path)
    merge = rules["approved-and-green"]
    assert (merge.auto, merge.action, merge.strategy, merge.delete_after) == (True, "merge", "squash", True)
    label = rules["label-added"]
    assert (label.trigger, label.action, label.condition) == ("label-added", "send-to-agent", "label == 'needs-tests'")


def test_the_specialists_sample_has_its_profiles_and_rules(tmp_path: Path) -> None:
    config = sample("specialists").config
    front, back = config.agents["frontend-specialist"], config.agents["backend-specialist"]
    assert (front.tool, front.runtime, front.skills) == ("claude-code", "tmux", ("react-development", "css-styling"))
    assert (front.filters.labels, front.filters.exclude_labels) == (("frontend", "ui"), ("backend",))
    assert (back.tool, back.runtime, back.filters.labels) == ("aider", "docker", ("backend", "api"))
    assert (config.orchestrator.max_parallel_agents, config.orchestrator.auto_assign) == (5, True)
    rules = rules_of("specialists", tmp_path)
    ci, review = rules["ci-failed"], rules["changes-requested"]
    assert (ci.retries, ci.escalate_after_count, ci.escalate_after_seconds) == (3, 2, None)
    assert (ci.action, ci.auto, ci.backoff) == ("send-to-agent", True, (30.0, 600.0))
    assert (review.auto, review.approval_after, review.action) == (True, 2, "send-to-agent")
