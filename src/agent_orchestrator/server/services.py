"""`Services`: everything that routes and MCP tools use, as `daemon/wiring.py` assembles it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_orchestrator.base.api_tokens import Tokens
    from agent_orchestrator.changes.checks.proof import Proofs
    from agent_orchestrator.changes.conflicts import ConflictPredictor
    from agent_orchestrator.changes.forge_sync import Webhooks
    from agent_orchestrator.changes.issues.issues import Issues
    from agent_orchestrator.changes.merge_queue import MergeQueue
    from agent_orchestrator.changes.merge_router import MergeRouter
    from agent_orchestrator.changes.reviews.agent_reviews import AgentReviews
    from agent_orchestrator.changes.reviews.reviews import Reviews
    from agent_orchestrator.changes.reviews.threads import ReviewThreads
    from agent_orchestrator.config.projects.configuration_commands import ConfigurationCommands
    from agent_orchestrator.config.projects.projects import Projects
    from agent_orchestrator.fleet.coordinator.coordinator import Coordinators
    from agent_orchestrator.fleet.fixes.runs import Fixes
    from agent_orchestrator.fleet.notifications import AnswerLinks, NotifierTest
    from agent_orchestrator.fleet.notifications.slack_buttons import SlackButtons
    from agent_orchestrator.fleet.plans import PlanService
    from agent_orchestrator.fleet.reactions.rule_inspection import RuleInspection
    from agent_orchestrator.fleet.scheduling.backlog import Backlog
    from agent_orchestrator.fleet.usage.usage_reports import UsageReports
    from agent_orchestrator.server.access.logins import Logins
    from agent_orchestrator.sessions.agents.catalog import AgentCatalog
    from agent_orchestrator.sessions.cluster_service import ClusterService
    from agent_orchestrator.sessions.messages import Inbox
    from agent_orchestrator.sessions.part import Core
    from agent_orchestrator.sessions.permissions.permissions import Permissions
    from agent_orchestrator.sessions.plugin_list import PluginList
    from agent_orchestrator.sessions.prune import Prune
    from agent_orchestrator.sessions.report_tool import ReportRecorder
    from agent_orchestrator.sessions.sessions import Sessions
    from agent_orchestrator.views.audit import Audit
    from agent_orchestrator.views.doctor import Doctor
    from agent_orchestrator.views.event_feed import EventFeed
    from agent_orchestrator.views.live_state import LiveState
    from agent_orchestrator.views.metrics import Metrics
    from agent_orchestrator.views.recap import Recap
    from agent_orchestrator.views.session_details import SessionDetails
    from agent_orchestrator.views.stats import Stats
    from agent_orchestrator.views.timeline_reader import TimelineReader
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
    session_details: SessionDetails
    reviews: Reviews
    agent_reviews: AgentReviews
    discussions: ReviewThreads
    reactions: RuleInspection
    reporting: ReportRecorder
    merge_queue: MergeQueue
    merges: MergeRouter
    conflicts: ConflictPredictor
    issues: Issues
    backlog: Backlog
    planner: PlanService
    fixes: Fixes
    feed: EventFeed
    notifiers: NotifierTest
    answers: AnswerLinks
    slack: SlackButtons
    audit: Audit
    live: LiveState
    timelines: TimelineReader
    stats: Stats
    recap: Recap
    metrics: Metrics
    traffic: Traffic
    coordinators: Coordinators
    projects: Projects
    proofs: Proofs
    plugins: PluginList
    config: ConfigurationCommands
    agents: AgentCatalog
    doctor: Doctor
    prune: Prune
    tokens: Tokens
    logins: Logins
    webhooks: Webhooks
    cluster: ClusterService
    shutdown: Callable[[bool], Awaitable[None]]
    """Ends the daemon; with True, all sessions are stopped first."""
