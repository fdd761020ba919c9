"""Check a plan: `check_plan(answer, known) -> tasks, faults, notes`. Pure. Look here for the rules that a plan's tasks must follow.

A *fault* makes a plan unusable: its author gets the list of faults and is asked again. A *note* is something that a person should know
before applying the plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from agent_orchestrator.base.text.globs import has_wildcard, matching_paths, parent_folders
from agent_orchestrator.core.plans import EFFORTS, PlannedTask
from agent_orchestrator.protocols.text import INVISIBLE_CHARACTERS

MAX_TITLE_LENGTH, MAX_TEXT_LENGTH, MAX_LINE_LENGTH, MAX_LABEL_LENGTH = 200, 20_000, 500, 80
MAX_LINES = 50
"""Acceptance criteria, labels, files or dependencies of one task."""
MAX_PRIORITY, MAX_ISSUE_NUMBER = 1000, 1_000_000_000
"""The highest absolute priority of a task, and the highest issue number."""
MAX_FENCED_DOCUMENTS = 20
"""Fenced documents of an answer that are tried, from its end."""
MAX_FAULTS = 20
"""Faults of one answer that are listed."""
MAX_COMPARISONS = 50_000
"""Patterns times files; if there are more, they are not compared."""
MAX_OVERLAP_NOTES = 100
"""Pairs of tasks that are listed because they change the same file."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", re.ASCII)
_FENCE = re.compile(r"^[ \t]*```[a-zA-Z]*[ \t]*$", re.MULTILINE)
MAX_ANSWER_LENGTH = 2_000_000
"""Characters of an answer, from its end, that are read."""
_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{INVISIBLE_CHARACTERS}]")


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What a plan is checked against."""

    max_tasks: int = 20
    """The number of tasks that a plan may have."""
    profiles: frozenset[str] = frozenset()
    issues: Mapping[int, str] = field(default_factory=dict)
    """Open issues: number → title."""
    prerequisites: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Open issues: number → numbers of the issues that must be closed first."""


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """The tasks that could be read, the faults that make them unusable, and notes for a person."""

    tasks: tuple[PlannedTask, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def extract_json(text: str) -> Any:
    """Return the JSON document that a text is, or the last one in it, fenced or bare. Raises `ValueError` if there is none."""
    text = text[-MAX_ANSWER_LENGTH:]
    fences = list(_FENCE.finditer(text))[-2 * MAX_FENCED_DOCUMENTS :]
    fenced = [text[begin.end() : end.start()] for begin, end in pairwise(fences)]
    for candidate in (text, *reversed(fenced), text[text.find("{") : text.rfind("}") + 1]):
        try:
            document = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict | list):
            return document
    raise ValueError("there is no JSON document in it")


def check_plan(answer: Any, context: PlanContext) -> CheckedPlan:
    """Check a whole answer: `{"tasks": […], "notes": […]}`, or the tasks alone."""
    data = answer if isinstance(answer, Mapping) else {"tasks": answer}
    task_items = data.get("tasks")
    if not isinstance(task_items, list | tuple):
        return CheckedPlan(faults=("it has no list `tasks`",))
    if not task_items:
        return CheckedPlan(faults=("it has no task",))
    if len(task_items) > context.max_tasks:
        return CheckedPlan(
            faults=(f"it has {len(task_items)} tasks, and {context.max_tasks} at most are wanted: make larger ones",)
        )
    reader = _TaskReader(context)
    tasks = tuple(
        task for position, item in enumerate(task_items, 1) if (task := reader.read_task(position, item)) is not None
    )
    reader.faults += _reference_faults(tasks, context)
    notes = [*_clean_notes(data.get("notes")), *reader.notes]
    if not reader.faults:
        notes += [*_overlap_notes(tasks), *_duplicate_notes(tasks, context)]
    faults = reader.faults[:MAX_FAULTS]
    if len(reader.faults) > MAX_FAULTS:
        faults.append(f"and {len(reader.faults) - MAX_FAULTS} more like these")
    return CheckedPlan(tasks, tuple(faults), tuple(dict.fromkeys(notes)))


class _TaskReader:
    """Reads tasks from JSON data, and collects their faults and notes."""

    def __init__(self, context: PlanContext) -> None:
        self.context = context
        self.faults: list[str] = []
        self.notes: list[str] = []

    def read_task(self, place: int, item: Any) -> PlannedTask | None:
        """Return a task of the plan, or None if the data is not an object; `place` is its position, counted from 1."""
        if not isinstance(item, Mapping):
            self.faults.append(f"task {place} is no object")
            return None
        name = str(item.get("id") or "").strip()
        called = f"task {name}" if _ID.fullmatch(name) else f"task {place}"
        if not _ID.fullmatch(name):
            self.faults.append(f"{called} has the id {name[:40]!r}: letters, digits, '.', '_' and '-', 32 at most")
        return PlannedTask(
            id=name,
            title=self._title(called, item.get("title")),
            description=self._text(called, "description", item.get("description"), MAX_TEXT_LENGTH),
            acceptance=self._list(called, "acceptance", item.get("acceptance")),
            dependencies=self._list(called, "dependencies", item.get("dependencies")),
            effort=self._effort(called, item.get("effort")),
            labels=self._list(called, "labels", item.get("labels"), MAX_LABEL_LENGTH),
            files=self._files(called, item.get("files")),
            profile=self._profile(called, item.get("profile")),
            priority=self._whole(called, "priority", item.get("priority"), MAX_PRIORITY) or 0,
            issue=self._issue(called, item.get("issue")),
        )

    def _title(self, label: str, value: Any) -> str:
        """Return the title on one line; an empty one is a fault."""
        title = " ".join(self._text(label, "title", value, MAX_TITLE_LENGTH).split())
        if not title:
            self.faults.append(f"{label} has no title")
        return title

    def _text(self, label: str, key: str, value: Any, max_length: int) -> str:
        """Return a text without control characters, or "" if it is missing; another type or too long a text is a fault."""
        if value is None:
            return ""
        if not isinstance(value, str):
            self.faults.append(f"{label}: {key} is no text")
            return ""
        if len(value) > max_length:
            self.faults.append(f"{label}: {key} has {len(value)} characters, {max_length} at most")
        return _without_control_characters(value)[:max_length]

    def _list(self, label: str, key: str, value: Any, max_length: int = MAX_LINE_LENGTH) -> tuple[str, ...]:
        """Return a list of one-line texts without repetitions; a single text counts as a list of one."""
        if value is None:
            return ()
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list | tuple) or not all(isinstance(item, str | int) for item in value):
            self.faults.append(f"{label}: {key} is no list of texts")
            return ()
        lines = tuple(
            dict.fromkeys(line for item in value if (line := " ".join(_without_control_characters(str(item)).split())))
        )
        if len(lines) > MAX_LINES or any(len(line) > max_length for line in lines):
            self.faults.append(f"{label}: {key} is too long: {MAX_LINES} at most, of {max_length} characters")
        return lines[:MAX_LINES]

    def _files(self, label: str, value: Any) -> tuple[str, ...]:
        """Return the expected files; a path outside the repository is left out with a note."""
        paths = []
        for path in self._list(label, "files", value):
            relative_path = path.removeprefix("./")
            if relative_path.startswith(("/", "~")) or ".." in relative_path.split("/"):
                self.notes.append(f"{label}: {path} is no path inside the repository, and was left out")
            else:
                paths.append(relative_path)
        return tuple(paths)

    def _effort(self, label: str, value: Any) -> str:
        """Return the effort; an unknown one is a fault and counts as medium."""
        effort = str(value or "medium").strip().lower()
        if effort not in EFFORTS:
            self.faults.append(f"{label}: effort is {effort[:40]!r}, not one of {', '.join(EFFORTS)}")
            return "medium"
        return effort

    def _profile(self, label: str, value: Any) -> str | None:
        """Return the profile, or None if none is named; one that does not exist is left out with a note."""
        name = self._text(label, "profile", value, MAX_LABEL_LENGTH).strip()
        if not name:
            return None
        if name not in self.context.profiles:
            self.notes.append(f"{label}: there is no profile {name}; whoever fits takes it")
            return None
        return name

    def _whole(self, label: str, key: str, value: Any, limit: int) -> int | None:
        """Return a whole number, or None if it is missing; another type or too large a number is a fault."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > limit:
            self.faults.append(f"{label}: {key} is no whole number of at most {limit}")
            return None
        return value

    def _issue(self, label: str, value: Any) -> int | None:
        """Return the number of an open issue, or None; an issue that is not open is a fault."""
        number = self._whole(label, "issue", value, MAX_ISSUE_NUMBER)
        if number is not None and number not in self.context.issues:
            self.faults.append(f"{label}: there is no open issue {number}")
        return number


def _without_control_characters(text: str) -> str:
    """Return a text with plain line ends, without control and invisible characters."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _clean_notes(value: Any) -> list[str]:
    """Return the notes of an answer, each on one line, 20 at most."""
    items = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return [
        " ".join(_without_control_characters(item).split())[:MAX_LINE_LENGTH]
        for item in items
        if isinstance(item, str) and item.strip()
    ][:20]


def _reference_faults(tasks: Sequence[PlannedTask], context: PlanContext) -> list[str]:
    """Return the faults of ids, issues and dependencies: duplicates, unknown ids and cycles."""
    faults: list[str] = []
    task_ids: set[str] = set()
    issues: set[int] = set()
    for task in tasks:
        if task.id in task_ids:
            faults.append(f"two tasks have the id {task.id}")
        task_ids.add(task.id)
        if task.issue is not None and task.issue in issues:
            faults.append(f"two tasks are issue {task.issue}")
        issues |= {task.issue} - {None}  # type: ignore[arg-type]
    for task in tasks:
        if task.id in task.dependencies:
            faults.append(f"task {task.id} depends on itself")
        unknown = [name for name in task.dependencies if name not in task_ids]
        faults += [f"task {task.id} depends on {name}, and there is no such task" for name in unknown]
    loop = find_cycle(_edges(tasks, context))
    if loop and len(loop) > 2:
        faults.append(f"these tasks wait for one another: {' → '.join(loop)}")
    return faults


def _edges(tasks: Sequence[PlannedTask], context: PlanContext) -> dict[str, tuple[str, ...]]:
    """Return task → the tasks before it: its dependencies, and tasks whose issues its own issue comes after, directly or indirectly."""
    by_issue = {task.issue: task.id for task in tasks if task.issue is not None}
    edges: dict[str, tuple[str, ...]] = {}
    for task in tasks:
        predecessors = list(task.dependencies)
        pending_issues, visited_issues = list(context.prerequisites.get(task.issue or 0, ())), set[int]()
        while pending_issues:
            number = pending_issues.pop()
            if number in visited_issues:
                continue
            visited_issues.add(number)
            if number in by_issue:
                predecessors.append(by_issue[number])
            else:
                pending_issues += context.prerequisites.get(number, ())
        edges[task.id] = tuple(dict.fromkeys(name for name in predecessors if name != task.id))
    return edges


def find_cycle(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a path from a task back to itself, which both begins and ends with it, or an empty list if there is no cycle."""
    finished: set[str] = set()
    for start in edges:
        path, iterators = [start], [iter(edges[start])]
        if start in finished:
            continue
        while iterators:
            name = next(iterators[-1], None)
            if name is None:
                finished.add(path.pop())
                iterators.pop()
            elif name in path:
                return [*path[path.index(name) :], name]
            elif name in edges and name not in finished:
                path.append(name)
                iterators.append(iter(edges[name]))
    return []


def sort_by_dependencies(tasks: Sequence[PlannedTask]) -> list[PlannedTask]:
    """Return the tasks so that each comes after its dependencies, otherwise in their given order."""
    remaining, done_ids, ordered = list(tasks), set[str](), list[PlannedTask]()
    while remaining:
        ready = next((task for task in remaining if done_ids.issuperset(task.dependencies)), remaining[0])
        remaining.remove(ready)
        done_ids.add(ready.id)
        ordered.append(ready)
    return ordered


def stages(tasks: Sequence[PlannedTask]) -> list[list[str]]:
    """Return the ids of tasks in stages: first those without dependencies, then those that depend on these only, and so on."""
    depth: dict[str, int] = {}
    for task in sort_by_dependencies(tasks):
        depth[task.id] = max((depth.get(name, 0) + 1 for name in task.dependencies), default=0)
    return [
        [name for name, task_depth in depth.items() if task_depth == level]
        for level in range(max(depth.values(), default=-1) + 1)
    ]


def all_predecessors(tasks: Sequence[PlannedTask]) -> dict[str, frozenset[str]]:
    """Return task → all tasks that come before it, directly or indirectly."""
    predecessors: dict[str, frozenset[str]] = {}
    for task in sort_by_dependencies(tasks):
        predecessors[task.id] = frozenset(task.dependencies).union(
            *(predecessors.get(name, ()) for name in task.dependencies)
        )
    return predecessors


def _overlap_notes(tasks: Sequence[PlannedTask]) -> list[str]:
    """Return a note for each pair of tasks that may run at the same time and are expected to change the same file."""
    matching_paths, notes = _overlapping_paths({path for each_task in tasks for path in each_task.files})
    earlier = all_predecessors(tasks)
    files = {each_task.id: frozenset(each_task.files) for each_task in tasks}
    for index, task in enumerate(tasks):
        for later_task in tasks[index + 1 :]:
            if task.id in earlier[later_task.id] or later_task.id in earlier[task.id]:
                continue
            if len(notes) >= MAX_OVERLAP_NOTES:
                return [*notes, "more of them may change the same files"]
            shared = [path for path in task.files if not files[later_task.id].isdisjoint(matching_paths[path])]
            if shared:
                file_names = ", ".join(shared[:3]) + (f" and {len(shared) - 3} more" if len(shared) > 3 else "")
                notes.append(f"{task.id} and {later_task.id} may run at once, and both change {file_names}")
    return notes


def _overlapping_paths(paths: Collection[str]) -> tuple[dict[str, set[str]], list[str]]:
    """Return path → the paths that may mean the same file: the same path, a folder that contains it, or a pattern that matches it.

    The second value is a note if there are too many patterns to compare.
    """
    matches = {path: {path} for path in paths}
    by_plain_path: dict[str, list[str]] = {}
    for path in paths:
        by_plain_path.setdefault(path.rstrip("/"), []).append(path)
    pairs = [
        (path, container)
        for path in paths
        for name in parent_folders(path)
        for container in by_plain_path.get(name, ())
    ]
    patterns = [path for path in paths if has_wildcard(path)]
    is_comparable = len(patterns) * len(paths) <= MAX_COMPARISONS
    for pattern in patterns if is_comparable else ():
        pairs += [(path, pattern) for path in matching_paths([pattern], paths)]
    for path_a, path_b in pairs:
        matches[path_a].add(path_b)
        matches[path_b].add(path_a)
    return matches, [] if is_comparable else ["it has too many patterns of files for a look at which of them meet"]


def _duplicate_notes(tasks: Sequence[PlannedTask], context: PlanContext) -> list[str]:
    """Return a note for each task whose title is that of an open issue which no task names."""
    titles = {_normalized_title(title): number for number, title in context.issues.items()}
    planned_issues = {task.issue for task in tasks}
    return [
        f"{task.id} looks like issue {number}, which is open: write issue: {number} if it is the same"
        for task in tasks
        if task.issue is None
        and (number := titles.get(_normalized_title(task.title))) is not None
        and number not in planned_issues
    ]


def _normalized_title(title: str) -> str:
    """Return the words of a title in lower case without punctuation, to compare titles."""
    return " ".join(re.findall(r"\w+", title.casefold()))
