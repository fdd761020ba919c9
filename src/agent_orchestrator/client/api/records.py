"""Data of the daemon as objects: the JSON of the HTTP API with its names in snake_case, times as `datetime`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

Kind = TypeVar("Kind")


class AgentRuntime(StrEnum):
    """The program that keeps an agent's terminal alive."""

    AUTO = "auto"
    TMUX = "tmux"
    PROCESS = "process"
    DOCKER = "docker"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The source of a status and when it was reported."""

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
    """The progress of an agent."""

    done: int | None = None
    total: int | None = None
    step: str | None = None
    tests_passed: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens used, and their cost."""

    input: int = 0
    output: int = 0
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """A short status of a session; `state` is `idle`, `working`, `waiting` or `error`."""

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
    """A message to an agent; `state` is `queued`, `held`, `delivered`, `acknowledged` or `failed`."""

    message_id: str | None
    state: str


@dataclass(frozen=True, slots=True)
class Diff:
    """A session's change against its base; `str()` of it is the patch."""

    diff: str
    stat: str
    base: str
    head: str
    files: tuple[Any, ...] = ()
    omitted: tuple[str, ...] = ()
    """Files that are too large for the patch."""
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
_TIME_FIELDS = frozenset({"at", "time", "created_at", "updated_at", "last_activity"})


def to_snake_case(name: str) -> str:
    """Convert camelCase to snake_case: `workspacePath` → `workspace_path`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def to_camel_case(name: str) -> str:
    """Convert snake_case to camelCase: `workspace_path` → `workspacePath`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def convert_value(name: str, value: Any) -> Any:
    """Convert one value of a JSON object: to a `datetime`, a record or a tuple, by its snake_case name."""
    if value is None:
        return None
    if name in _TIME_FIELDS:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    if kind := _NESTED.get(name):
        return tuple(to_record(kind, item) for item in value) if isinstance(value, list) else to_record(kind, value)
    return tuple(value) if isinstance(value, list) else value


def to_record(kind: type[Kind], data: Mapping[str, Any]) -> Kind:
    """Convert a JSON object to a record of this class; keys without a field are left out."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    values = {to_snake_case(key): value for key, value in data.items()}
    return kind(**{name: convert_value(name, value) for name, value in values.items() if name in names})
