"""Events of the cluster's nodes, and of the sessions on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class NodeJoined(Body):
    """A machine of the cluster is there, and takes sessions."""

    node: str
    address: str = ""
    cpus: float = 0.0
    memory: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


@record
class NodeUnreachable(Body):
    """Nothing is heard of a node; its agents may work on until their leases end."""

    node: str
    reason: str = ""


@record
class NodeLost(Body):
    """A node is gone for certain: the leases of its agents are over."""

    node: str
    reason: str = ""


@record
class DrainRequested(Body):
    """A node gets no new sessions, and those that it has are to go elsewhere; `now`: in the midst of their turns."""

    node: str
    now: bool = False


@record
class DrainEnded(Body):
    """A node may get sessions again."""

    node: str


@record
class SessionPlaced(Body):
    """The node that the session lives on."""

    node: str


@record
class SessionUnseen(Body):
    """The session's node cannot be reached: what is known of it is as old as this."""

    node: str
    reason: str = ""


@record
class SessionSeen(Body):
    """The session's node is there again."""

    node: str


@record
class WorkCheckpointed(Body):
    """The session's work on its node is saved here: all its files as `commit`, which stands on `head`."""

    commit: str
    head: str


@record
class MoveRequested(Body):
    """The session is to leave its node: its agent ends, its work is saved, and it goes on elsewhere."""

    node: str
    reason: str


@record
class SessionDisplaced(Body):
    """The session lives on that node no more; what it had there is saved, or lost with it."""

    node: str
    reason: str
    lost: bool = False
    """The node went with it: what was done since the last checkpoint is gone."""
    restart: bool = True
    """Its agent is started again elsewhere; otherwise at its next message."""
