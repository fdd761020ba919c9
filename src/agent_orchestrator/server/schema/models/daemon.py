"""The models of answers about the daemon, its machine and its nodes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from agent_orchestrator.server.schema.models.answer import Answer


class WebhookReceipt(Answer):
    """Whether a webhook was new; false if it had been received before."""

    is_new: bool = Field(alias="taken")


class Finding(Answer):
    """One prerequisite or integration."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str
    remedy: str | None


class Findings(Answer):
    """What a look at this machine found."""

    checks: list[Finding]


class Pruned(Answer):
    """What a clean-up removed, and what it kept."""

    removed: list[dict[str, Any]]
    kept: list[dict[str, Any]]
    dry_run: bool


class ActiveDaemon(Answer):
    """The daemon that is active."""

    host: str
    pid: int
    since: str
    url: str


class Node(Answer):
    """A machine of the cluster."""

    name: str
    state: Literal["ready", "draining", "unreachable", "gone"]
    reason: str
    address: str
    labels: dict[str, str]
    cpus: float
    memory: int
    """In bytes, as all sizes here."""
    free_cpus: float
    """Not reserved by sessions."""
    free_memory: int
    load: float | None
    """Its current load average of the last minute."""
    available_memory: int | None
    """Its currently available memory."""
    sessions: list[str]
    since: str | None
    draining: bool


class Nodes(Answer):
    """All machines of the cluster."""

    nodes: list[Node]


class Staying(Answer):
    """A session that has not left yet."""

    session: str
    waits: str


class Draining(Answer):
    """How far a node is drained."""

    node: Node
    left: list[Staying]


class MadeNode(Answer):
    """What a machine needs to join; the token is shown this once."""

    name: str
    token: str
    url: str
    home: str
    command: str


class Health(Answer):
    """The daemon runs. `standby`: another one is active on the same database, and everything else is to be asked of that one."""

    status: Literal["ok", "standby"]
    version: str
    pid: int
    active: ActiveDaemon | None = None
