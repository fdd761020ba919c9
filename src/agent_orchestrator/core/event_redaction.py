"""Redaction of secrets from events and outbox rows, applied once before they are written, folded or shown."""

from __future__ import annotations

from dataclasses import replace

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import OutboxRow

UNREDACTED_FIELDS = frozenset(
    {
        "key",
        "id",
        "session",
        "project",
        "node",
        "plan",
        "fix",
        "offer",
        "intent",
        "rule",
        "trigger",
        "occurrence",
        "after",
    }
    | {
        "path",
        "repo",
        "link",
        "home",
        "git_dir",
        "git_env",
        "log",
        "file",
        "files",
        "config",
        "handle",
        "memo",
        "conversation",
    }
    | {"branch", "base", "onto", "head", "commit", "base_commit", "base_head", "base_before", "ref", "tree", "digest"}
)
"""Names of fields that stay unchanged: identifiers, paths and commits that are needed literally and that no person or agent writes."""


def without_secrets(event: Event) -> Event:
    """Return the event with secrets replaced."""
    body = REDACTOR.redact_tree(event.body, UNREDACTED_FIELDS)
    return event if body is event.body else replace(event, body=body)


def row_without_secrets(row: OutboxRow) -> OutboxRow:
    """Return the outbox row with secrets replaced in its arguments and its result."""
    args, result = REDACTOR.redact_tree(row.intent.args, UNREDACTED_FIELDS), REDACTOR.redact_text(row.result)
    if args is row.intent.args and result is row.result:
        return row
    return replace(row, intent=replace(row.intent, args=args), result=result)
