"""What an event is, and its form as JSON; the kinds of events are in the other modules of this package.

An `Event` records who saw it (`source`), on whose behalf it was recorded (`actor`), which event caused it (`cause`),
when it happened (`time`), what it is about (`project`, `session`, and the launch `generation`), and an idempotency
`key`: an event recorded twice is stored once. Its `body` is an instance of a subclass of `Body`; the body's name in the
log is its class name in kebab-case (`AgentExited` → `agent-exited`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any

from agent_orchestrator.protocols.records import record


def _to_camel_case(name: str) -> str:
    """Return a snake_case name in camelCase."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@cache
def _to_kebab_case(name: str) -> str:
    """Return a class name in kebab-case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


EVENT_KINDS: dict[str, type[Body]] = {}
"""Every kind of event by its name in the log."""


@record
class Body:
    """The content of an event; each kind is a subclass."""

    def __init_subclass__(cls) -> None:
        EVENT_KINDS[_to_kebab_case(cls.__name__)] = cls

    @property
    def type(self) -> str:
        """The kind's name in the log."""
        return _to_kebab_case(type(self).__name__)


@record
class Event:
    """One thing that happened."""

    body: Body
    time: float
    source: str
    key: str
    project: str | None = None
    session: str | None = None
    generation: int = 0
    """The launch it refers to; 0 if that does not matter."""
    seq: int = 0
    """Its number in the log, assigned by the store."""
    actor: str = ""
    """Who acted: `local anna`, `token ci`, `agent app-1`, `rule ci-failed`, `daemon` …; set when it is recorded (`core/actor.py`)."""
    cause: int | None = None
    """The number of the event that caused it."""

    @property
    def type(self) -> str:
        """The kind's name in the log."""
        return self.body.type


@record
class Unknown(Body):
    """An event of a kind that this version does not know, kept unchanged."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The name it came with."""
        return self.name


def encode(body: Body) -> dict[str, Any]:
    """Return a body as JSON data with keys in camelCase, without fields that have their default."""
    if isinstance(body, Unknown):
        return dict(body.data)
    data = {}
    for name, camel, default in _body_fields(type(body)):
        value = getattr(body, name)
        if value != default:
            data[camel] = (
                list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            )
    return data


def decode(kind: str, data: Mapping[str, Any]) -> Body:
    """Return the body from data that `encode` wrote; an unknown kind becomes `Unknown`, and unknown keys are ignored."""
    cls = EVENT_KINDS.get(kind)
    if cls is None or cls is Unknown:
        return Unknown(kind, data)
    values = {}
    for name, camel, _ in _body_fields(cls):
        if camel in data:
            value = data[camel]
            values[name] = tuple(value) if isinstance(value, list) else value
    try:
        return cls(**values)
    except TypeError:
        return Unknown(kind, data)


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as JSON data for users."""
    return {
        "seq": event.seq,
        "type": event.type,
        "session": event.session,
        "project": event.project,
        "source": event.source,
        "time": rfc3339(event.time),
        "generation": event.generation,
        "key": event.key,
        "data": encode(event.body),
    }


def event_from_json(data: Mapping[str, Any]) -> Event:
    """Return an event from JSON data; `key` and `generation` may be missing in a log written by hand."""
    seq = int(data.get("seq") or 0)
    return Event(
        body=decode(str(data["type"]), data.get("data") or {}),
        time=epoch_seconds(data["time"]),
        source=str(data.get("source") or "log"),
        key=str(data.get("key") or f"log:{seq}:{data['type']}:{data['time']}"),
        project=data.get("project"),
        session=data.get("session"),
        generation=int(data.get("generation") or 0),
        seq=seq,
    )


def rfc3339(time: float) -> str:
    """Return seconds since the epoch as RFC 3339 in UTC."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch_seconds(time: str | float) -> float:
    """Return RFC 3339 as seconds since the epoch; a time without zone is UTC, and a number is returned as it is."""
    if isinstance(time, int | float):
        return float(time)
    parsed = datetime.fromisoformat(time)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


_fields_by_kind: dict[type[Body], tuple[tuple[str, str, Any], ...]] = {}
"""Fields of each kind of event, computed once."""


def _body_fields(cls: type[Body]) -> tuple[tuple[str, str, Any], ...]:
    """Return name, JSON name and default of each field."""
    if cls not in _fields_by_kind:
        _fields_by_kind[cls] = tuple(
            (
                item.name,
                _to_camel_case(item.name),
                item.default if item.default_factory is MISSING else item.default_factory(),
            )
            for item in fields(cls)
        )
    return _fields_by_kind[cls]
