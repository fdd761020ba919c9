"""`Assembly`: creates all parts of the daemon and connects them, in the order in which data flows. Starts nothing.

Parts that need one another are connected here: no service looks up another one itself.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator import __version__
from agent_orchestrator.base.clock import Clock
from agent_orchestrator.base.files.safe import NotPlain, read_plain
from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.health import finding
from agent_orchestrator.base.home import Home
from agent_orchestrator.changes.checks import Checks
from agent_orchestrator.changes.checks.base_branch import BaseStates
from agent_orchestrator.changes.checks.proof import Proofs
from agent_orchestrator.changes.conflicts import Conflicts
from agent_orchestrator.changes.forge_sync import (
    AfterLanding,
    Checkup,
    ForgeChanges,
    ForgeWatch,
    Outages,
    Repositories,
    Tracking,
    Webhooks,
)
from agent_orchestrator.changes.issues.local_tracker import Issues
from agent_orchestrator.changes.merge_queue import MergeQueue
from agent_orchestrator.changes.pull_requests.branch_watch import Bases
from agent_orchestrator.changes.pull_requests.local import Pulls
from agent_orchestrator.changes.pull_requests.stacks import Stacks
from agent_orchestrator.changes.reviews.agent_reviews import AgentReviews
from agent_orchestrator.changes.reviews.reviews import Reviews
from agent_orchestrator.changes.reviews.threads import Discussions
from agent_orchestrator.cluster.nodes import ClusterNodes
from agent_orchestrator.config.load import MAX_BYTES
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.config.projects.settings import Configuration
from agent_orchestrator.config.scope import ConfigSet, DaemonConfig
from agent_orchestrator.config.tokens import Tokens
from agent_orchestrator.config.trust import started_with
from agent_orchestrator.core.effects import Effect, Runner
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.errors import AoError, Missing
from agent_orchestrator.fleet.coordinator.coordinator import Coordinators
from agent_orchestrator.fleet.fixes.runs import Fixes
from agent_orchestrator.fleet.notifications import Answers, Notifying, Trial
from agent_orchestrator.fleet.notifications.all_done import Completion
from agent_orchestrator.fleet.notifications.quiet_hours import Quiet
from agent_orchestrator.fleet.notifications.slack_buttons import SlackButtons
from agent_orchestrator.fleet.notifications.targets import Targets
from agent_orchestrator.fleet.plans import Planner
from agent_orchestrator.fleet.plans.apply import Applying
from agent_orchestrator.fleet.plans.draft import Drafting
from agent_orchestrator.fleet.reactions.actions import Actions
from agent_orchestrator.fleet.reactions.attachments import Gathering
from agent_orchestrator.fleet.reactions.command_action import Commanding
from agent_orchestrator.fleet.reactions.executor import Reacting
from agent_orchestrator.fleet.reactions.message_text import Wording
from agent_orchestrator.fleet.reactions.rules_in_force import Reactions
from agent_orchestrator.fleet.reactions.spawn_action import Spawning
from agent_orchestrator.fleet.scheduling.admission import Admission
from agent_orchestrator.fleet.scheduling.auto_assign import Assigning
from agent_orchestrator.fleet.scheduling.backlog import Backlog, profile_for
from agent_orchestrator.fleet.scheduling.failed_dependencies import Dependents
from agent_orchestrator.fleet.scheduling.keep_awake import Machine, Power
from agent_orchestrator.fleet.usage.account_limits import Quota
from agent_orchestrator.fleet.usage.budgets import Budgets
from agent_orchestrator.fleet.usage.usage import Usages
from agent_orchestrator.server.access.logins import Logins
from agent_orchestrator.server.services import Services
from agent_orchestrator.sessions.agents.catalog import Agents
from agent_orchestrator.sessions.agents.observer import Observer
from agent_orchestrator.sessions.isolation.sandbox import Guarded, owner, shared
from agent_orchestrator.sessions.known_secrets import learn_configuration, learn_environment
from agent_orchestrator.sessions.lifecycle import Lifecycle
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.sessions.permissions.service import Permissions
from agent_orchestrator.sessions.plugin_listing import PluginListing
from agent_orchestrator.sessions.plugins import Plugins
from agent_orchestrator.sessions.prune import Prune
from agent_orchestrator.sessions.report_tool import Reporting
from agent_orchestrator.sessions.session_view import Views
from agent_orchestrator.sessions.sessions import Sessions
from agent_orchestrator.sessions.sleep_detection import Waking
from agent_orchestrator.sessions.usage_wait import Wait
from agent_orchestrator.views.audit import Audit
from agent_orchestrator.views.board import Live
from agent_orchestrator.views.completion_files import Names
from agent_orchestrator.views.doctor import Doctor
from agent_orchestrator.views.event_feed import Feed
from agent_orchestrator.views.findings import of_clock, of_nodes
from agent_orchestrator.views.inspection import Inspection
from agent_orchestrator.views.metrics import Metrics
from agent_orchestrator.views.overview import Overviews
from agent_orchestrator.views.recap import Recap
from agent_orchestrator.views.stats import Stats
from agent_orchestrator.views.story import Stories
from agent_orchestrator.views.traffic import Traffic

if TYPE_CHECKING:
    from agent_orchestrator.core.store.postgres import Postgres

LONG_TO_CHECK = 512
"""Megabytes from which on checking the database takes too long while the daemon runs."""


class Assembly:
    """All parts of one daemon."""

    def __init__(self, home: Home, config_file: Path | None = None, *, foreign: bool = False) -> None:
        """Create all parts; `foreign`: the configuration file came with a repository."""
        self.home = home
        self.host = Guarded()
        self.host.hidden = (home.path, home.socket("x").parent)
        learn_environment(os.environ)
        self.config = ConfigSet(home.config, os.environ, config_file)
        self.config.on_change = lambda: learn_configuration(self.config.data(), os.environ)
        self.config.foreign = foreign
        # Replaced by `Projects`, which asks the log.
        self.config.trusts = lambda loaded: not foreign and bool(started_with(loaded))
        self.config_file = config_file
        self.early = early_settings(self.config)
        """The daemon's settings, if a file sets the database and they had to be read before the store is opened; else None."""
        self.shared = shared_store(home, self.early.database) if self.early else None
        """The store, if it is one that other daemons can use too; else None."""
        self.clock = Clock()
        self.flow = Flow(self.shared or Database.sqlite(home.database), self.clock, self.config.rules)
        self.flow.here = self.shared.me.place if self.shared else ""
        self.watch = Watch()
        self.plugins = Plugins(home, self.host, self.config)
        self.host.owner = lambda path: owner(self.config.project, self.flow.sessions.values(), path)
        self.host.shared = lambda path: shared(self.config.project, self.flow.sessions.values(), path)
        self.plugins.elsewhere = self.flow.elsewhere
        self.tokens = Tokens(home)
        self.views = Views(self.flow)
        self.projects = Projects(self.flow, home, self.host, self.config, self.watch)
        self.projects.on_reload += [self.views.forget, self.plugins.forget]
        self.plugins.admit, self.plugins.loaded = self.projects.admits, self.projects.note_plugin
        self.sessions = Sessions(self.flow, home, self.host, self.plugins, self.projects, self.views, profile_for)
        self.lifecycle = Lifecycle(
            self.flow, home, self.host, self.plugins, self.tokens, self.watch, self.sessions.print
        )
        self.nodes = ClusterNodes(self.flow, home, self.host, self.config, self.plugins, self.tokens)
        self.sessions.check_node, self.sessions.creation.node_folder = self.nodes.check, self.nodes.folder
        self.effects: dict[str, Effect] = {**self.lifecycle.effects(), **self.nodes.effects(self.lifecycle)}
        """How each kind of intent is carried out."""
        self._create_changes()
        self._create_rules()
        self._create_fleet()
        self._create_views()

    def _create_changes(self) -> None:
        """Create the parts for what sessions produce: checks, pull requests and merges, here and at forges."""
        self.checks = Checks(self.home, self.host)
        self.pulls = Pulls(self.flow, self.home, self.host, self.plugins, self.projects, self.lifecycle, self.checks)
        self.queue = MergeQueue(
            self.flow, self.home, self.host, self.plugins, self.projects, self.checks, self.pulls.check_spec
        )
        self.bases = Bases(self.flow, self.watch)
        self.repositories = Repositories(self.plugins, self.host)
        self.repositories.check = lambda project: self.projects.check_trust(project, None)
        self.sessions.forge_of = self.repositories.name
        self.forge_changes = ForgeChanges(self.flow, self.host, self.repositories)
        after_landing = AfterLanding(self.flow, self.home, self.host, self.repositories, self.queue.forget_branch)
        self.lifecycle.after_landing = after_landing.forget_branch
        self.sessions.claim = self.forge_changes.claim
        self.queue.call_off_elsewhere = self.forge_changes.call_off
        self.outages = Outages(self.flow, self.repositories)
        self.forge_watch = ForgeWatch(self.flow, self.home, self.host, self.repositories, self.outages)
        self.tracking = Tracking(self.flow, self.repositories, self.outages)
        self.sessions.learn_issue = self.tracking.learn
        self.projects.on_reload += [self.tracking.look, self.forge_watch.look]
        self.effects |= self.forge_changes.effects({**self.pulls.effects(), **self.queue.effects()})
        self.effects |= {**self.tracking.effects(), **after_landing.effects()}

    def _create_rules(self) -> None:
        """Create the parts that react to changes: stacks, reviews, reactions, notifications."""
        self.stacks = Stacks(self.flow, self.home, self.host)
        self.reviews = Reviews(self.flow, self.home, self.host, self.sessions, self.views, self.watch)
        self.agent_reviews = AgentReviews(self.flow, self.host, self.plugins, self.sessions, self.reviews)
        self.quiet = Quiet(self.flow, self.projects.quiet_hours)
        self.pulls.gate = self.outages.gate = self.quiet.gate
        self.reacting = Reacting(
            self.flow,
            Wording(self.views, self.projects.trusted_authors),
            Gathering(self.flow, self.home, self.host),
            Actions(self.flow),
            self.quiet,
            self.plugins.watched,
        )
        commanding = Commanding(
            self.flow, self.home, self.host, self.plugins, self.projects, self.lifecycle, self.quiet
        )
        spawning = Spawning(self.flow, self.plugins, self.sessions, self.agent_reviews, self.quiet)
        targets = Targets(self.config, self.plugins)
        self.answers = Answers(self.flow, self.tokens)
        self.notifying = Notifying(self.flow, targets, self.answers, lambda: self.plugins.here.url or "")
        self.flow.routes = targets.routes
        self.projects.on_reload.append(self.notifying.reload)
        self.views.untold = self.notifying.health.troubles
        self.effects |= {**self.stacks.effects(), **self.agent_reviews.effects(), **self.notifying.effects()}
        self.effects |= {**self.reacting.effects(), **commanding.effects(), **spawning.effects()}

    def _create_fleet(self) -> None:
        """Create the parts that decide who works on what and when: plans, budgets, limits, the backlog."""
        self.conflicts = Conflicts(self.flow, self.home, self.host, self.watch)
        self.queue.collisions = self.conflicts.known
        drafting = Drafting(
            self.flow, self.home, self.host, self.plugins, self.projects, self.lifecycle, self.conflicts, self.tracking
        )
        applying = Applying(self.flow, self.repositories, self.tracking)
        self.planner = Planner(self.flow, self.views, self.repositories, drafting, applying, self.pulls.numbering)
        self.effects |= self.planner.effects()
        self.runner = Runner(self.flow, self.effects)
        self.waking = Waking(self.flow)
        self.runner.confirm = self._before_effect
        self.power = Power(self.flow, lambda: self.config.daemon.power.prevent_idle_sleep, Machine(self.host))
        self.projects.on_reload.append(self.power.look)
        self.budgets, self.completion = Budgets(self.flow, self.config), Completion(self.flow)
        self.budgets.notice, drafting.spent_for = self.quiet.gate, self.budgets.spent_for
        self.quota = Quota(self.flow, self._model_of)
        self.lifecycle.may_go = self.reacting.may_go = self._usage_wait
        self.reacting.actions.holds = self.quota.holds
        self.permissions = Permissions(self.flow, self.plugins, self.lifecycle)
        self.observer = Observer(self.flow, self.home, self.plugins, self.watch)
        self.admission = Admission(self.flow, self.home, self.config, self.conflicts.expected)
        self.admission.gates += [self.quota.gate, self.budgets.gate, self.nodes.gate, self._trust_gate]
        self.projects.on_reload.append(self.admission.look)
        self.lifecycle.distrust = self._untrusted_use
        self.lifecycle.catch_up = self.observer.catch_up
        self.nodes.on_placed.append(self.admission.look)
        self.quota.on_release += [self.admission.look, self.runner.hurry]
        self.issues = Issues(self.flow, self.pulls.numbering)
        self.issues.elsewhere = self.tracking
        self.backlog = Backlog(self.flow, self.config)
        self.assigning = Assigning(self.flow, self.backlog, self.sessions, self.quiet.gate)
        self.dependents = Dependents(self.flow, self.quiet.gate)
        self.projects.on_reload.append(self.assigning.reload)
        self.projects.on_reload.append(self.admission.look)

    def _create_views(self) -> None:
        """Create the parts that people and programs read from, like feeds, the board, the doctor and metrics."""
        self.feed = Feed(self.flow)
        self.audit = Audit(self.flow)
        self.inbox = self.answers.inbox = Inbox(self.flow, self.home, self.permissions, self.sessions, self.views)
        self.fixes = Fixes(
            self.flow,
            self.home,
            self.host,
            self.plugins,
            self.projects,
            self.sessions,
            self.reviews,
            self.inbox,
            self.lifecycle,
            self.checks,
            self.views,
        )
        self.plugins.own_checks, self.plugins.own_commands = self.fixes.checks_of, self.fixes.commands_of
        self.coordinators = Coordinators(self.flow, self.host, self.plugins, self.sessions, self.inbox)
        self.base_states = BaseStates(self.flow, self.plugins, self.checks, self.pulls.check_spec)
        overviews = Overviews(self.flow, self.config, self.base_states)
        self.live = Live(self.flow, self.home, self.views, self.inbox, self.queue, overviews)
        self.queue.on_plan.append(self.live.look)
        for progress in (self.planner.drafting.progress, self.planner.applying.progress):
            progress.on_news.append(partial(self.live.tell, "plan-progress"))
        self.fixes.progress.on_news.append(partial(self.live.tell, "fix-progress"))
        self.base_states.on_news.append(self.live.look)
        self.forge_watch.on_bases.append(self.base_states.hear)
        self.projects.on_reload.append(self.live.forget)
        self.names = Names(self.flow, self.home, self.sessions.complete)
        self.projects.on_reload.append(self.names.reload)
        self.agents = Agents(self.plugins)
        self.webhooks = Webhooks(self.flow, self.repositories, self.forge_watch, self.tracking)
        self.proofs = Proofs(self.host, self.plugins, self.projects, self.checks)
        self.checkup = Checkup(self.repositories, self.webhooks)
        self.doctor = Doctor(self.flow, self.home, self.host, self.projects, self.agents)
        self.trial = Trial(self.notifying)
        self.metrics = Metrics(self.flow, self.home, self.views, self.runner, self.webhooks, Traffic())
        self.doctor.more += [self.proofs.checkup, self.checkup.run, self._check_clock, self._check_database]
        self.doctor.more += [self._check_nodes, self.trial.checkup, self.power.checkup]

    async def _before_effect(self) -> None:
        """Wait until time that the machine slept is accounted for, and confirm that no other daemon may run this effect."""
        await self.waking.settle()
        if self.shared is not None:
            await self.shared.confirm()

    async def _check_database(self) -> list[dict[str, Any]]:
        """Return the doctor's findings about the database."""
        if self.shared is None:
            return [await self._check_database_file()]
        try:
            version = await self.shared.answers()
        except AoError as error:
            return [finding("database", "failed", error.text, error.remedy)]
        return [finding("database", "ok", f"{self.shared.address}, PostgreSQL {version}")]

    async def _check_database_file(self) -> dict[str, Any]:
        """Return the doctor's finding about an SQLite database."""
        size = self.home.database.stat().st_size / (1 << 20)
        if size > LONG_TO_CHECK:
            note = "not looked through: ao doctor --repair --dry-run does, while no daemon runs"
            return finding("database", "ok", f"sqlite: {self.home.database}, {size:,.0f} MB, {note}")
        try:
            damage = await self.flow.store.damage() if isinstance(self.flow.store, Database) else ""
        except AoError as error:
            damage = error.text
        if damage:
            remedy = "ao shutdown, then ao doctor --repair: what it changes is kept as it was"
            return finding("database", "failed", f"{self.home.database} is damaged: {damage}", remedy)
        return finding("database", "ok", f"sqlite: {self.home.database}, {size:.1f} MB, sound")

    async def _check_clock(self) -> list[dict[str, Any]]:
        """Return the doctor's finding about the clock; runs after the checks of the forges, whose answers tell the time."""
        from agent_orchestrator.plugins.forges.shared.http import all_shared

        return [of_clock({http.speaker.name: http.skew for http in all_shared() if http.skew is not None})]

    async def _check_nodes(self) -> list[dict[str, Any]]:
        """Return the doctor's findings about the nodes."""
        return of_nodes(await self.nodes.list()) if self.flow.home.nodes else []

    def _usage_wait(self, facts: SessionFacts) -> Wait | None:
        """Return why a session may not use its model now, or None; then it has taken its account's next turn."""
        return self.budgets.wait(facts) or self.quota.take(facts)

    def _untrusted_use(self, facts: SessionFacts) -> str:
        """Return which untrusted configuration a session would use, or ""."""
        project = self.config.project(facts.project)
        return self.projects.distrust(project, facts.spec.profile) if project else ""

    def _trust_gate(self, facts: SessionFacts, _others: Sequence[SessionFacts]) -> str:
        """Return that a session waits for trust in its configuration, or ""."""
        untrusted = self._untrusted_use(facts)
        return f"your trust in its configuration ({untrusted}): ao trust" if untrusted else ""

    def _model_of(self, facts: SessionFacts) -> str:
        """Return the model that a session's profile or agent is configured with, or ""."""
        settings = self.config.agent(facts.project, facts.spec.profile or facts.spec.agent)
        return (settings and settings.model) or ""

    def services(self, shutdown: Callable[[bool], Awaitable[None]]) -> Services:
        """Return the services that the server's routes use."""
        inspection = Inspection(self.flow, self.home, self.host, self.plugins, self.lifecycle, self.views, self.watch)
        inspection.unenforced = self.budgets.unenforced
        return Services(
            version=__version__,
            home=self.home,
            sessions=self.sessions,
            inbox=self.inbox,
            permissions=self.permissions,
            usage=Usages(self.flow, self.quota, self.budgets),
            inspection=inspection,
            reviews=self.reviews,
            agent_reviews=self.agent_reviews,
            discussions=Discussions(self.flow),
            reactions=Reactions(self.flow, self.views, self.reacting),
            reporting=Reporting(self.flow, self.observer.look_at_head),
            queue=self.queue,
            conflicts=self.conflicts,
            issues=self.issues,
            backlog=self.backlog,
            planner=self.planner,
            fixes=self.fixes,
            feed=self.feed,
            notifiers=self.trial,
            answers=self.answers,
            slack=SlackButtons(self.notifying.targets, self.answers, self.clock),
            audit=self.audit,
            live=self.live,
            stories=Stories(self.flow, self.plugins, self.views),
            stats=Stats(self.flow),
            recap=Recap(self.flow),
            metrics=self.metrics,
            traffic=self.metrics.traffic,
            coordinators=self.coordinators,
            projects=self.projects,
            proofs=self.proofs,
            plugins=PluginListing(self.plugins, self.projects),
            config=Configuration(self.home, self.projects),
            agents=self.agents,
            doctor=self.doctor,
            prune=Prune(self.flow, self.home, self.host, self.plugins, self.lifecycle),
            tokens=self.tokens,
            logins=Logins(self.tokens),
            webhooks=self.webhooks,
            nodes=self.nodes,
            shutdown=shutdown,
        )


def early_settings(config: ConfigSet) -> DaemonConfig | None:
    """Return the daemon's settings if a file may set the database, else None. Raises an error for such a file that is invalid.

    Without that file the daemon would open another database, which has none of the sessions.
    """
    files = [path for path in config.places if path and path.is_file()]
    relevant = [path for path in files if _may_set_database(path)]
    for path in files if relevant else ():
        try:
            config.load_home() if path == config.places[0] else config.add(path)
        except AoError:
            if path in relevant:
                raise
    return config.daemon if relevant else None


def _may_set_database(path: Path) -> bool:
    """Return whether a configuration file mentions a database."""
    try:
        return b"database" in read_plain(path.resolve(), MAX_BYTES)
    except NotPlain:
        return True  # too long to be valid: loading it raises the error


def shared_store(home: Home, database: str) -> Postgres | None:
    """Return the store at a PostgreSQL server, if the setting names one."""
    if "://" not in database:
        return None
    machine = ""
    try:
        from agent_orchestrator.core.store.leader import Active
        from agent_orchestrator.core.store.postgres import Postgres
    except ImportError:
        raise Missing(
            "database: psycopg, which speaks to PostgreSQL, is not installed",
            "pip install 'agent-orchestrator[postgres]'",
        ) from None
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_text().strip()[:8]
    name = platform.node() or "localhost"
    return Postgres(database, Active(name, str(home.path), os.getpid(), time.time(), machine=machine))
