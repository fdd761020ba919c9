"""The interface of a provider's wire format: parse a request, write an answer whole or as a stream, write an error."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_orchestrator.testing.model.conversation import ParsedBody
from agent_orchestrator.testing.model.replies import HttpFailure, ReplyUsage


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A tool call to send; `arguments` is text for tools that take free text."""

    name: str
    arguments: Mapping[str, Any] | str
    namespace: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:20])


@dataclass(frozen=True, slots=True)
class ProviderAnswer:
    """An answer to send."""

    model: str
    text: str
    calls: tuple[BoundCall, ...]
    usage: ReplyUsage
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:20])


@dataclass(frozen=True, slots=True)
class StreamEvent:
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


class WireFormat(Protocol):
    """A provider's format; `protocol` is its name in the log."""

    protocol: str

    def read(self, body: Mapping[str, Any], path: str) -> ParsedBody:
        """Parse a request's body."""
        ...

    def to_object(self, answer: ProviderAnswer) -> Mapping[str, Any]:
        """Return the answer as one object."""
        ...

    def to_stream(self, answer: ProviderAnswer) -> Iterator[StreamEvent]:
        """Yield the answer as a stream."""
        ...

    def error(self, failure: HttpFailure, now: float) -> ErrorAnswer:
        """Return the error, with headers for the time of a retry."""
        ...


def split_words(text: str) -> list[str]:
    """Split a text into words with their trailing whitespace."""
    return re.findall(r"\S+\s*|\s+", text)


def retry_headers(failure: HttpFailure, now: float) -> dict[str, str]:
    """Return the header for the time of a retry, if the failure has one."""
    if failure.retry_after is not None:
        return {"retry-after": f"{failure.retry_after:g}"}
    if failure.limit_ends is not None:
        return {"retry-after": str(max(0, round(failure.limit_ends - now)))}
    return {}
