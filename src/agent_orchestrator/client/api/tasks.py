"""Tasks, the plans made of them, and their order by dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.errors import UsageError


@dataclass(frozen=True)
class Task:
    """A task for one agent. `dependencies` name tasks, by id or title, that must be done before."""

    id: str
    title: str
    description: str = ""
    dependencies: Sequence[str] = ()
    estimated_effort: str | None = None
    labels: Sequence[str] = ()
    files: Sequence[str] = ()
    """Files that it is expected to change; may be glob patterns."""
    profile: str | None = None
    acceptance: Sequence[str] = ()
    """Criteria by which one sees that it is done."""
    priority: int = 0
    issue_id: str | None = None

    @property
    def prompt(self) -> str:
        """The text that its agent gets."""
        text = self.description or self.title
        if self.acceptance:
            text += "\n\nDone when:\n" + "\n".join(f"- {criterion}" for criterion in self.acceptance)
        return text


@dataclass(frozen=True)
class Plan:
    """The tasks for a goal, as the planner drafted them; iterating over it yields the tasks."""

    tasks: list[Task]
    id: str | None = None
    goal: str | None = None
    notes: Sequence[str] = ()

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


@dataclass(frozen=True)
class Piece:
    """A part of a goal; `deps` are the titles of the pieces that must be done before."""

    title: str
    description: str = ""
    deps: Sequence[str] = ()
    effort: str | None = None


def task_of(data: Mapping[str, Any]) -> Task:
    """Make a task from its JSON object in a plan of the daemon."""
    issue = data.get("issueKey") or data.get("issue")
    return Task(
        id=str(data["id"]),
        title=str(data["title"]),
        description=str(data.get("description") or data["title"]),
        dependencies=tuple(data.get("dependencies") or ()),
        estimated_effort=data.get("effort"),
        labels=tuple(data.get("labels") or ()),
        files=tuple(data.get("files") or ()),
        profile=data.get("profile"),
        acceptance=tuple(data.get("acceptance") or ()),
        priority=int(data.get("priority") or 0),
        issue_id=None if issue is None else str(issue),
    )


def plan_of(data: Mapping[str, Any]) -> Plan:
    """Make a plan from its JSON object."""
    tasks = [task_of(task) for task in data.get("tasks") or ()]
    return Plan(tasks, str(data["id"]), data.get("goal"), tuple(data.get("notes") or ()))


def pieces_of(plan: Plan) -> list[Piece]:
    """Return a plan's tasks without ids: dependencies are named by title."""
    titles = {task.id: task.title for task in plan.tasks}
    return [
        Piece(task.title, task.prompt, tuple(titles.get(id_, id_) for id_ in task.dependencies), task.estimated_effort)
        for task in plan.tasks
    ]


def order_by_dependencies(tasks: Iterable[Task], done: Mapping[str, str]) -> list[Task]:
    """Return the tasks, each after those it depends on; otherwise in the given order.

    `done` holds the tasks that have sessions already, by id or title. Raise UsageError for duplicate ids, unknown dependencies
    and cycles.
    """
    remaining = list(tasks)
    names = {name: task.id for task in remaining for name in (task.title, task.id)}
    if len({task.id for task in remaining}) < len(remaining):
        duplicate = next(task.id for task in remaining if sum(other.id == task.id for other in remaining) > 1)
        raise UsageError(f"two tasks have the id {duplicate!r}", "give each an id of its own")
    for task in remaining:
        if unknown := next(
            (dependency for dependency in task.dependencies if dependency not in names and dependency not in done), None
        ):
            raise UsageError(
                f"{task.title!r} depends on {unknown!r}, which is no task", "name a task by its id or title"
            )
    ordered: list[Task] = []
    placed: set[str] = set()
    while remaining:
        ready = [
            task
            for task in remaining
            if all(
                names.get(dependency, dependency) in placed or dependency in done for dependency in task.dependencies
            )
        ]
        if not ready:
            raise UsageError(f"{remaining[0].title!r} comes after itself", "take one of the dependencies out")
        ordered += ready
        placed.update(task.id for task in ready)
        remaining = [task for task in remaining if task.id not in placed]
    return ordered
