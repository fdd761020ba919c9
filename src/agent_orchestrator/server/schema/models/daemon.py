"""The models of answers about the daemon, its machine and its nodes."""

from __future__ import annotations

from typing import Any, Literal

from agent_orchestrator.server.schema.models.answer import Shown


class Taken(Shown):
    """A webhook was taken; false: it had been before."""

    taken: bool


class Finding(Shown):
    """One prerequisite or integration."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str
    remedy: str | None


class Findings(Shown):
    """What a look at this machine found."""

    checks: list[Finding]


class Pruned(Shown):
    """What a clean-up removed, and what it kept."""

    removed: list[dict[str, Any]]
    kept: list[dict[str, Any]]
    dry_run: bool


class ActiveDaemon(Shown):
    """The daemon that is active."""

    host: str
    pid: int
    since: str
    url: str


class Node(Shown):
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
    """Its load average of the last minute, as it tells just now."""
    available_memory: int | None
    """What it has left, as it tells just now."""
    sessions: list[str]
    since: str | None
    draining: bool


class Nodes(Shown):
    """All machines of the cluster."""

    nodes: list[Node]


class Staying(Shown):
    """A session that has not left yet."""

    session: str
    waits: str


class Draining(Shown):
    """How far a node is drained."""

    node: Node
    left: list[Staying]


class MadeNode(Shown):
    """What a machine needs to join; the token is shown this once."""

    name: str
    token: str
    url: str
    home: str
    command: str


class Health(Shown):
    """The daemon runs. `standby`: another one is active on the same database, and everything else is to be asked of that one."""

    status: Literal["ok", "standby"]
    version: str
    pid: int
    active: ActiveDaemon | None = None
