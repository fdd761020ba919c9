"""Pull requests and issues at forges and trackers.

`pull_requests.py` pushes, opens and merges pull requests, `pull_request_sync.py` and `issue_sync.py` read,
`webhooks.py` receives webhooks, and `connections.py` finds the forge of a project. `pull_request_events.py` turns what
was read into events. Requests to each kind of forge are in `plugins/forges/`.
"""

from agent_orchestrator.changes.forge_sync.after_merge import AfterMerge
from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.doctor import ForgeDoctor
from agent_orchestrator.changes.forge_sync.issue_sync import IssueSync
from agent_orchestrator.changes.forge_sync.outages import Outages
from agent_orchestrator.changes.forge_sync.pull_request_sync import PullRequestSync
from agent_orchestrator.changes.forge_sync.pull_requests import ForgePullRequests
from agent_orchestrator.changes.forge_sync.session_forges import SessionForges
from agent_orchestrator.changes.forge_sync.webhooks import Webhooks

__all__ = [
    "AfterMerge",
    "ForgeConnections",
    "ForgeDoctor",
    "ForgePullRequests",
    "IssueSync",
    "Outages",
    "PullRequestSync",
    "SessionForges",
    "Webhooks",
]
