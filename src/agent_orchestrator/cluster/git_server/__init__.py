"""A project's repository as a Git server for its sessions on other machines: they fetch from it, and push their work to it.

It speaks Git's own protocol: `fetch.py` lets Git answer a fetch, `push.py` receives a push, `access.py` decides who may do what,
`pktline.py` reads and writes protocol lines, and `limits.py` limits concurrent requests. No client can move a branch: work goes to refs
of the session's own, and the daemon itself moves branches (`plugins/workspaces/branch_publication.py`).
"""

from agent_orchestrator.cluster.git_server.access import Rights, rights_of
from agent_orchestrator.cluster.git_server.fetch import offer_reading, read
from agent_orchestrator.cluster.git_server.limits import Turns
from agent_orchestrator.cluster.git_server.pktline import Source
from agent_orchestrator.cluster.git_server.push import offer_receiving, receive

__all__ = ["Rights", "Source", "Turns", "offer_reading", "offer_receiving", "read", "receive", "rights_of"]
