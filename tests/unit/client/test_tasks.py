"""The order of tasks by their dependencies, conversion of records, and the package's lazy imports."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_orchestrator
from agent_orchestrator import Orchestrator, SessionManager, Task, sync
from agent_orchestrator.client.api.records import PullRequest, SessionStatus, to_camel_case, to_record, to_snake_case
from agent_orchestrator.client.api.sessions import Session
from agent_orchestrator.client.api.tasks import order_by_dependencies
from agent_orchestrator.errors import UsageError


@st.composite
def graphs(draw: st.DrawFn) -> list[Task]:
    """Draw tasks that depend on others by id or title, without a cycle, in any order."""
    tasks = []
    for number in range(draw(st.integers(1, 12))):
        before = draw(st.lists(st.sampled_from(range(number)), unique=True)) if number else []
        names = [f"t{earlier}" if draw(st.booleans()) else f"Title {earlier}" for earlier in before]
        tasks.append(Task(f"t{number}", f"Title {number}", dependencies=names))
    return draw(st.permutations(tasks))


@given(graphs())
def test_each_task_follows_its_dependencies(tasks: list[Task]) -> None:
    ordered = order_by_dependencies(tasks, {})
    assert sorted(task.id for task in ordered) == sorted(task.id for task in tasks)
    done: set[str] = set()
    for task in ordered:
        assert set(task.dependencies) <= done
        done |= {task.id, task.title}


def test_dependencies_may_be_sessions_and_invalid_ones_are_refused() -> None:
    late = Task("b", "B", dependencies=["gone"])
    assert order_by_dependencies([late], {"gone": "app-gone"}) == [late]
    with pytest.raises(UsageError, match="depends on 'gone', which is no task"):
        order_by_dependencies([late], {})
    with pytest.raises(UsageError, match="comes after itself"):
        order_by_dependencies([Task("a", "A", dependencies=["b"]), Task("b", "B", dependencies=["A"])], {})
    with pytest.raises(UsageError, match="two tasks have the id 'a'"):
        order_by_dependencies([Task("a", "A"), Task("a", "B")], {})


def test_json_is_converted_into_records() -> None:
    pull = to_record(
        PullRequest, {"number": 3, "url": None, "state": "open", "checks": [{"name": "x", "state": "success"}]}
    )
    assert pull.checks[0].name == "x" and pull.review == "none"
    status = {"state": "idle", "status": "idle", "activity": "idle", "currentTask": "t", "branch": "b", "agent": "a"}
    converted = to_record(
        SessionStatus, {**status, "lastActivity": "2026-11-15T18:00:00Z", "workspacePath": "/w", "new": 1}
    )
    assert converted.last_activity is not None and converted.last_activity.isoformat() == "2026-11-15T18:00:00+00:00"
    assert to_snake_case("workspacePath") == "workspace_path" and to_camel_case("group_limit") == "groupLimit"


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys, agent_orchestrator; print([name for name in sys.modules if name.startswith(('agent_', 'typing'))])"
    )
    completed = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert completed.stdout.strip() == "['agent_orchestrator']"
    for name in dir(agent_orchestrator):
        getattr(agent_orchestrator, name)
    with pytest.raises(AttributeError, match="no attribute 'Orchestratr'"):
        agent_orchestrator.Orchestratr  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("plain", "blocking"),
    [(Orchestrator, sync.Orchestrator), (SessionManager, sync.SessionManager), (Session, sync.Session)],
    ids=["Orchestrator", "SessionManager", "Session"],
)
def test_the_blocking_classes_have_the_same_methods(plain: type, blocking: type) -> None:
    own = {name for name, member in inspect.getmembers(plain, callable) if not name.startswith("_")}
    blocking_names = {name for name, member in inspect.getmembers(blocking, callable) if not name.startswith("_")}
    assert own - blocking_names <= {"open", "at"}
    for name in own & blocking_names:
        expected = list(inspect.signature(getattr(plain, name)).parameters)
        parameters = inspect.signature(getattr(blocking, name)).parameters
        takes_any = any(member.kind == member.VAR_KEYWORD for member in parameters.values())
        assert [member for member in expected if member not in parameters and not takes_any] in (
            [],
            ["follow"],
            ["report"],
        )
