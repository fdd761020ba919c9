"""The models of the audit log's answers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agent_orchestrator.server.schema.models.answer import Answer


class AuditEntry(Answer):
    """Who did what, when and why."""

    seq: int
    time: str
    actor: str
    type: str
    session: str | None
    project: str | None
    cause: int | None = Field(description="The entry that it was done because of.")
    cause_type: str | None
    data: Any = Field(description="What the event says; a text where it cannot be read any more.")
    source: str
    key: str
    generation: int
    at: float = Field(description="The time in seconds since the epoch, just as it is kept.")
    digest: str = Field(description="SHA-256 over the digest before it and the entry.")


class AuditLog(Answer):
    """Entries in order."""

    entries: list[AuditEntry]


class AuditHead(Answer):
    """The last entry."""

    seq: int
    digest: str


class AuditBreak(Answer):
    """Where the log is not what was written."""

    seq: int
    reason: str


class AuditVerdict(Answer):
    """What came of following the chain of digests."""

    entries: int = Field(description="How many fit.")
    head: AuditHead = Field(description="The last one that fits.")
    broken: AuditBreak | None
