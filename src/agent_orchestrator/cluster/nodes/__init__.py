"""The daemon's side of a cluster: its nodes, which session runs on which, and what happens when one is lost or drained.

`cluster.py` puts it together. `registry.py` has the nodes, their links and leases; `settings.py` the configuration. `placement.py` and
`assignment.py` choose a session's node; `site.py`, `remote.py`, `proxies.py`, `machine.py` and `mirror.py` are a node as the place where a
session lives. `checkpoints.py` and `conversations.py` save work and conversations here; `lost_nodes.py` moves sessions of a lost node,
`returning_nodes.py` cleans up one that comes back, `drain.py` empties one.
"""

from agent_orchestrator.cluster.nodes.cluster import ClusterNodes

__all__ = ["ClusterNodes"]
