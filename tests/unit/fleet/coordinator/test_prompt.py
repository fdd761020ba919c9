"""The system prompt and permissions of a coordinating agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.effective import ProjectConfig, resolve_agent
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.sessions.agents.prompts import system_prompt_for_kind
from agent_orchestrator.sessions.permissions.permission_mode import may_edit, permission_mode
from tests.parts import TrustsEverything
from tests.unit.core.event_strategies import created


def project(folder: Path, coordinator: str) -> ProjectConfig:
    (folder / "app" / ".git").mkdir(parents=True)
    file = folder / "app" / "agent-orchestrator.yaml"
    file.write_text(
        f"defaults: {{agentConfig: {{permissions: auto-edit}}}}\n"
        f"projects: {{app: {{path: ., agentRules: For workers., coordinator: {coordinator}}}}}\n"
    )
    configs = ConfigSet(folder / "none.yaml", {"HOME": str(folder)}, trust=TrustsEverything())
    configs.add(file)
    app = configs.project("app")
    assert app is not None
    return app


def prompt(app: ProjectConfig) -> str:
    facts = reduce(None, created(kind="coordinator", prompt=""))
    assert facts is not None
    return system_prompt_for_kind(facts, app)


def test_the_prompt_names_tools_limits_and_rules(tmp_path: Path) -> None:
    text = prompt(project(tmp_path, "{rules: Small tasks first.}"))
    for word in ("spawn_session", "create_plan", "apply_plan", "send_message", "ask_person", "News from app"):
        assert word in text
    assert text.endswith("Small tasks first.")
    assert "For workers." not in text
    assert "You may not let a change land (merge_session), judge a change" in text
    assert "change and commit nothing here" in text


def test_the_prompt_names_additional_permissions(tmp_path: Path) -> None:
    text = prompt(project(tmp_path, "{may: [merge, edit]}"))
    assert "You may also let a change land (merge_session)." in text
    assert "You may not judge a change" in text
    assert "change and commit nothing here" not in text


@pytest.mark.parametrize(
    ("coordinator", "permissions", "edits"),
    [
        ("{}", "default", False),
        ("{permissions: plan}", "plan", False),
        ("{permissions: full}", "auto-edit", False),
        ("{may: edit}", "default", True),
    ],
)
def test_a_coordinators_permissions_are_separate_from_the_workers(
    coordinator: str, permissions: str, edits: bool, tmp_path: Path
) -> None:
    app = project(tmp_path, coordinator)
    settings = resolve_agent(app, None)
    assert permission_mode(app, settings, "process", "coordinator")[0] == permissions
    assert permission_mode(app, settings, "process")[0] == "auto-edit"
    assert may_edit(app, "coordinator") is edits
    assert may_edit(app, "worker")
