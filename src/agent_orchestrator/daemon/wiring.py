"""`DaemonParts`: everything that runs in a daemon, made in the order in which data flows.

Each part is given what it needs when it is made; nothing is set later.

Which part listens to which events is said by the parts themselves; `docs/architecture.md` lists it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from agent_orchestrator import __version__
from agent_orchestrator.base.loop_watchdog import StallStatistics
from agent_orchestrator.changes.checks.base_branch_checks import BaseStates
from agent_orchestrator.changes.checks.proof import Proofs
from agent_orchestrator.changes.checks.required_checks import RequiredChecks
from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.conflicts import ConflictPredictor
from agent_orchestrator.changes.forge_records import ForgeRecords, NumberAllocator
from agent_orchestrator.changes.forge_sync import (
    ForgeConnections,
    ForgeDoctor,
    IssueSync,
    MergeCleanup,
    Outages,
    PullRequestActions,
    PullRequestSync,
    SessionForges,
    Webhooks,
)
from agent_orchestrator.changes.issues.issues import Issues
from agent_orchestrator.changes.merge_queue import MergeQueue
from agent_orchestrator.changes.merge_router import MergeRouter
from agent_orchestrator.changes.pull_requests.branch_watch import BranchWatch
from agent_orchestrator.changes.pull_requests.local_checks import PullRequestChecks
from agent_orchestrator.changes.pull_requests.stacks import Stacks
from agent_orchestrator.changes.reviews.agent_reviews import AgentReviews
from agent_orchestrator.changes.reviews.reviews import Reviews
from agent_orchestrator.changes.reviews.threads import ReviewThreads
from agent_orchestrator.config.projects.configuration_commands import ConfigurationCommands
from agent_orchestrator.config.projects.project_plugins import ProjectPlugins
from agent_orchestrator.config.projects.project_settings import ProjectSettings
from agent_orchestrator.core.effects import Effect, EffectRunner
from agent_orchestrator.daemon.daemon_doctor import DaemonDoctor
from agent_orchestrator.daemon.foundation import Foundation
from agent_orchestrator.fleet.coordinator.coordinator import Coordinators
from agent_orchestrator.fleet.fixes.runs import Fixes
from agent_orchestrator.fleet.notifications import AnswerLinks, NotificationSender, NotifierTest
from agent_orchestrator.fleet.notifications.all_done import CompletionReporter
from agent_orchestrator.fleet.notifications.quiet_hours import QuietHours
from agent_orchestrator.fleet.notifications.receiver_health import Health
from agent_orchestrator.fleet.notifications.slack_buttons import SlackButtons
from agent_orchestrator.fleet.notifications.targets import NotifierTargets
from agent_orchestrator.fleet.plans import PlanService
from agent_orchestrator.fleet.plans.applier import PlanApplier
from agent_orchestrator.fleet.plans.drafter import PlanDrafter
from agent_orchestrator.fleet.reactions.command_action import CommandAction
from agent_orchestrator.fleet.reactions.executor import RuleActions, RuleExecutor
from agent_orchestrator.fleet.reactions.message_variables import AttachmentCollector, MessageText
from agent_orchestrator.fleet.reactions.rule_inspection import RuleInspection
from agent_orchestrator.fleet.reactions.spawn_action import SpawnAction
from agent_orchestrator.fleet.scheduling.admission import Admission
from agent_orchestrator.fleet.scheduling.auto_assign import AutoAssigner
from agent_orchestrator.fleet.scheduling.backlog import Backlog, profile_for
from agent_orchestrator.fleet.scheduling.failed_dependencies import DependencyOffers
from agent_orchestrator.fleet.scheduling.keep_awake import SleepInhibitor, SleepPrevention
from agent_orchestrator.fleet.usage.account_limits import AccountLimits
from agent_orchestrator.fleet.usage.budgets import Budgets
from agent_orchestrator.fleet.usage.usage_gate import SessionUsageGate
from agent_orchestrator.fleet.usage.usage_reports import UsageReports
from agent_orchestrator.server.access.logins import Logins
from agent_orchestrator.server.services import Services
from agent_orchestrator.sessions.agents.catalog import AgentCatalog
from agent_orchestrator.sessions.agents.observer import Observer
from agent_orchestrator.sessions.cluster_service import ClusterService
from agent_orchestrator.sessions.followers import Followers
from agent_orchestrator.sessions.lifecycle.delivery import Deliveries
from agent_orchestrator.sessions.lifecycle.effects import session_effects
from agent_orchestrator.sessions.lifecycle.launch import Launches
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.lifecycle.stop import Stops
from agent_orchestrator.sessions.lifecycle.workspaces import Workspaces
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.permissions.permissions import Permissions
from agent_orchestrator.sessions.plugin_list import PluginList
from agent_orchestrator.sessions.prune import Prune
from agent_orchestrator.sessions.report_tool import ReportRecorder
from agent_orchestrator.sessions.session_plugins import SessionPlugins
from agent_orchestrator.sessions.session_view import SessionViews
from agent_orchestrator.sessions.sessions import Sessions
from agent_orchestrator.sessions.site import NodeSites, Sites
from agent_orchestrator.sessions.sleep_detection import SleepDetector
from agent_orchestrator.views.audit import Audit
from agent_orchestrator.views.completion_files import CompletionFiles
from agent_orchestrator.views.doctor import Doctor
from agent_orchestrator.views.event_feed import EventFeed
from agent_orchestrator.views.live_state import LiveState
from agent_orchestrator.views.metrics import Metrics
from agent_orchestrator.views.overview import FleetOverview
from agent_orchestrator.views.recap import Recap
from agent_orchestrator.views.session_details import SessionDetails
from agent_orchestrator.views.stats import Stats
from agent_orchestrator.views.timeline_reader import TimelineReader
from agent_orchestrator.views.traffic import Traffic

if TYPE_CHECKING:
    from agent_orchestrator.cluster.daemon.registry import NodeRegistry


class DaemonParts:
    """All parts of one daemon; made when the configuration is loaded."""

    def __init__(
        self,
        foundation: Foundation,
        stalls: StallStatistics,
        address: tuple[str, str | None],
        fingerprint: str = "",
        tracing: dict[str, Any] | None = None,
    ) -> None:
        """Make all parts; none is started.

        `address` is where the daemon listens, and why that is not the configured one; `fingerprint` is its own TLS
        certificate's; `tracing` is the doctor's finding about traces.
        """
        self.foundation = foundation
        self.core = self._make_core()
        self.quiet = QuietHours(self.core)
        self._make_usage()
        self._make_forges()
        self._make_sessions(fingerprint)
        self._make_changes()
        self._make_fleet()
        self._make_reactions()
        self.runner = EffectRunner(self.core.flow, self._effects(), self._before_effect)
        self._make_views(stalls, address, tracing)

    def _make_core(self) -> Core:
        """Make what nearly every part needs."""
        base = self.foundation
        settings, project_plugins = ProjectSettings(base.config), ProjectPlugins(base.projects)
        self.project_plugins = project_plugins
        self._registry = _create_node_registry(base)
        sites = Sites(base.flow, base.local_site, self._registry or NodeSites())
        plugins = SessionPlugins(base.host, settings, sites, project_plugins)
        return Core(base.flow, base.home, base.host, base.watch, base.config, settings, base.projects, sites, plugins)

    def _make_usage(self) -> None:
        """Make what limits the use of accounts and money."""
        self.budgets = Budgets(self.core, self.quiet.gate)
        self.limits = AccountLimits(self.core)
        self.usage = SessionUsageGate(self.budgets, self.limits)

    def _make_forges(self) -> None:
        """Make the connections to forges and trackers."""
        self.numbers = NumberAllocator(self.core.flow)
        self.connections = ForgeConnections(self.core, ForgeRecords(self.core.flow, self.numbers))
        self.outages = Outages(self.core, self.quiet.gate)
        self.pull_request_sync = PullRequestSync(self.core, self.connections, self.outages)
        self.issue_sync = IssueSync(self.core, self.connections, self.outages)
        self.forge_pull_requests = PullRequestActions(self.core, self.connections)
        self.after_merge = MergeCleanup(self.core, self.connections)
        self.webhooks = Webhooks(self.core.flow, self.connections, self.pull_request_sync, self.issue_sync)

    def _make_sessions(self, fingerprint: str) -> None:
        """Make what creates, runs and ends sessions."""
        core, tokens = self.core, self.foundation.tokens
        self.notifier_health = Health()
        self.views = SessionViews(core, self.notifier_health)
        self.followers = Followers(core)
        self.specs = SessionSpecs(core, tokens)
        self.observer = Observer(core)
        self.cluster = self._make_cluster(fingerprint)
        forges = SessionForges(self.connections, self.forge_pull_requests, self.issue_sync)
        self.sessions = Sessions(core, self.views, self.followers, forges, self.cluster, profile_for)
        self.workspaces = Workspaces(core, self.specs, self.followers, self.cluster.conversations)
        self.launches = Launches(core, self.specs, self.usage)
        self.deliveries = Deliveries(core, self.observer, self.launches, self.usage)
        self.stops = Stops(core, self.specs, self.after_merge)
        self.permissions = Permissions(core)
        self.inbox = Inbox(core, self.permissions, self.sessions, self.followers, self.views)
        self.sleep_detector = SleepDetector(core)

    def _make_cluster(self, fingerprint: str) -> ClusterService:
        """Make the parts of the cluster; without its package there are no nodes."""
        if self._registry is None:
            return ClusterService()
        from agent_orchestrator.cluster.daemon import ClusterNodes

        tokens, notices = self.foundation.tokens, self.quiet.gate
        return ClusterNodes(self.core, self._registry, tokens, self.specs, self.observer, notices, fingerprint)

    def _make_changes(self) -> None:
        """Make what checks, reviews and merges changes here."""
        core = self.core
        self.checks = Checks(core.home, core.host)
        required = RequiredChecks(core.flow, core.home, core.settings)
        self.pull_request_checks = PullRequestChecks(core, self.specs, self.checks, required, self.quiet.gate)
        self.conflicts = ConflictPredictor(core)
        self.queue = MergeQueue(core, self.checks, required, self.pull_request_checks.check_spec, self.conflicts)
        self.merges = MergeRouter(core.flow, self.queue, self.forge_pull_requests)
        self.branch_watch = BranchWatch(core)
        self.base_states = BaseStates(core, self.checks, self.pull_request_checks.check_spec)
        self.stacks = Stacks(core)
        self.reviews = Reviews(core, self.sessions, self.followers, self.views)
        self.agent_reviews = AgentReviews(core, self.sessions, self.reviews)
        self.issues = Issues(core.flow, self.numbers, self.issue_sync)

    def _make_fleet(self) -> None:
        """Make what decides who works on what and when."""
        core = self.core
        self.drafting = PlanDrafter(core, self.conflicts, self.issue_sync, self.budgets)
        applying = PlanApplier(core, self.connections, self.issue_sync, self.numbers)
        self.planner = PlanService(core, self.views, self.connections, self.drafting, applying, self.numbers)
        self.fixes = Fixes(core, self.sessions, self.reviews, self.inbox, self.checks, self.views)
        self.coordinators = Coordinators(core, self.sessions, self.followers, self.inbox)
        gates = (self.limits.gate, self.budgets.gate, self.cluster.wait_reason)
        self.admission = Admission(core, self.conflicts.expected_files, gates)
        self.backlog = Backlog(core)
        self.auto_assigner = AutoAssigner(core, self.backlog, self.sessions, self.quiet.gate)
        self.dependency_offers = DependencyOffers(core, self.quiet.gate)
        self.completion = CompletionReporter(core)
        self.power = SleepPrevention(core, SleepInhibitor(core.host))

    def _make_reactions(self) -> None:
        """Make what carries out rules and reaches people."""
        core = self.core
        self.targets = NotifierTargets(core)
        self.answers = AnswerLinks(core.flow, self.foundation.tokens, self.inbox)
        self.notifications = NotificationSender(core, self.targets, self.answers, self.notifier_health)
        self.rules = RuleExecutor(
            core,
            MessageText(self.views, core.projects),
            AttachmentCollector(core),
            RuleActions(core.flow, self.limits),
            self.quiet,
            self.usage,
        )
        self.commands = CommandAction(core, self.specs, self.quiet)
        self.spawning = SpawnAction(core, self.sessions, self.agent_reviews, self.quiet)

    def _effects(self) -> dict[str, Effect]:
        """Return how each kind of intent is carried out."""
        return {
            **session_effects(self.core, self.workspaces, self.launches, self.deliveries, self.stops),
            **self.cluster.effects(),
            **self.forge_pull_requests.effects(),
            **self.pull_request_checks.effects(),
            **self.merges.effects(),
            **self.issue_sync.effects(),
            **self.after_merge.effects(),
            **self.stacks.effects(),
            **self.agent_reviews.effects(),
            **self.notifications.effects(),
            **self.rules.effects(),
            **self.commands.effects(),
            **self.spawning.effects(),
            **self.planner.effects(),
        }

    async def _before_effect(self) -> None:
        """Wait until time that the machine slept is accounted for, and confirm that no other daemon may run this effect."""
        await self.sleep_detector.record_sleep()
        if self.foundation.shared_store is not None:
            await self.foundation.shared_store.confirm()

    def _make_views(
        self, stalls: StallStatistics, address: tuple[str, str | None], tracing: dict[str, Any] | None
    ) -> None:
        """Make what people and programs read."""
        core = self.core
        self.feed = EventFeed(core)
        overviews = FleetOverview(core.flow, core.config, self.base_states)
        self.live = LiveState(core, self.views, self.inbox, self.queue, overviews)
        self.completion_files = CompletionFiles(core, self.sessions)
        self.metrics = Metrics(core, self.views, self.runner, self.webhooks, Traffic(), stalls)
        self.notifier_test = NotifierTest(self.notifications)
        self.proofs = Proofs(core, self.checks)
        self.agents = AgentCatalog(core)
        own = DaemonDoctor(self.foundation, self.cluster, stalls, address, tracing)
        probes = (
            self.proofs.health_findings,
            ForgeDoctor(self.connections, self.webhooks, address[0]).run,
            own.clock,
            own.database,
            own.nodes,
            self.notifier_test.checkup,
            self.power.checkup,
            own.loop,
        )
        self.doctor = Doctor(core, self.agents, probes)

    @property
    def observing_parts(self) -> tuple[Part, ...]:
        """The parts that watch what happens outside, in the order in which they start; closed in the opposite order, last of all."""
        return (
            self.observer,
            self.permissions,
            self.branch_watch,
            self.stacks,
            self.pull_request_sync,
            self.issue_sync,
            self.live,
            self.power,
        )

    @property
    def deciding_parts(self) -> tuple[Part, ...]:
        """The parts that start something by themselves, in the order in which they start; closed in the opposite order, first of all."""
        return (
            self.conflicts,
            self.base_states,
            self.limits,
            self.quiet,
            self.agent_reviews,
            self.budgets,
            self.completion,
            self.dependency_offers,
            self.auto_assigner,
            self.coordinators,
            self.fixes,
            self.admission,
        )

    def services(self, shutdown: Callable[[bool], Awaitable[None]]) -> Services:
        """Return the services that the server's routes use."""
        core = self.core
        return Services(
            version=__version__,
            core=core,
            sessions=self.sessions,
            inbox=self.inbox,
            permissions=self.permissions,
            usage=UsageReports(core.flow, self.limits, self.budgets),
            session_details=SessionDetails(core, self.specs, self.views, self.budgets),
            reviews=self.reviews,
            agent_reviews=self.agent_reviews,
            discussions=ReviewThreads(core.flow),
            reactions=RuleInspection(core.flow, self.views, self.rules),
            reporting=ReportRecorder(core.flow, self.observer),
            merge_queue=self.queue,
            merges=self.merges,
            conflicts=self.conflicts,
            issues=self.issues,
            backlog=self.backlog,
            planner=self.planner,
            fixes=self.fixes,
            feed=self.feed,
            notifiers=self.notifier_test,
            answers=self.answers,
            slack=SlackButtons(self.targets, self.answers, core.flow.clock),
            audit=Audit(core.flow),
            live=self.live,
            timelines=TimelineReader(core, self.views),
            stats=Stats(core.flow),
            recap=Recap(core.flow),
            metrics=self.metrics,
            traffic=self.metrics.traffic,
            coordinators=self.coordinators,
            projects=core.projects,
            proofs=self.proofs,
            plugins=PluginList(core.projects, self.project_plugins),
            config=ConfigurationCommands(core.home, core.projects),
            agents=self.agents,
            doctor=self.doctor,
            prune=Prune(core, self.specs),
            tokens=self.foundation.tokens,
            logins=Logins(self.foundation.tokens),
            webhooks=self.webhooks,
            cluster=self.cluster,
            shutdown=shutdown,
        )


def _create_node_registry(base: Foundation) -> NodeRegistry | None:
    """Return the registry of the cluster's nodes, or None if the package `cluster` is not there; everything else works without it."""
    if find_spec("agent_orchestrator.cluster") is None:
        return None
    from agent_orchestrator.cluster.daemon import create_registry

    return create_registry(base.flow, base.home, base.host, base.config, base.tokens, base.local_site)
