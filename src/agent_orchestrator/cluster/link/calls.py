"""What may be called over a link, and how arguments and answers are written: as JSON, by the type hints of what is called.

A call is named by its slot and method (`runtime.launch`) and has that method's own parameters; nothing of the protocols is written
down a second time. Paths are text, times are text, one of several classes carries its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from agent_orchestrator import protocols
from agent_orchestrator.cluster.link.connection import Misunderstood
from agent_orchestrator.cluster.node.repository import Repositories
from agent_orchestrator.protocols import AgentRun, reports
from agent_orchestrator.protocols.text import one_line
from agent_orchestrator.sessions import rescue
from agent_orchestrator.sessions.agents import headless

T = TypeVar("T")
UNFIT = (TypeError, KeyError, ValueError, AttributeError, OverflowError)
"""What is raised over data that are not what they should be."""
PROTOCOL = 1
"""Counted up when daemon and node of different versions would misunderstand each other."""
TOKEN = "AO_NODE_TOKEN"
"""Where a Worker finds its token in its environment."""

_NAMES = {"reports": reports, "asyncio": asyncio}
"""What the protocols import for type checkers alone."""
_LEFT_OUT = {"self", "host", "report"}
"""The object itself, the machine that it acts on, and where its output goes: each side has its own."""


@dataclass(frozen=True, slots=True)
class Run:
    """`AgentRun` as it crosses the link: what the node cannot know by itself."""

    session: str
    generation: int
    pid: int
    started: str
    workspace: Path
    conversation: str | None
    memo: Mapping[str, str]
    cursors: Mapping[str, int]

    @classmethod
    def of(cls, run: AgentRun) -> Run:
        """What of a run crosses the link."""
        return cls(**{one.name: getattr(run, one.name) for one in fields(cls)})


@dataclass(frozen=True, slots=True)
class Holds:
    """A launch that a node holds, as it says so when it comes."""

    session: str
    generation: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node says of itself when it comes."""

    name: str
    boot_id: str
    version: str
    protocol: int
    home: Path
    cpus: int
    memory: int
    """In bytes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    sessions: tuple[Holds, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)
    """Where some programs are that Git and agents need (`git`, `git-lfs`); absent: not there."""
    pid: int = 0
    """The Worker's own process."""


@dataclass(frozen=True, slots=True)
class Call:
    """One thing that may be called."""

    name: str
    parameters: Mapping[str, Any]
    returns: Any

    def dump(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as JSON data."""
        return {name: dump(self.parameters[name], value) for name, value in arguments.items()}

    def load(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments from JSON data."""
        return {name: load(self.parameters[name], value) for name, value in data.items()}


def _call(name: str, function: Callable[..., Any]) -> Call:
    hints = typing.get_type_hints(function, localns=_NAMES)
    parameters = {
        one: Run if hints[one] is AgentRun else hints[one]
        for one in inspect.signature(function).parameters
        if one not in _LEFT_OUT
    }
    return Call(name, parameters, hints["return"])


def _methods(slot: str, protocol: type[Any], *names: str) -> dict[str, Call]:
    return {f"{slot}.{name}": _call(f"{slot}.{name}", getattr(protocol, name)) for name in names}


FUNCTIONS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "rescue.rescue": rescue.rescue,
    "rescue.is_safe": rescue.is_safe,
    "rescue.bring_back": rescue.bring_back,
    "rescue.saved_before": rescue.saved_before,
    "rescue.checkpoint": rescue.checkpoint,
    "rescue.from_checkpoint": rescue.from_checkpoint,
    "rescue.settle": rescue.settle,
    "rescue.unsaved": rescue.unsaved,
}
"""Functions of ours whose first parameter is the machine that they act on."""

CALLS: Mapping[str, Call] = {
    **_methods("workspace", protocols.Workspace, "create", "publish", "remove", "abandon"),
    **_methods("runtime", protocols.Runtime, "launch", "probe", "ended", "deliver", "press", "screen", "resize"),
    **_methods("runtime", protocols.Runtime, "stop", "discard", "leftovers"),
    **_methods("runtime", protocols.Watchable, "watched"),
    **_methods("agent", protocols.Agent, "detect", "launch"),
    **_methods("agent", protocols.Delivers, "deliver"),
    **_methods("agent", protocols.Answers, "answer"),
    **_methods("repository", Repositories, "refresh", "publish", "push", "save", "forget"),
    "headless.plan": _call("headless.plan", headless.plan),
    **{name: _call(name, function) for name, function in FUNCTIONS.items()},
}


# -- as JSON and back --------------------------------------------------------------------------------------------------


def dump(hint: Any, value: Any) -> Any:
    """A value as JSON data, by the hint of its type."""
    if value is None or hint is Any:
        return value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        several = [one for one in inner if one is not type(None)]
        if len(several) == 1:
            return dump(several[0], value)
        if is_dataclass(value):
            return {"is": type(value).__name__, **dump(type(value), value)}
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        hints = _hints(value.__class__)
        return {one.name: dump(hints[one.name], getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: dump(inner[1] if inner else Any, one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [dump(one, item) for one, item in zip(_items(origin, inner, len(value)), value, strict=True)]
    return value


def load(hint: Any, data: Any) -> Any:
    """What `dump` wrote, as the type that the hint names. Raises one of `UNFIT` where it does not fit."""
    if hint is Any or hint is type(None):
        return data if hint is Any else None
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return None if data is None and type(None) in inner else _load_one_of(inner, data)
    if origin is None and isinstance(hint, type):
        return _load_as(hint, data)
    if origin in (dict, Mapping):
        return {name: load(inner[1], value) for name, value in _fitting(data, dict).items()}
    if origin in (list, tuple, Sequence):
        given = _fitting(data, list)
        items = [load(one, item) for one, item in zip(_items(origin, inner, len(given)), given, strict=True)]
        return items if origin is list else tuple(items)
    return data


def _load_one_of(kinds: tuple[Any, ...], data: Any) -> Any:
    several = [one for one in kinds if one is not type(None)]
    if len(several) == 1:
        return load(several[0], data)
    if isinstance(data, dict) and "is" in data:
        named = {getattr(one, "__name__", ""): one for one in several}
        return load(named[data["is"]], {name: value for name, value in data.items() if name != "is"})
    if data is None or any(is_dataclass(one) for one in several):
        raise TypeError(f"{_shown(data)} is none of what it may be")
    return data


def _load_as(kind: type[Any], data: Any) -> Any:
    if is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: load(hints[name], value) for name, value in _fitting(data, dict).items()})
    if issubclass(kind, Enum):
        return kind(data)
    if issubclass(kind, Path | datetime):
        text = _fitting(data, str)
        if "\0" in text:
            raise ValueError("a path with a NUL character")
        return Path(text) if issubclass(kind, Path) else datetime.fromisoformat(text)
    if kind is float:
        number = data if isinstance(data, int) and not isinstance(data, bool) else _fitting(data, float)
        if not math.isfinite(number):
            raise ValueError(f"{number} is no finite number")
        return number
    return _fitting(data, kind) if kind in (str, int, bool) else data


def _fitting(data: Any, kind: type[T]) -> T:
    if kind is int and isinstance(data, float) and data.is_integer():
        data = int(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise TypeError(f"{_shown(data)} is no {kind.__name__}")
    return data


def _shown(data: Any) -> str:
    if isinstance(data, dict | list):
        return f"a {type(data).__name__}"
    return "nothing" if data is None else one_line(str(data)[:60] if not isinstance(data, str) else f"{data[:60]!r}")


@contextlib.contextmanager
def understanding(what: str) -> Iterator[None]:
    """What the other side says may be anything: where it does not fit, raise `Misunderstood`, one line."""
    try:
        yield
    except UNFIT as error:
        why = f"{error} is unknown" if isinstance(error, KeyError) else str(error)
        raise Misunderstood(
            f"{what} cannot be understood: {one_line(why, 200)}", "use the same version there"
        ) from None


def _items(origin: Any, inner: tuple[Any, ...], count: int) -> Sequence[Any]:
    """The hint of each of so many items."""
    if origin is tuple and not (len(inner) == 2 and inner[1] is Ellipsis):
        return inner
    return [inner[0] if inner else Any] * count


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, localns=_NAMES)
