"""A project's repository, for its sessions that live on other machines: they fetch from it, and bring their work back.

It is Git's own protocol: `reading.py` lets Git answer a fetch, `receiving.py` takes a push, `rights.py` says who may do what,
`pktline.py` is how lines are written, and `turns.py` says how many may work at once. Nobody moves a branch from outside: work comes to
refs of the session's own, and the daemon itself moves branches (`plugins/workspaces/publishing.py`).
"""

from agent_orchestrator.services.sharing.pktline import Source
from agent_orchestrator.services.sharing.reading import offer_reading, read
from agent_orchestrator.services.sharing.receiving import offer_receiving, receive
from agent_orchestrator.services.sharing.rights import Rights, rights_of
from agent_orchestrator.services.sharing.turns import Turns

__all__ = ["Rights", "Source", "Turns", "offer_reading", "offer_receiving", "read", "receive", "rights_of"]
