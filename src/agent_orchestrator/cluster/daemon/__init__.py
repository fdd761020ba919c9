"""The daemon's side of a cluster: its nodes, which session runs on which, and what happens when one is lost or drained.

`cluster.py` assembles the parts. `registry.py` holds the nodes, their links and leases; `settings.py` the configuration. `placement.py`
and `node_assignment.py` choose a session's node. `site.py`, `remote_node.py`, `proxies.py`, `remote_host.py` and `mirror.py` let a
session live on a node. `checkpoints.py` and `conversations.py` save work and conversations to the daemon's machine; `lost_nodes.py` moves
sessions off a lost node, `returning_nodes.py` cleans up a node that reconnects, `drain.py` empties a node.
"""

from agent_orchestrator.cluster.daemon.cluster import ClusterNodes, create_registry

__all__ = ["ClusterNodes", "create_registry"]
