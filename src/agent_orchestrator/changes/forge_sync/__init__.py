"""Pull requests and issues that live elsewhere: pushed, opened and landed by `pull_requests.py`, read by `pull_request_sync.py` and `issue_sync.py`, told
of by `webhooks.py`.

`connections.py` knows which forge serves a project. The forge's own ways are the plugins' matter (`plugins/scm/`), what follows from
what was read is the flow's (`changes/forge_sync/pull_request_events.py`).
"""

from agent_orchestrator.changes.forge_sync.after_merge import AfterLanding
from agent_orchestrator.changes.forge_sync.connections import Repositories
from agent_orchestrator.changes.forge_sync.doctor import Checkup
from agent_orchestrator.changes.forge_sync.issue_sync import Tracking
from agent_orchestrator.changes.forge_sync.outages import Outages
from agent_orchestrator.changes.forge_sync.pull_request_sync import ForgeWatch
from agent_orchestrator.changes.forge_sync.pull_requests import ForgeChanges
from agent_orchestrator.changes.forge_sync.webhooks import Webhooks

__all__ = ["AfterLanding", "Checkup", "ForgeChanges", "ForgeWatch", "Outages", "Repositories", "Tracking", "Webhooks"]
