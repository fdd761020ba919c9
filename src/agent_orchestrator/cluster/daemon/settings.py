"""The cluster's configuration, with defaults filled in."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.daemon.placement import Requirements
from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.model import ClusterSection


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings of one daemon's cluster."""

    node_home: Path
    """The orchestrator's folder on every node."""
    ray_address: str | None
    """The address of Ray's head, or None if workers are started by hand."""
    url: str
    """The address at which nodes reach the daemon; "" for the one it listens on."""
    lease_seconds: float
    """Seconds that a lease holds."""
    checkpoint_seconds: float
    """Seconds between two checkpoints during a turn."""
    max_sessions_per_node: int | None
    """Agents that may work on one node at a time, or None for no limit."""
    requirements: Requirements = field(default_factory=Requirements)
    """What a session needs of a node by default."""


def settings_of(config: ConfigSet, home: Home) -> ClusterSettings:
    """Return the current configuration of the cluster."""
    cluster = config.daemon.cluster or ClusterSection()
    has_address = "address" in cluster.model_fields_set
    return ClusterSettings(
        node_home=Path(cluster.home).expanduser() if cluster.home else default_home(home),
        ray_address=cluster.address if has_address else None,
        url=cluster.url or "",
        lease_seconds=cluster.lease,
        checkpoint_seconds=cluster.checkpoint,
        max_sessions_per_node=cluster.max_parallel_agents,
        requirements=Requirements(cluster.resources.cpus, cluster.resources.memory, dict(cluster.labels)),
    )


def default_home(home: Home) -> Path:
    """Return the default folder on nodes: the same on every node, different for every daemon's home."""
    digest = hashlib.sha256(os.fsencode(home.path)).hexdigest()[:12]
    return Path("/var/tmp") / f"ao-node-{os.getuid()}-{digest}"
