"""What can be heard of an agent: by its own report in the spool, or by a plugin that reads its records, transcript, hooks or
protocol. `sessions/agents/listener.py` makes events of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agent_orchestrator.protocols.agent import Activity
from agent_orchestrator.protocols.records import record


@record
class ActivityReport:
    """What the agent is doing; a bare sign of life counts as active."""

    state: Activity
    detail: str = ""
    time: datetime | None = None


@record
class AckReport:
    """A message was taken up; none: the agent does not say which."""

    message: str | None
    time: datetime | None = None


@record
class ProgressReport:
    """How far the task is."""

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
    """Calls of a forge's own command line, `gh` or `glab`."""


@record
class LimitReport:
    """The account's limit is reached, until then if known; `model`: for that one alone."""

    resets_at: datetime | None = None
    time: datetime | None = None
    model: str = ""


@record
class AskReport:
    """The agent asks a person."""

    question: str
    time: datetime | None = None


@record
class DoneReport:
    """The task is done: ready for its pull request."""

    summary: str = ""
    time: datetime | None = None


@record
class ReplyReport:
    """The agent's answer to a comment on its change; none: to nobody in particular."""

    text: str
    comment: str | None = None
    time: datetime | None = None


@record
class ReviewReport:
    """A reviewing agent's judgement on the change that it was asked about."""

    verdict: str
    body: str = ""
    comments: tuple[Mapping[str, Any], ...] = ()
    """Each with `path`, `line` and `body`."""
    time: datetime | None = None


@record
class OtherReport:
    """An event of a kind that we do not know; kept as it is."""

    event: str
    data: Mapping[str, Any]
    time: datetime | None = None


@record
class InvalidReport:
    """A line that says nothing we can use, and why."""

    reason: str
    excerpt: str


@record
class TookReport:
    """The agent took up a message with this text; which one it was is found by the text."""

    text: str
    time: datetime | None = None


@record
class TurnReport:
    """A turn is over; `text` is the last thing the agent said in it."""

    text: str = ""
    time: datetime | None = None


@record
class PermissionReport:
    """The agent waits for a permission: to use `tool`, for `command` (a shell command, a file), for `reason`."""

    tool: str
    command: str = ""
    reason: str = ""
    request: str = ""
    """The agent's own id of the request, where it has one."""
    time: datetime | None = None


@record
class ConversationReport:
    """The id by which the agent can continue this conversation."""

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
    | TookReport
    | TurnReport
    | PermissionReport
    | ConversationReport
    | OtherReport
    | InvalidReport
)
