"""The cluster's configuration, with defaults filled in."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.nodes.placement import Requirements
from agent_orchestrator.config.model import Cluster
from agent_orchestrator.config.scope import ConfigSet


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings of one daemon's cluster."""

    home: Path
    """The orchestrator's folder on every node."""
    address: str | None
    """The address of Ray's head, or None if workers are started by hand."""
    url: str
    """The address at which nodes reach the daemon; "" for the one it listens on."""
    lease: float
    """Seconds that a lease holds."""
    checkpoint: float
    """Seconds between two checkpoints during a turn."""
    most: int | None
    """Agents that may work on one node at a time, or None for no limit."""
    requirements: Requirements = field(default_factory=Requirements)
    """What a session needs of a node by default."""


def settings_of(config: ConfigSet, home: Home) -> ClusterSettings:
    """Return the current configuration of the cluster."""
    cluster = config.daemon.cluster or Cluster()
    has_address = "address" in cluster.model_fields_set
    return ClusterSettings(
        home=Path(cluster.home).expanduser() if cluster.home else default_home(home),
        address=cluster.address if has_address else None,
        url=cluster.url or "",
        lease=cluster.lease,
        checkpoint=cluster.checkpoint,
        most=cluster.max_parallel_agents,
        requirements=Requirements(cluster.resources.cpus, cluster.resources.memory, dict(cluster.labels)),
    )


def default_home(home: Home) -> Path:
    """Return the default folder on nodes: the same on every node, different for every daemon's home."""
    digest = hashlib.sha256(os.fsencode(home.path)).hexdigest()[:12]
    return Path("/var/tmp") / f"ao-node-{os.getuid()}-{digest}"
