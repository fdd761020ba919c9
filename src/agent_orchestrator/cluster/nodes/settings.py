"""What the configuration says of the cluster, with everything that it leaves open filled in."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.nodes.placement import Wish
from agent_orchestrator.config.model import Cluster
from agent_orchestrator.config.scope import ConfigSet


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The cluster of one daemon."""

    home: Path
    """Our folder on every node."""
    address: str | None
    """Of Ray's head; none: workers are started by hand."""
    url: str
    """Where nodes reach the daemon; nothing: where it listens."""
    lease: float
    checkpoint: float
    most: int | None
    """Agents at work on one node."""
    wish: Wish = field(default_factory=Wish)
    """What a session takes where nobody says otherwise."""


def settings_of(config: ConfigSet, home: Home) -> ClusterSettings:
    """The cluster as it is configured now."""
    given = config.daemon.cluster or Cluster()
    named = "address" in given.model_fields_set
    return ClusterSettings(
        home=Path(given.home).expanduser() if given.home else default_home(home),
        address=given.address if named else None,
        url=given.url or "",
        lease=given.lease,
        checkpoint=given.checkpoint,
        most=given.max_parallel_agents,
        wish=Wish(given.resources.cpus, given.resources.memory, dict(given.labels)),
    )


def default_home(home: Home) -> Path:
    """The same on every node, and another one for every daemon."""
    digest = hashlib.sha256(os.fsencode(home.path)).hexdigest()[:12]
    return Path("/var/tmp") / f"ao-node-{os.getuid()}-{digest}"
