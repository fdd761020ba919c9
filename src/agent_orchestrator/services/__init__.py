"""What people ask for, one noun a module: made of the flow, the store and plugins. Knows nothing of HTTP or the command line.

`Services` is all of them together, as the daemon puts them together (`assembly.py`) and the server uses them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_orchestrator.home import Home
    from agent_orchestrator.services.agent_reviews import AgentReviews
    from agent_orchestrator.services.agents import Agents
    from agent_orchestrator.services.audit import Audit
    from agent_orchestrator.services.backlog import Backlog
    from agent_orchestrator.services.configuration import Configuration
    from agent_orchestrator.services.conflicts import Conflicts
    from agent_orchestrator.services.coordinator import Coordinators
    from agent_orchestrator.services.discussions import Discussions
    from agent_orchestrator.services.doctor import Doctor
    from agent_orchestrator.services.feed import Feed
    from agent_orchestrator.services.fixer.run import Fixes
    from agent_orchestrator.services.forges import Webhooks
    from agent_orchestrator.services.inbox import Inbox
    from agent_orchestrator.services.inspection import Inspection
    from agent_orchestrator.services.issues import Issues
    from agent_orchestrator.services.listing import PluginListing
    from agent_orchestrator.services.live import Live
    from agent_orchestrator.services.logins import Logins
    from agent_orchestrator.services.merge_queue import MergeQueue
    from agent_orchestrator.services.metrics import Metrics
    from agent_orchestrator.services.nodes import ClusterNodes
    from agent_orchestrator.services.notifying import Answers, Trial
    from agent_orchestrator.services.notifying.slack import SlackButtons
    from agent_orchestrator.services.permissions import Permissions
    from agent_orchestrator.services.planner import Planner
    from agent_orchestrator.services.projects import Projects
    from agent_orchestrator.services.proof import Proofs
    from agent_orchestrator.services.prune import Prune
    from agent_orchestrator.services.reactions import Reactions
    from agent_orchestrator.services.recap import Recap
    from agent_orchestrator.services.reporting import Reporting
    from agent_orchestrator.services.reviews import Reviews
    from agent_orchestrator.services.sessions import Sessions
    from agent_orchestrator.services.stats import Stats
    from agent_orchestrator.services.stories import Stories
    from agent_orchestrator.services.tokens import Tokens
    from agent_orchestrator.services.traffic import Traffic
    from agent_orchestrator.services.usage import Usages


@dataclass(slots=True)
class Services:
    """Everything that may be asked of the daemon."""

    version: str
    home: Home
    sessions: Sessions
    inbox: Inbox
    permissions: Permissions
    usage: Usages
    inspection: Inspection
    reviews: Reviews
    agent_reviews: AgentReviews
    discussions: Discussions
    reactions: Reactions
    reporting: Reporting
    queue: MergeQueue
    conflicts: Conflicts
    issues: Issues
    backlog: Backlog
    planner: Planner
    fixes: Fixes
    feed: Feed
    notifiers: Trial
    answers: Answers
    slack: SlackButtons
    audit: Audit
    live: Live
    stories: Stories
    stats: Stats
    recap: Recap
    metrics: Metrics
    traffic: Traffic
    coordinators: Coordinators
    projects: Projects
    proofs: Proofs
    plugins: PluginListing
    config: Configuration
    agents: Agents
    doctor: Doctor
    prune: Prune
    tokens: Tokens
    logins: Logins
    webhooks: Webhooks
    nodes: ClusterNodes
    shutdown: Callable[[bool], Awaitable[None]]
    """End the daemon; true: stop all sessions first."""
