"""The interface of a provider's wire format: parse a request, write an answer whole or as a stream, write an error."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_orchestrator.testing.model.conversation import Reading
from agent_orchestrator.testing.model.replies import Failure, Usage


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A tool call to send; `arguments` is text for tools that take free text."""

    name: str
    arguments: Mapping[str, Any] | str
    namespace: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:20])


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to send."""

    model: str
    text: str
    calls: tuple[BoundCall, ...]
    usage: Usage
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:20])


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event; `text` marks a piece of the answer's text, which may be sent slowly."""

    data: object
    event: str | None = None
    text: bool = False


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as the provider sends it."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


class Wire(Protocol):
    """A provider's format; `protocol` is its name in the log."""

    protocol: str

    def read(self, body: Mapping[str, Any], path: str) -> Reading:
        """Parse a request's body."""
        ...

    def whole(self, answer: Answer) -> Mapping[str, Any]:
        """Return the answer as one object."""
        ...

    def frames(self, answer: Answer) -> Iterator[Frame]:
        """Yield the answer as a stream."""
        ...

    def error(self, failure: Failure, now: float) -> ErrorAnswer:
        """Return the error, with headers for the time of a retry."""
        ...


def pieces(text: str) -> list[str]:
    """Split a text into words with their trailing whitespace."""
    return re.findall(r"\S+\s*|\s+", text)


def retry_headers(failure: Failure, now: float) -> dict[str, str]:
    """Return the header for the time of a retry, if the failure has one."""
    if failure.retry_after is not None:
        return {"retry-after": f"{failure.retry_after:g}"}
    if failure.limit_ends is not None:
        return {"retry-after": str(max(0, round(failure.limit_ends - now)))}
    return {}
