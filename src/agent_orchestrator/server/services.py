"""`Services`: everything that routes and MCP tools use, as `daemon/wiring.py` assembles it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_orchestrator.changes.checks.proof import Proofs
    from agent_orchestrator.changes.conflicts import Conflicts
    from agent_orchestrator.changes.forge_sync import Webhooks
    from agent_orchestrator.changes.issues.issues import Issues
    from agent_orchestrator.changes.merge_queue import MergeQueue
    from agent_orchestrator.changes.merges import Merges
    from agent_orchestrator.changes.reviews.agent_reviews import AgentReviews
    from agent_orchestrator.changes.reviews.reviews import Reviews
    from agent_orchestrator.changes.reviews.threads import ReviewThreads
    from agent_orchestrator.config.projects.projects import Projects
    from agent_orchestrator.config.projects.settings import Configuration
    from agent_orchestrator.config.tokens import Tokens
    from agent_orchestrator.fleet.coordinator.coordinator import Coordinators
    from agent_orchestrator.fleet.fixes.runs import Fixes
    from agent_orchestrator.fleet.notifications import AnswerLinks, NotifierTest
    from agent_orchestrator.fleet.notifications.slack_buttons import SlackButtons
    from agent_orchestrator.fleet.plans import Planner
    from agent_orchestrator.fleet.reactions.rules_in_force import RuleInspection
    from agent_orchestrator.fleet.scheduling.backlog import Backlog
    from agent_orchestrator.fleet.usage.usage import UsageReports
    from agent_orchestrator.server.access.logins import Logins
    from agent_orchestrator.sessions.agents.catalog import Agents
    from agent_orchestrator.sessions.cluster import Cluster
    from agent_orchestrator.sessions.messages import Inbox
    from agent_orchestrator.sessions.part import Core
    from agent_orchestrator.sessions.permissions.service import Permissions
    from agent_orchestrator.sessions.plugin_list import PluginList
    from agent_orchestrator.sessions.prune import Prune
    from agent_orchestrator.sessions.report_tool import Reporting
    from agent_orchestrator.sessions.sessions import Sessions
    from agent_orchestrator.views.audit import Audit
    from agent_orchestrator.views.board import LiveState
    from agent_orchestrator.views.doctor import Doctor
    from agent_orchestrator.views.event_feed import Feed
    from agent_orchestrator.views.inspection import SessionDetails
    from agent_orchestrator.views.metrics import Metrics
    from agent_orchestrator.views.recap import Recap
    from agent_orchestrator.views.stats import Stats
    from agent_orchestrator.views.story import Timelines
    from agent_orchestrator.views.traffic import Traffic


@dataclass(slots=True)
class Services:
    """The services of the daemon."""

    version: str
    core: Core
    sessions: Sessions
    inbox: Inbox
    permissions: Permissions
    usage: UsageReports
    inspection: SessionDetails
    reviews: Reviews
    agent_reviews: AgentReviews
    discussions: ReviewThreads
    reactions: RuleInspection
    reporting: Reporting
    queue: MergeQueue
    merges: Merges
    conflicts: Conflicts
    issues: Issues
    backlog: Backlog
    planner: Planner
    fixes: Fixes
    feed: Feed
    notifiers: NotifierTest
    answers: AnswerLinks
    slack: SlackButtons
    audit: Audit
    live: LiveState
    stories: Timelines
    stats: Stats
    recap: Recap
    metrics: Metrics
    traffic: Traffic
    coordinators: Coordinators
    projects: Projects
    proofs: Proofs
    plugins: PluginList
    config: Configuration
    agents: Agents
    doctor: Doctor
    prune: Prune
    tokens: Tokens
    logins: Logins
    webhooks: Webhooks
    nodes: Cluster
    shutdown: Callable[[bool], Awaitable[None]]
    """Ends the daemon; with True, all sessions are stopped first."""
