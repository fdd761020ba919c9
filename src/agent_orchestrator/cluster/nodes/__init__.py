"""Sessions on other machines: which machines there are, who lives where, and what becomes of them when one is lost or drained.

registry.py     the machines: their links, and the leases that are granted to their agents
site.py         a machine as a session's site
placement.py    who decides where a session goes
placing.py      sessions get their machine, or wait for one
checkpoints.py  work there is saved here while it is being done
carrying.py     agents' conversations go along
loss.py         lost machines: their sessions go on elsewhere
stale.py        machines that come back with what is not theirs any more
drain.py        machines that are to be emptied
settings.py     what the configuration says of all this
"""

from agent_orchestrator.cluster.nodes.cluster import ClusterNodes

__all__ = ["ClusterNodes"]
