"""Reaction rules as data: what a rule is. The default rules: `default_rules.py`.

A rule says what to do when its trigger's state holds for a session. Rules come from the configuration, which merges the
user's settings field by field over the default rules; this module does not depend on where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ACTIONS = (
    "send-to-agent",
    "notify",
    "merge",
    "rerun-ci",
    "spawn",
    "restart",
    "stop",
    "escalate",
    "command",
    "hold",
    "clean-up",
)
"""What a rule can do."""
PRIORITIES = ("urgent", "action", "warning", "info")
"""Levels of notifications, most urgent first."""
MERGE_STRATEGIES = ("squash", "merge", "rebase")
"""Ways to merge a pull request."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What to do when a trigger's state holds."""

    name: str
    trigger: str
    auto: bool = True
    """False: notify a person and offer the action."""
    action: str = "notify"
    message: str = ""
    """A sandboxed template with `TEMPLATE_VARIABLES`; empty: the action's default text."""
    retries: int | None = None
    """Attempts within one unbroken episode; None: no limit."""
    backoff: tuple[float, float] | None = None
    """Seconds before the second attempt, and the longest pause between attempts."""
    escalate_after_count: int | None = None
    escalate_after_seconds: float | None = None
    escalate: bool = False
    """After the last retry, notify with priority urgent."""
    threshold: float | None = None
    """Seconds that the state must have lasted before the trigger counts."""
    delay: float | None = None
    """Seconds to wait; the rule acts only if the state still holds then."""
    unless_watched: bool = False
    """Do nothing while a person is viewing the session."""
    condition: str = ""
    """A sandboxed expression with `TEMPLATE_VARIABLES`; empty: always."""
    priority: str | None = None
    """Priority of the rule's notifications; None: according to the event."""
    strategy: str | None = None
    """For `merge`."""
    delete_after: bool = False
    """For `merge`: remove the branch after the merge."""
    include_summary: bool = False
    approval_after: int | None = None
    """After this many attempts, a person must approve each further one."""
    command: tuple[str, ...] = ()
    """For `command`: the command to run."""
    timeout: float = 600.0
    """For `command`: seconds after which it is ended."""
    agent: str | None = None
    """For `spawn`: the profile or agent."""


TEMPLATE_VARIABLES: Mapping[str, str] = {
    "trigger": "the trigger's name",
    "session": "the session: `session.id`, `session.name`, `session.status` …",
    "project": "the project's id",
    "task": "the session's task",
    "title": "the task's title",
    "branch": "the session's branch",
    "base": "the branch it is to land on",
    "agent": "the agent's name",
    "issue": "the issue: `issue.id`, `issue.title`, `issue.labels` …",
    "pr": "the pull request: `pr.number`, `pr.url`, `pr.review` …",
    "checks": "the checks, each with name, state and url",
    "errors": "the failing checks with the relevant part of their logs",
    "comments": "review comments with file, line, author and text",
    "comment": "the one comment that triggered it",
    "author": "who did what triggered it",
    "by": "what the author is: `person`, `bot` or `agent`",
    "files": "the files that conflict or collide",
    "ours": "the titles of the session's own commits, for a conflict",
    "theirs": "what the other side did to these files: its commits, by whose session",
    "update": "the command that begins to bring the branch up to date",
    "other": "the other session of a predicted conflict",
    "label": "the label that was added",
    "labels": "all labels of the issue or pull request",
    "question": "what the agent asks",
    "reason": "why it is blocked, stuck, limited or ended",
    "exit_code": "the agent's exit code",
    "resets_at": "when the usage limit ends",
    "usage": "tokens and dollars used so far",
    "budget": "the limit that was met",
    "summary": "what the agent said it did, or what all sessions did",
    "attempt": "which attempt this is, from 1",
    "retries": "how many attempts there may be",
    "event": "the event that triggered it, as recorded",
}
"""The variables available in `message` and `condition`, with their descriptions."""

CHECK_NOT_SET_UP = "check-not-set-up"
"""The trigger for which a person is notified once per project and cause, however many sessions it blocks."""
