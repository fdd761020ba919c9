"""The Python API has the names it promises, typed, and without `async` the same ones."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import agent_orchestrator
from agent_orchestrator import Notification, Orchestrator, SessionManager, SessionStatus, Task, sync
from agent_orchestrator.client.api.sessions import Session

PROMISED = {
    "Orchestrator": "plan spawn spawn_all on on_ci_failure wait run create_worktree spawn_agent create_pr breakdown_goal "
    "select_agent to_session_name to_branch_name generate_id",
    "SessionManager": "create get get_status list send stop restore merge wait",
    "Session": "send resume answer stop restore merge diff log events wait refresh",
    "AgentPlugin": "start stop send_message get_status execute_task",
    "NotifierPlugin": "notify",
}
PARAMETERS = {
    "Orchestrator": "project max_parallel_agents tracker",
    "SessionManager.create": "project_id name issue branch agent runtime workspace",
    "Orchestrator.spawn": "task on_complete",
    "Orchestrator.on": "trigger session handler",
    "Orchestrator.create_worktree": "issue_id base_branch",
    "Orchestrator.spawn_agent": "worktree_path runtime tool context on_complete",
    "Orchestrator.create_pr": "worktree title auto_merge",
    "Orchestrator.on_ci_failure": "session_id handler",
    "Session.resume": "message max_retries",
}
ONLY_ASYNC = {"open"}


def of(name: str) -> Any:
    found: Any = agent_orchestrator
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("kind", PROMISED)
def test_promised_methods_are_there(kind: str) -> None:
    assert [name for name in PROMISED[kind].split() if not callable(getattr(of(kind), name, None))] == []


@pytest.mark.parametrize("name", PARAMETERS)
def test_promised_parameters_are_there(name: str) -> None:
    assert [one for one in PARAMETERS[name].split() if one not in inspect.signature(of(name)).parameters] == []


def test_promised_fields_are_there() -> None:
    assert {"id", "title", "description", "dependencies", "estimated_effort"} <= {one.name for one in fields(Task)}
    wanted = {"agent", "state", "current_task", "branch", "workspace_path", "last_activity"}
    assert wanted <= {one.name for one in fields(SessionStatus)}
    assert Notification("title", "message", "info", "app-fix").session_id == "app-fix"


@pytest.mark.parametrize("kind", ["Orchestrator", "SessionManager", "Session"])
def test_without_async_it_is_the_same(kind: str) -> None:
    one, other = of(kind), getattr(sync, kind)
    names = [name for name in vars(one) if not name.startswith("_") and name not in ONLY_ASYNC]
    assert [name for name in names if not hasattr(other, name)] == []
    for name in names:
        if inspect.isfunction(getattr(one, name)) and name != "close":
            given, here = (list(inspect.signature(getattr(each, name)).parameters) for each in (one, other))
            assert given == here, name


@pytest.mark.parametrize("kind", [Orchestrator, SessionManager, Session, sync.Orchestrator, sync.SessionManager])
def test_everything_public_is_typed_and_explained(kind: type[Any]) -> None:
    for name, value in vars(kind).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            assert value.__doc__, name
            assert {*inspect.signature(value).parameters, "return"} - {"self"} <= set(value.__annotations__), name


def test_type_checkers_are_told_of_every_name() -> None:
    folder = Path(agent_orchestrator.__file__).parent
    assert (folder / "py.typed").exists()
    tree = ast.parse((folder / "__init__.py").read_text())
    told = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert told == {name for names in agent_orchestrator._HOMES.values() for name in names}
