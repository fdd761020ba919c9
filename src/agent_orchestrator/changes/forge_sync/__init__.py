"""Pull requests and issues at forges and trackers.

`pull_request_actions.py` pushes, opens and merges pull requests, `pull_request_sync.py` and `issue_sync.py` read,
`webhooks.py` receives webhooks, and `connections.py` finds the forge of a project. `pull_request_events.py` and
`issue_events.py` turn what was read into events. Requests to each kind of forge are in `plugins/forges/`.
"""

from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.forge_doctor import ForgeDoctor
from agent_orchestrator.changes.forge_sync.issue_sync import IssueSync
from agent_orchestrator.changes.forge_sync.merge_cleanup import MergeCleanup
from agent_orchestrator.changes.forge_sync.outages import Outages
from agent_orchestrator.changes.forge_sync.pull_request_actions import PullRequestActions
from agent_orchestrator.changes.forge_sync.pull_request_sync import PullRequestSync
from agent_orchestrator.changes.forge_sync.session_forges import SessionForges
from agent_orchestrator.changes.forge_sync.webhooks import Webhooks

__all__ = [
    "ForgeConnections",
    "ForgeDoctor",
    "IssueSync",
    "MergeCleanup",
    "Outages",
    "PullRequestActions",
    "PullRequestSync",
    "SessionForges",
    "Webhooks",
]
