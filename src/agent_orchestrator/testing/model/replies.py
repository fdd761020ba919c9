"""The model's answers, independent of providers and agents' tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["open", "in-progress", "done"]


@dataclass(frozen=True, slots=True)
class ReplyUsage:
    """The token figures of an answer; `input` excludes tokens read from or written to the cache."""

    input: int = 1000
    output: int = 50
    cache_read: int = 300
    cache_write: int = 200


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """An HTTP error instead of an answer: `times` times, or each time."""

    status: int
    message: str = ""
    times: int | None = None
    retry_after: float | None = None
    limit_ends: float | None = None
    """Unix time at which a usage limit ends; makes the error the provider's usage limit."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by the agent's name of the tool; `arguments` is text for tools that take free text."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShellAction:
    """Run a command with the agent's shell tool."""

    command: str


@dataclass(frozen=True, slots=True)
class WriteAction:
    """Write a file."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class EditAction:
    """Replace text in a file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class TodoAction:
    """Set the agent's plan or to-do list."""

    steps: Sequence[tuple[State, str]]


@dataclass(frozen=True, slots=True)
class JsonAction:
    """The final answer of a turn with a schema: by the agent's tool for it, else as text."""

    value: Any


Action = ToolCall | ShellAction | WriteAction | EditAction | TodoAction | JsonAction


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """An answer: text, tool calls or both; and delays and failures."""

    text: str = ""
    calls: tuple[Action, ...] = ()
    wait: float = 0.0
    slow: float = 0.0
    hang: str | None = None
    stall: str | None = None
    drop: bool = False
    failure: HttpFailure | None = None
    usage: ReplyUsage = field(default_factory=ReplyUsage)


def text_reply(text: str) -> ScriptedReply:
    """Return an answer of text that ends the turn."""
    return ScriptedReply(text)


def failure_reply(
    status: int, message: str = "", *, times: int | None = None, retry_after: float | None = None
) -> ScriptedReply:
    """Return an HTTP error; without `times`, it is repeated as long as the rule returns it."""
    return ScriptedReply(failure=HttpFailure(status, message, times, retry_after))


def usage_limit_reply(ends: float) -> ScriptedReply:
    """Return the provider's usage limit that ends at this Unix time."""
    return ScriptedReply(failure=HttpFailure(429, limit_ends=ends))
