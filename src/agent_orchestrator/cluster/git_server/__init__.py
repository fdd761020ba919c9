"""A project's repository as a Git server for its sessions on other machines: they fetch from it, and push their work to it.

It speaks Git's own protocol: `fetch.py` lets Git answer a fetch, `push.py` receives a push, `access.py` decides who may do what,
`pktline.py` reads and writes protocol lines, and `limits.py` limits concurrent requests. No client can move a branch: work goes to refs
of the session's own, and the daemon itself moves branches (`plugins/workspaces/branch_publication.py`).
"""

from agent_orchestrator.cluster.git_server.access import Rights, rights_of
from agent_orchestrator.cluster.git_server.fetch import advertise_fetch, answer_fetch
from agent_orchestrator.cluster.git_server.limits import RequestSlots
from agent_orchestrator.cluster.git_server.pktline import RequestStream
from agent_orchestrator.cluster.git_server.push import advertise_push, receive_push

__all__ = [
    "RequestSlots",
    "RequestStream",
    "Rights",
    "advertise_fetch",
    "advertise_push",
    "answer_fetch",
    "receive_push",
    "rights_of",
]
