"""The default rules with their limits, and the triggers that have a name. Pure. Their messages: `default_messages.py`.

Look here for what happens, and after how long, where the configuration says nothing: it is merged field by field over
`DEFAULT_RULES`.
"""

from __future__ import annotations

from agent_orchestrator.core.rules.default_messages import (
    CHANGES_REQUESTED,
    CI_FAILED,
    MERGE_CONFLICTS,
    REVIEW_COMMENT,
)
from agent_orchestrator.core.rules.model import CHECK_NOT_SET_UP, Rule
from agent_orchestrator.core.rules.stuck_threshold import STUCK_AFTER_SECONDS

DEFAULT_RULES: tuple[Rule, ...] = (
    Rule(
        "ci-failed",
        "ci-failed",
        action="send-to-agent",
        message=CI_FAILED,
        retries=2,
        backoff=(30.0, 600.0),
        escalate_after_count=2,
    ),
    Rule(
        "changes-requested",
        "changes-requested",
        action="send-to-agent",
        message=CHANGES_REQUESTED,
        escalate_after_seconds=1800.0,
    ),
    Rule(
        "review-comment",
        "review-comment",
        action="send-to-agent",
        message=REVIEW_COMMENT,
        escalate_after_seconds=1800.0,
    ),
    Rule(
        "merge-conflicts",
        "merge-conflicts",
        action="send-to-agent",
        message=MERGE_CONFLICTS,
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
    Rule("agent-stuck", "agent-stuck", priority="urgent", threshold=STUCK_AFTER_SECONDS),
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
