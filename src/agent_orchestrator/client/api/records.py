"""What the daemon tells, as objects: the JSON of the HTTP API with its names in snake_case, times as `datetime`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

Kind = TypeVar("Kind")


class AgentRuntime(StrEnum):
    """What keeps an agent's terminal alive."""

    AUTO = "auto"
    TMUX = "tmux"
    PROCESS = "process"
    DOCKER = "docker"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a status rests on: whose word, and when it was given."""

    source: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a pull request."""

    name: str
    state: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A session's pull request."""

    number: int
    url: str | None
    state: str
    head: str | None = None
    checks: tuple[Check, ...] = ()
    review: str = "none"
    mergeable: str = "unknown"
    title: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an agent is."""

    done: int | None = None
    total: int | None = None
    step: str | None = None
    tests_passed: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used."""

    input: int = 0
    output: int = 0
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """A session in short; `state` is `idle`, `working`, `waiting` or `error`."""

    state: str
    status: str
    activity: str
    current_task: str | None
    last_activity: datetime | None
    branch: str
    workspace_path: str | None
    agent: str
    progress: Progress = Progress()


@dataclass(frozen=True, slots=True)
class Message:
    """A message to an agent: `queued`, `held`, `delivered`, `acknowledged` or `failed`."""

    message_id: str | None
    state: str


@dataclass(frozen=True, slots=True)
class Diff:
    """A session's change against its base; as text it is the patch."""

    diff: str
    stat: str
    base: str
    head: str
    files: tuple[Any, ...] = ()
    omitted: tuple[str, ...] = ()
    """Files that are too large to be in the patch."""
    uncommitted: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.diff


_NESTED: Mapping[str, type[Any]] = {
    "evidence": Evidence,
    "pr": PullRequest,
    "progress": Progress,
    "usage": Usage,
    "checks": Check,
}
_TIMES = frozenset({"at", "time", "created_at", "updated_at", "last_activity"})


def snake(name: str) -> str:
    """`workspacePath` → `workspace_path`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def camel(name: str) -> str:
    """`workspace_path` → `workspacePath`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def value_of(name: str, value: Any) -> Any:
    """One value of a JSON object, by the snake_case name it has."""
    if value is None:
        return None
    if name in _TIMES:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    if kind := _NESTED.get(name):
        return tuple(record(kind, one) for one in value) if isinstance(value, list) else record(kind, value)
    return tuple(value) if isinstance(value, list) else value


def record(kind: type[Kind], data: Mapping[str, Any]) -> Kind:
    """A JSON object as such a record; keys that it does not know are left out."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    given = {snake(key): value for key, value in data.items()}
    return kind(**{name: value_of(name, value) for name, value in given.items() if name in known})
