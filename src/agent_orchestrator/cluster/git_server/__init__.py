"""A project's repository, for its sessions that live on other machines: they fetch from it, and bring their work back.

It is Git's own protocol: `fetch.py` lets Git answer a fetch, `push.py` takes a push, `access.py` says who may do what,
`pktline.py` is how lines are written, and `limits.py` says how many may work at once. Nobody moves a branch from outside: work comes to
refs of the session's own, and the daemon itself moves branches (`plugins/workspaces/branch_publication.py`).
"""

from agent_orchestrator.cluster.git_server.access import Rights, rights_of
from agent_orchestrator.cluster.git_server.fetch import offer_reading, read
from agent_orchestrator.cluster.git_server.limits import Turns
from agent_orchestrator.cluster.git_server.pktline import Source
from agent_orchestrator.cluster.git_server.push import offer_receiving, receive

__all__ = ["Rights", "Source", "Turns", "offer_reading", "offer_receiving", "read", "receive", "rights_of"]
