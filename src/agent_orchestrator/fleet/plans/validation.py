"""What is wrong with a plan: `check(answer, known) -> tasks, faults, notes`. Pure.

A *fault* makes a plan unusable: whoever made it is told the list of them, and asked again. A *note* is something that a person should
know before he applies it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from agent_orchestrator.base.text.globs import covered, folders, has_wildcard
from agent_orchestrator.core.plans import EFFORTS, PlannedTask
from agent_orchestrator.protocols.text import UNSEEN

LONGEST_TITLE, LONGEST_TEXT, LONGEST_LINE, LONGEST_LABEL = 200, 20_000, 500, 80
MOST_LINES = 50
MOST_PRIORITY, MOST_NUMBER = 1000, 1_000_000_000
"""Acceptance criteria, labels, files or dependencies of one task."""
MOST_FENCED = 20
"""Fenced documents of an answer that are tried."""
MOST_FAULTS = 20
"""Of one answer that are named."""
MOST_COMPARED = 50_000
"""Patterns times files: more are not compared."""
MOST_OVERLAPS = 100
"""Pairs of tasks that are named because they change the same file."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", re.ASCII)
_FENCE = re.compile(r"^[ \t]*```[a-zA-Z]*[ \t]*$", re.MULTILINE)
LONGEST_ANSWER = 2_000_000
"""Characters of an answer, from its end, that are looked at."""
_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{UNSEEN}]")


@dataclass(frozen=True, slots=True)
class Known:
    """What a plan is checked against."""

    most: int = 20
    """Tasks that it may have."""
    profiles: frozenset[str] = frozenset()
    issues: Mapping[int, str] = field(default_factory=dict)
    """Open issues: number → title."""
    after: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Open issues: number → those that must be closed before."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The tasks as far as they can be read, what makes them unusable, and what a person should know."""

    tasks: tuple[PlannedTask, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def json_in(text: str) -> Any:
    """The JSON document that a text is, or that stands in it last, fenced or bare. Raises `ValueError`."""
    text = text[-LONGEST_ANSWER:]
    fences = list(_FENCE.finditer(text))[-2 * MOST_FENCED :]
    fenced = [text[begin.end() : end.start()] for begin, end in pairwise(fences)]
    for candidate in (text, *reversed(fenced), text[text.find("{") : text.rfind("}") + 1]):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict | list):
            return found
    raise ValueError("there is no JSON document in it")


def check(answer: Any, known: Known) -> Checked:
    """Look at a whole answer: `{"tasks": […], "notes": […]}`, or the tasks alone."""
    data = answer if isinstance(answer, Mapping) else {"tasks": answer}
    given = data.get("tasks")
    if not isinstance(given, list | tuple):
        return Checked(faults=("it has no list `tasks`",))
    if not given:
        return Checked(faults=("it has no task",))
    if len(given) > known.most:
        return Checked(faults=(f"it has {len(given)} tasks, and {known.most} at most are wanted: make larger ones",))
    reader = _Reader(known)
    tasks = tuple(task for place, one in enumerate(given, 1) if (task := reader.task(place, one)) is not None)
    reader.faults += _references(tasks, known)
    notes = [*_lines(data.get("notes")), *reader.notes]
    if not reader.faults:
        notes += [*_overlaps(tasks), *_duplicates(tasks, known)]
    faults = reader.faults[:MOST_FAULTS]
    if len(reader.faults) > MOST_FAULTS:
        faults.append(f"and {len(reader.faults) - MOST_FAULTS} more like these")
    return Checked(tasks, tuple(faults), tuple(dict.fromkeys(notes)))


class _Reader:
    """Reads tasks, and keeps what is wrong with them."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.faults: list[str] = []
        self.notes: list[str] = []

    def task(self, place: int, given: Any) -> PlannedTask | None:
        if not isinstance(given, Mapping):
            self.faults.append(f"task {place} is no object")
            return None
        name = str(given.get("id") or "").strip()
        called = f"task {name}" if _ID.fullmatch(name) else f"task {place}"
        if not _ID.fullmatch(name):
            self.faults.append(f"{called} has the id {name[:40]!r}: letters, digits, '.', '_' and '-', 32 at most")
        return PlannedTask(
            id=name,
            title=self._title(called, given.get("title")),
            description=self._text(called, "description", given.get("description"), LONGEST_TEXT),
            acceptance=self._list(called, "acceptance", given.get("acceptance")),
            dependencies=self._list(called, "dependencies", given.get("dependencies")),
            effort=self._effort(called, given.get("effort")),
            labels=self._list(called, "labels", given.get("labels"), LONGEST_LABEL),
            files=self._files(called, given.get("files")),
            profile=self._profile(called, given.get("profile")),
            priority=self._whole(called, "priority", given.get("priority"), MOST_PRIORITY) or 0,
            issue=self._issue(called, given.get("issue")),
        )

    def _title(self, called: str, given: Any) -> str:
        title = " ".join(self._text(called, "title", given, LONGEST_TITLE).split())
        if not title:
            self.faults.append(f"{called} has no title")
        return title

    def _text(self, called: str, key: str, given: Any, most: int) -> str:
        if given is None:
            return ""
        if not isinstance(given, str):
            self.faults.append(f"{called}: {key} is no text")
            return ""
        if len(given) > most:
            self.faults.append(f"{called}: {key} has {len(given)} characters, {most} at most")
        return _clean(given)[:most]

    def _list(self, called: str, key: str, given: Any, longest: int = LONGEST_LINE) -> tuple[str, ...]:
        if given is None:
            return ()
        if isinstance(given, str):
            given = [given]
        if not isinstance(given, list | tuple) or not all(isinstance(one, str | int) for one in given):
            self.faults.append(f"{called}: {key} is no list of texts")
            return ()
        lines = tuple(dict.fromkeys(line for one in given if (line := " ".join(_clean(str(one)).split()))))
        if len(lines) > MOST_LINES or any(len(line) > longest for line in lines):
            self.faults.append(f"{called}: {key} is too long: {MOST_LINES} at most, of {longest} characters")
        return lines[:MOST_LINES]

    def _files(self, called: str, given: Any) -> tuple[str, ...]:
        found = []
        for path in self._list(called, "files", given):
            plain = path.removeprefix("./")
            if plain.startswith(("/", "~")) or ".." in plain.split("/"):
                self.notes.append(f"{called}: {path} is no path inside the repository, and was left out")
            else:
                found.append(plain)
        return tuple(found)

    def _effort(self, called: str, given: Any) -> str:
        effort = str(given or "medium").strip().lower()
        if effort not in EFFORTS:
            self.faults.append(f"{called}: effort is {effort[:40]!r}, not one of {', '.join(EFFORTS)}")
            return "medium"
        return effort

    def _profile(self, called: str, given: Any) -> str | None:
        name = self._text(called, "profile", given, LONGEST_LABEL).strip()
        if not name:
            return None
        if name not in self.known.profiles:
            self.notes.append(f"{called}: there is no profile {name}; whoever fits takes it")
            return None
        return name

    def _whole(self, called: str, key: str, given: Any, most: int) -> int | None:
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int) or abs(given) > most:
            self.faults.append(f"{called}: {key} is no whole number of at most {most}")
            return None
        return given

    def _issue(self, called: str, given: Any) -> int | None:
        number = self._whole(called, "issue", given, MOST_NUMBER)
        if number is not None and number not in self.known.issues:
            self.faults.append(f"{called}: there is no open issue {number}")
        return number


def _clean(text: str) -> str:
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _lines(given: Any) -> list[str]:
    found = [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
    return [" ".join(_clean(one).split())[:LONGEST_LINE] for one in found if isinstance(one, str) and one.strip()][:20]


def _references(tasks: Sequence[PlannedTask], known: Known) -> list[str]:
    faults: list[str] = []
    seen: set[str] = set()
    issues: set[int] = set()
    for task in tasks:
        if task.id in seen:
            faults.append(f"two tasks have the id {task.id}")
        seen.add(task.id)
        if task.issue is not None and task.issue in issues:
            faults.append(f"two tasks are issue {task.issue}")
        issues |= {task.issue} - {None}  # type: ignore[arg-type]
    for task in tasks:
        if task.id in task.dependencies:
            faults.append(f"task {task.id} depends on itself")
        unknown = [name for name in task.dependencies if name not in seen]
        faults += [f"task {task.id} depends on {name}, and there is no such task" for name in unknown]
    circle = cycle(_edges(tasks, known))
    if circle and len(circle) > 2:
        faults.append(f"these tasks wait for one another: {' → '.join(circle)}")
    return faults


def _edges(tasks: Sequence[PlannedTask], known: Known) -> dict[str, tuple[str, ...]]:
    """Task → those before it: by the plan, and by what its issue waits for already, on whatever way."""
    by_issue = {task.issue: task.id for task in tasks if task.issue is not None}
    edges: dict[str, tuple[str, ...]] = {}
    for task in tasks:
        before = list(task.dependencies)
        ahead, seen = list(known.after.get(task.issue or 0, ())), set[int]()
        while ahead:
            number = ahead.pop()
            if number in seen:
                continue
            seen.add(number)
            if number in by_issue:
                before.append(by_issue[number])
            else:
                ahead += known.after.get(number, ())
        edges[task.id] = tuple(dict.fromkeys(name for name in before if name != task.id))
    return edges


def cycle(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """A way from a task back to itself, begun and ended by it; none: an empty list."""
    over: set[str] = set()
    for start in edges:
        way, ahead = [start], [iter(edges[start])]
        if start in over:
            continue
        while ahead:
            name = next(ahead[-1], None)
            if name is None:
                over.add(way.pop())
                ahead.pop()
            elif name in way:
                return [*way[way.index(name) :], name]
            elif name in edges and name not in over:
                way.append(name)
                ahead.append(iter(edges[name]))
    return []


def in_order(tasks: Sequence[PlannedTask]) -> list[PlannedTask]:
    """Each after those that it depends on, otherwise as they stand."""
    left, done, found = list(tasks), set[str](), list[PlannedTask]()
    while left:
        ready = next((task for task in left if done.issuperset(task.dependencies)), left[0])
        left.remove(ready)
        done.add(ready.id)
        found.append(ready)
    return found


def layers(tasks: Sequence[PlannedTask]) -> list[list[str]]:
    """What may be worked on at once: those that wait for nothing, those that wait for these only, and so on."""
    depth: dict[str, int] = {}
    for task in in_order(tasks):
        depth[task.id] = max((depth.get(name, 0) + 1 for name in task.dependencies), default=0)
    return [[name for name, at in depth.items() if at == level] for level in range(max(depth.values(), default=-1) + 1)]


def before(tasks: Sequence[PlannedTask]) -> dict[str, frozenset[str]]:
    """Task → all that come before it, by whatever way."""
    found: dict[str, frozenset[str]] = {}
    for task in in_order(tasks):
        found[task.id] = frozenset(task.dependencies).union(*(found.get(name, ()) for name in task.dependencies))
    return found


def _overlaps(tasks: Sequence[PlannedTask]) -> list[str]:
    """Two that may run at once and are expected to change the same file."""
    meeting, notes = _meeting({path for task in tasks for path in task.files})
    earlier = before(tasks)
    files = {task.id: frozenset(task.files) for task in tasks}
    for place, one in enumerate(tasks):
        for other in tasks[place + 1 :]:
            if one.id in earlier[other.id] or other.id in earlier[one.id]:
                continue
            if len(notes) >= MOST_OVERLAPS:
                return [*notes, "more of them may change the same files"]
            shared = [path for path in one.files if not files[other.id].isdisjoint(meeting[path])]
            if shared:
                named = ", ".join(shared[:3]) + (f" and {len(shared) - 3} more" if len(shared) > 3 else "")
                notes.append(f"{one.id} and {other.id} may run at once, and both change {named}")
    return notes


def _meeting(paths: Collection[str]) -> tuple[dict[str, set[str]], list[str]]:
    """Each path with those that may be the same file: one names it, a folder around it, or a pattern that it follows."""
    found = {path: {path} for path in paths}
    bare: dict[str, list[str]] = {}
    for path in paths:
        bare.setdefault(path.rstrip("/"), []).append(path)
    meet = [(path, around) for path in paths for name in folders(path) for around in bare.get(name, ())]
    patterns = [path for path in paths if has_wildcard(path)]
    few = len(patterns) * len(paths) <= MOST_COMPARED
    for pattern in patterns if few else ():
        meet += [(path, pattern) for path in covered([pattern], paths)]
    for one, other in meet:
        found[one].add(other)
        found[other].add(one)
    return found, [] if few else ["it has too many patterns of files for a look at which of them meet"]


def _duplicates(tasks: Sequence[PlannedTask], known: Known) -> list[str]:
    titles = {_words(title): number for number, title in known.issues.items()}
    taken = {task.issue for task in tasks}
    return [
        f"{task.id} looks like issue {number}, which is open: write issue: {number} if it is the same"
        for task in tasks
        if task.issue is None and (number := titles.get(_words(task.title))) is not None and number not in taken
    ]


def _words(title: str) -> str:
    return " ".join(re.findall(r"\w+", title.casefold()))
