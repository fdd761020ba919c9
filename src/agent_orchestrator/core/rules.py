"""Reaction rules as data: what a rule is, and the default rules.

A rule says what to do when its trigger's state holds for a session. Rules come from the configuration, which merges the
user's settings field by field over `DEFAULT_RULES`; this module does not depend on where they come from.
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
STRATEGIES = ("squash", "merge", "rebase")
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

_CI_FAILED = """\
The checks fail on your branch (attempt {{attempt}}):

{{errors}}

Find the cause, fix it, run the checks yourself, and commit."""

_CHANGES_REQUESTED = """\
A reviewer asks for changes:

{{comments}}

Address each point, commit, and say for each what you did."""

_AGENT_EXITED = (
    "Your process ended before you were done ({{reason}}). Look at what is there, and go on where you left off."
)

_AGENT_STUCK = (
    "You were started again because nothing was heard of you. Look at what is there, and go on where you left off."
)

_LIMIT_OVER = "The usage limit is over. Go on where you left off."

RESTART_TEXTS = {"agent-exited": _AGENT_EXITED, "agent-stuck": _AGENT_STUCK, "usage-limit": _LIMIT_OVER}
"""Text for an agent that is started again or may continue, unless the rule has a message."""

_REVIEW_COMMENT = """\
New review comments:

{{comments}}

Answer or address each of them; commit what you change."""

_MERGE_CONFLICTS = """\
Your branch conflicts with {{base}} in:

{{files}}

What {{base}} did there meanwhile:
{{theirs}}

What you did:
{{ours}}

Begin with: {{update}}
Keep what both sides meant, run the checks, and finish with everything committed."""

CHECK_NOT_SET_UP = "check-not-set-up"
"""The trigger for which a person is notified once per project and cause, however many sessions it blocks."""

DEFAULT_RULES: tuple[Rule, ...] = (
    Rule(
        "ci-failed",
        "ci-failed",
        action="send-to-agent",
        message=_CI_FAILED,
        retries=2,
        backoff=(30.0, 600.0),
        escalate_after_count=2,
    ),
    Rule(
        "changes-requested",
        "changes-requested",
        action="send-to-agent",
        message=_CHANGES_REQUESTED,
        escalate_after_seconds=1800.0,
    ),
    Rule(
        "review-comment",
        "review-comment",
        action="send-to-agent",
        message=_REVIEW_COMMENT,
        escalate_after_seconds=1800.0,
    ),
    Rule(
        "merge-conflicts",
        "merge-conflicts",
        action="send-to-agent",
        message=_MERGE_CONFLICTS,
        backoff=(30.0, 600.0),
        escalate_after_seconds=900.0,
    ),
    Rule("conflict-predicted", "conflict-predicted", priority="info"),
    Rule(
        "approved-and-green",
        "approved-and-green",
        auto=False,
        action="merge",
        priority="action",
        strategy="squash",
        delete_after=True,
    ),
    Rule("agent-needs-input", "agent-needs-input", priority="urgent", delay=20.0, unless_watched=True),
    Rule("agent-blocked", "agent-blocked", priority="urgent", delay=20.0, unless_watched=True),
    Rule("agent-stuck", "agent-stuck", priority="urgent", threshold=600.0),
    Rule("agent-exited", "agent-exited", priority="warning"),
    Rule(CHECK_NOT_SET_UP, CHECK_NOT_SET_UP, priority="action"),
    Rule("usage-limit", "usage-limit", action="hold", priority="warning"),
    Rule("budget-exceeded", "budget-exceeded", action="stop", priority="urgent"),
    Rule("pr-merged", "pr-merged", action="clean-up", priority="info"),
    Rule("pr-closed", "pr-closed", priority="warning"),
    Rule("all-complete", "all-complete", priority="info", include_summary=True),
)

TRIGGERS = (
    *(rule.trigger for rule in DEFAULT_RULES),
    "label-added",
    "issue-assigned",
    "issue-comment",
    "agent-idle",
)
"""The triggers with a name of their own; each event type is also a trigger, by its name."""
