"""The public names of the Python API: documented, typed, and the same without `async`."""

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


def api_object(name: str) -> Any:
    resolved: Any = agent_orchestrator
    for part in name.split("."):
        resolved = getattr(resolved, part)
    return resolved


@pytest.mark.parametrize("kind", PROMISED)
def test_documented_methods_exist(kind: str) -> None:
    assert [name for name in PROMISED[kind].split() if not callable(getattr(api_object(kind), name, None))] == []


@pytest.mark.parametrize("name", PARAMETERS)
def test_documented_parameters_exist(name: str) -> None:
    assert [
        parameter
        for parameter in PARAMETERS[name].split()
        if parameter not in inspect.signature(api_object(name)).parameters
    ] == []


def test_documented_fields_exist() -> None:
    assert {"id", "title", "description", "dependencies", "estimated_effort"} <= {field.name for field in fields(Task)}
    expected = {"agent", "state", "current_task", "branch", "workspace_path", "last_activity"}
    assert expected <= {field.name for field in fields(SessionStatus)}
    assert Notification("title", "message", "info", "app-fix").session_id == "app-fix"


@pytest.mark.parametrize("kind", ["Orchestrator", "SessionManager", "Session"])
def test_the_blocking_api_has_the_same_methods_and_parameters(kind: str) -> None:
    asynchronous, blocking = api_object(kind), getattr(sync, kind)
    names = [name for name in vars(asynchronous) if not name.startswith("_") and name not in ONLY_ASYNC]
    assert [name for name in names if not hasattr(blocking, name)] == []
    for name in names:
        if inspect.isfunction(getattr(asynchronous, name)) and name != "close":
            expected, actual = (
                list(inspect.signature(getattr(kind_of, name)).parameters) for kind_of in (asynchronous, blocking)
            )
            assert expected == actual, name


@pytest.mark.parametrize("kind", [Orchestrator, SessionManager, Session, sync.Orchestrator, sync.SessionManager])
def test_every_public_method_has_a_docstring_and_annotations(kind: type[Any]) -> None:
    for name, value in vars(kind).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            assert value.__doc__, name
            assert {*inspect.signature(value).parameters, "return"} - {"self"} <= set(value.__annotations__), name


def test_every_name_is_imported_for_type_checkers() -> None:
    folder = Path(agent_orchestrator.__file__).parent
    assert (folder / "py.typed").exists()
    tree = ast.parse((folder / "__init__.py").read_text())
    imported = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert imported == {name for names in agent_orchestrator._HOMES.values() for name in names}
