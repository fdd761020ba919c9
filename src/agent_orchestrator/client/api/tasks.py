"""What is wanted: tasks, plans made of them, and the order that their dependencies ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.errors import UsageError


@dataclass(frozen=True)
class Task:
    """Something to be done by one agent. `dependencies` name other tasks, by id or title, that must be done before."""

    id: str
    title: str
    description: str = ""
    dependencies: Sequence[str] = ()
    estimated_effort: str | None = None
    labels: Sequence[str] = ()
    files: Sequence[str] = ()
    """Files that it is expected to change; glob patterns too."""
    profile: str | None = None
    acceptance: Sequence[str] = ()
    """By what one sees that it is done."""
    priority: int = 0
    issue_id: str | None = None

    @property
    def prompt(self) -> str:
        """What its agent is told."""
        text = self.description or self.title
        if self.acceptance:
            text += "\n\nDone when:\n" + "\n".join(f"- {one}" for one in self.acceptance)
        return text


@dataclass(frozen=True)
class Plan:
    """Tasks for a goal, as the planner drafted them; goes as a sequence of its tasks, too."""

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
    """A part of a goal; `deps` are the titles of the pieces that come before."""

    title: str
    description: str = ""
    deps: Sequence[str] = ()
    effort: str | None = None


def task_of(data: Mapping[str, Any]) -> Task:
    """A task as the daemon's plans have it."""
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
    """A plan as the daemon has it."""
    tasks = [task_of(one) for one in data.get("tasks") or ()]
    return Plan(tasks, str(data["id"]), data.get("goal"), tuple(data.get("notes") or ()))


def pieces_of(plan: Plan) -> list[Piece]:
    """A plan's tasks without ids: what they come after is named by title."""
    titles = {task.id: task.title for task in plan.tasks}
    return [
        Piece(task.title, task.prompt, tuple(titles.get(one, one) for one in task.dependencies), task.estimated_effort)
        for task in plan.tasks
    ]


def in_order(tasks: Iterable[Task], done: Mapping[str, str]) -> list[Task]:
    """The tasks, each after those it depends on; otherwise as given. `done` are those that sessions were made for, by id or title."""
    left = list(tasks)
    names = {name: task.id for task in left for name in (task.title, task.id)}
    if len({task.id for task in left}) < len(left):
        twice = next(task.id for task in left if sum(other.id == task.id for other in left) > 1)
        raise UsageError(f"two tasks have the id {twice!r}", "give each an id of its own")
    for task in left:
        if unknown := next((one for one in task.dependencies if one not in names and one not in done), None):
            raise UsageError(
                f"{task.title!r} depends on {unknown!r}, which is no task", "name a task by its id or title"
            )
    ordered: list[Task] = []
    placed: set[str] = set()
    while left:
        ready = [
            task for task in left if all(names.get(one, one) in placed or one in done for one in task.dependencies)
        ]
        if not ready:
            raise UsageError(f"{left[0].title!r} comes after itself", "take one of the dependencies out")
        ordered += ready
        placed.update(task.id for task in ready)
        left = [task for task in left if task.id not in placed]
    return ordered
