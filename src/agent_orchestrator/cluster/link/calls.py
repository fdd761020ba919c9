"""The calls that can be made over a link, and how arguments and answers become JSON, by the type hints of the called function.

A call is named by its slot and method (`runtime.launch`) and has that method's own parameters, so the protocols are not declared twice.
Paths and times become text; a value whose type is one of several classes carries its class's name.
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
from agent_orchestrator.cluster.link.connection import ProtocolViolation
from agent_orchestrator.cluster.node.repository import Repositories
from agent_orchestrator.protocols import RunningLaunch, reports
from agent_orchestrator.protocols.text import one_line
from agent_orchestrator.sessions import rescue
from agent_orchestrator.sessions.agents import headless

T = TypeVar("T")
DATA_ERRORS = (TypeError, KeyError, ValueError, AttributeError, OverflowError)
"""Exceptions that data of an unexpected shape causes."""
PROTOCOL_VERSION = 1
"""Incremented when daemon and node of different versions would misunderstand each other."""
TOKEN_VARIABLE = "AO_NODE_TOKEN"
"""The environment variable with a Worker's token."""

_WIRE_NAMES: Mapping[str, str] = {
    "MessageTakenReport": "TookReport",
    "NotReady": "Held",
    "ProbeFailed": "Unseen",
    "ReadyToType": "Typable",
    "orphaned_terminals": "leftovers",
    "plugin_data": "memo",
    "source_id": "place",
}
"""Class, method or field → its name on the link, where that is another one: it stays the same for nodes of other versions."""

_WIRE_PARAMETERS: Mapping[str, str] = {"expected": "known"}
"""Parameter → its name on the link, where that is another one."""

_HINT_NAMES = {"reports": reports, "asyncio": asyncio}
"""Names that the protocols import for type checkers only."""
_NOT_SENT = {"self", "host", "report"}
"""Parameters that are not sent: the object itself, its machine, and where its output goes; each side has its own."""


@dataclass(frozen=True, slots=True)
class SentLaunch:
    """`RunningLaunch` as it is sent over the link: what the node does not know."""

    session: str
    generation: int
    pid: int
    started: str
    workspace: Path
    conversation: str | None
    plugin_data: Mapping[str, str]
    cursors: Mapping[str, int]

    @classmethod
    def from_running_launch(cls, run: RunningLaunch) -> SentLaunch:
        """Return the part of a run that is sent over the link."""
        return cls(**{attribute.name: getattr(run, attribute.name) for attribute in fields(cls)})


@dataclass(frozen=True, slots=True)
class HeldLaunch:
    """A launch that a node holds, as reported when it connects."""

    session: str
    generation: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node reports about itself when it connects."""

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
    sessions: tuple[HeldLaunch, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)
    """Paths of some programs that Git and agents need (`git`, `git-lfs`); a missing program is absent."""
    pid: int = 0
    """The Worker's own process id."""


@dataclass(frozen=True, slots=True)
class LinkCall:
    """One function that can be called over a link."""

    name: str
    parameters: Mapping[str, Any]
    returns: Any
    method: str = ""
    """The name of the plugin's or repository's method, if it is one."""

    def arguments_to_json(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as JSON data."""
        return {
            _WIRE_PARAMETERS.get(name, name): to_json(self.parameters[name], value) for name, value in arguments.items()
        }

    def arguments_from_json(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments from JSON data."""
        names = {_WIRE_PARAMETERS.get(name, name): name for name in self.parameters}
        return {names[name]: from_json(self.parameters[names[name]], value) for name, value in data.items()}


def _describe_call(name: str, function: Callable[..., Any], method: str = "") -> LinkCall:
    """Return the call for a function, with the types of its parameters and its result."""
    hints = typing.get_type_hints(function, localns=_HINT_NAMES)
    parameters = {
        parameter: SentLaunch if hints[parameter] is RunningLaunch else hints[parameter]
        for parameter in inspect.signature(function).parameters
        if parameter not in _NOT_SENT
    }
    return LinkCall(name, parameters, hints["return"], method)


def _describe_methods(slot: str, protocol: type[Any], *names: str) -> dict[str, LinkCall]:
    """Return the calls for some methods of a protocol, by name."""
    calls = (_describe_call(f"{slot}.{_wire_name(name)}", getattr(protocol, name), name) for name in names)
    return {call.name: call for call in calls}


def _wire_name(name: str) -> str:
    """Return the name that a class, method or field has on the link."""
    return _WIRE_NAMES.get(name, name)


RESCUE_FUNCTIONS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "rescue.rescue": rescue.rescue,
    "rescue.is_safe": rescue.removal_obstacles,
    "rescue.bring_back": rescue.restore_work,
    "rescue.saved_before": rescue.stored_rescue,
    "rescue.checkpoint": rescue.checkpoint,
    "rescue.from_checkpoint": rescue.restore_checkpoint,
    "rescue.settle": rescue.mark_restored,
    "rescue.unsaved": rescue.describe_uncommitted,
}
"""Functions whose first parameter is the machine that they act on."""

CALLS: Mapping[str, LinkCall] = {
    **_describe_methods("workspace", protocols.Workspace, "create", "publish", "remove", "abandon"),
    **_describe_methods(
        "runtime", protocols.Runtime, "launch", "probe", "ended", "deliver", "press", "screen", "resize"
    ),
    **_describe_methods("runtime", protocols.Runtime, "stop", "discard", "orphaned_terminals", "watched"),
    **_describe_methods("agent", protocols.Agent, "detect", "launch", "deliver", "answer"),
    **_describe_methods("repository", Repositories, "refresh", "publish", "push", "save", "forget"),
    "headless.plan": _describe_call("headless.plan", headless.plan_launch),
    **{name: _describe_call(name, function) for name, function in RESCUE_FUNCTIONS.items()},
}
"""All calls to plugins, repositories and functions of a node, by name."""


# -- as JSON and back --------------------------------------------------------------------------------------------------


def to_json(hint: Any, value: Any) -> Any:
    """Return a value as JSON data, by its type hint."""
    if value is None or hint is Any:
        return value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [part for part in inner if part is not type(None)]
        if len(kinds) == 1:
            return to_json(kinds[0], value)
        if is_dataclass(value):
            return {"is": _wire_name(type(value).__name__), **to_json(type(value), value)}
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        hints = _hints(value.__class__)
        return {_wire_name(part.name): to_json(hints[part.name], getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, Mapping):
        return {name: to_json(inner[1] if inner else Any, part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(part, item) for part, item in zip(_item_hints(origin, inner, len(value)), value, strict=True)]
    return value


def from_json(hint: Any, data: Any) -> Any:
    """Return the value that `dump` encoded, as the type of the hint. Raises one of `DATA_ERRORS` if the data does not fit."""
    if hint is Any or hint is type(None):
        return data if hint is Any else None
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return None if data is None and type(None) in inner else _load_one_of(inner, data)
    if origin is None and isinstance(hint, type):
        return _load_as(hint, data)
    if origin in (dict, Mapping):
        return {name: from_json(inner[1], value) for name, value in _checked_type(data, dict).items()}
    if origin in (list, tuple, Sequence):
        entries = _checked_type(data, list)
        items = [
            from_json(item_hint, item)
            for item_hint, item in zip(_item_hints(origin, inner, len(entries)), entries, strict=True)
        ]
        return items if origin is list else tuple(items)
    return data


def _load_one_of(kinds: tuple[Any, ...], data: Any) -> Any:
    """Return a value whose type is one of several."""
    candidates = [kind for kind in kinds if kind is not type(None)]
    if len(candidates) == 1:
        return from_json(candidates[0], data)
    if isinstance(data, dict) and "is" in data:
        named = {_wire_name(getattr(kind, "__name__", "")): kind for kind in candidates}
        return from_json(named[data["is"]], {name: value for name, value in data.items() if name != "is"})
    if data is None or any(is_dataclass(kind) for kind in candidates):
        raise TypeError(f"{_describe_data(data)} is none of what it may be")
    return data


def _load_as(kind: type[Any], data: Any) -> Any:
    """Return a value of one class."""
    if is_dataclass(kind):
        hints, names = _hints(kind), {_wire_name(part.name): part.name for part in fields(kind)}
        values = {names[name]: value for name, value in _checked_type(data, dict).items()}
        return kind(**{name: from_json(hints[name], value) for name, value in values.items()})
    if issubclass(kind, Enum):
        return kind(data)
    if issubclass(kind, Path | datetime):
        text = _checked_type(data, str)
        if "\0" in text:
            raise ValueError("a path with a NUL character")
        return Path(text) if issubclass(kind, Path) else datetime.fromisoformat(text)
    if kind is float:
        number = data if isinstance(data, int) and not isinstance(data, bool) else _checked_type(data, float)
        if not math.isfinite(number):
            raise ValueError(f"{number} is no finite number")
        return number
    return _checked_type(data, kind) if kind in (str, int, bool) else data


def _checked_type(data: Any, kind: type[T]) -> T:
    """Return the data, checked to be of this type; raise `TypeError` otherwise.

    A float without fraction counts as an int.
    """
    if kind is int and isinstance(data, float) and data.is_integer():
        data = int(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise TypeError(f"{_describe_data(data)} is no {kind.__name__}")
    return data


def _describe_data(data: Any) -> str:
    """Return a short description of data for an error text."""
    if isinstance(data, dict | list):
        return f"a {type(data).__name__}"
    return "nothing" if data is None else one_line(str(data)[:60] if not isinstance(data, str) else f"{data[:60]!r}")


@contextlib.contextmanager
def parsing_peer_data(what: str) -> Iterator[None]:
    """Raise `ProtocolViolation`, with a one-line text, if data from the other side does not fit in the `with` block."""
    try:
        yield
    except DATA_ERRORS as error:
        reason = f"{error} is unknown" if isinstance(error, KeyError) else str(error)
        raise ProtocolViolation(
            f"{what} cannot be understood: {one_line(reason, 200)}", "use the same version there"
        ) from None


def _item_hints(origin: Any, inner: tuple[Any, ...], count: int) -> Sequence[Any]:
    """Return the type hint of each of `count` items."""
    if origin is tuple and not (len(inner) == 2 and inner[1] is Ellipsis):
        return inner
    return [inner[0] if inner else Any] * count


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the type hints of a class's fields."""
    return typing.get_type_hints(cls, localns=_HINT_NAMES)
