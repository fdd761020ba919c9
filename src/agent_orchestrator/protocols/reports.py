"""The reports of an agent: written to the spool by the agent, or read by a plugin from its records, transcript,
hooks or protocol.

`sessions/agents/listener.py` turns them into events.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agent_orchestrator.protocols.agent import Activity
from agent_orchestrator.protocols.records import record


@record
class ActivityReport:
    """What the agent is doing; a mere sign of life counts as active."""

    state: Activity
    detail: str = ""
    time: datetime | None = None


@record
class AckReport:
    """The agent began to work on a message; `message` is None if it does not say which."""

    message: str | None
    time: datetime | None = None


@record
class ProgressReport:
    """How far the agent is with its task."""

    done: int | None = None
    total: int | None = None
    step: str = ""
    tests_passed: int | None = None
    time: datetime | None = None


@record
class UsageReport:
    """Tokens and dollars spent since the last such report."""

    model: str = ""
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    usd: float | None = None
    time: datetime | None = None
    forge: int = 0
    """Number of calls of a forge's own command line, `gh` or `glab`."""


@record
class LimitReport:
    """The account's usage limit is reached, until `resets_at` if known; with `model`, only for that model."""

    resets_at: datetime | None = None
    time: datetime | None = None
    model: str = ""


@record
class AskReport:
    """The agent asks a person a question."""

    question: str
    time: datetime | None = None


@record
class DoneReport:
    """The task is done: ready for its pull request."""

    summary: str = ""
    time: datetime | None = None


@record
class ReplyReport:
    """The agent's answer to a comment on its change; `comment` is None if it answers no particular one."""

    text: str
    comment: str | None = None
    time: datetime | None = None


@record
class ReviewReport:
    """A reviewing agent's verdict on the change that it was to review."""

    verdict: str
    body: str = ""
    comments: tuple[Mapping[str, Any], ...] = ()
    """Each with `path`, `line` and `body`."""
    time: datetime | None = None


@record
class OtherReport:
    """An event of an unknown kind; kept unchanged."""

    event: str
    data: Mapping[str, Any]
    time: datetime | None = None


@record
class InvalidReport:
    """A line that cannot be used, and why."""

    reason: str
    excerpt: str


@record
class MessageTakenReport:
    """The agent began to work on a message with this text; the message is identified by the text."""

    text: str
    time: datetime | None = None


@record
class TurnReport:
    """A turn has ended; `text` is the last message of the agent in it."""

    text: str = ""
    time: datetime | None = None


@record
class PermissionReport:
    """The agent waits for permission to use `tool`, for `command` (a shell command, a file), because of `reason`."""

    tool: str
    command: str = ""
    reason: str = ""
    request: str = ""
    """The agent's own id of the request, if it has one."""
    time: datetime | None = None


@record
class ConversationReport:
    """The id with which the agent can continue this conversation."""

    conversation: str
    time: datetime | None = None


Report = (
    ActivityReport
    | AckReport
    | ProgressReport
    | UsageReport
    | LimitReport
    | AskReport
    | DoneReport
    | ReplyReport
    | ReviewReport
    | MessageTakenReport
    | TurnReport
    | PermissionReport
    | ConversationReport
    | OtherReport
    | InvalidReport
)
