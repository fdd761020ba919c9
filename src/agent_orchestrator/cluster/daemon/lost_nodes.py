"""Lost nodes, and sessions that leave their node: their work is saved there if possible, and they are restarted elsewhere.

A session is restarted elsewhere only once its old agent is certainly not running: its lease is over by the daemon's clock, or the node
itself reported its end. Each loss is recorded and notified once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Sequence

import structlog

from agent_orchestrator.cluster.daemon.registry import UNREACHABLE_AFTER_SECONDS, NodeRegistry, RegisteredNode
from agent_orchestrator.cluster.daemon.signals import NodeStateChanged
from agent_orchestrator.cluster.node.lease import MARGIN_SECONDS
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.notices import NoticeGate
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, Conflict
from agent_orchestrator.protocols import Exit
from agent_orchestrator.sessions.agents.observer import Observer
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.rescue import Rescue
from agent_orchestrator.sessions.session_plugins import handle_of

CHECK_INTERVAL = 0.5
"""Seconds between two checks of nodes that cannot be reached; there are no checks while all are connected."""
JOIN_TIMEOUT = 60.0
"""Seconds that a chosen node gets to connect for the first time."""
RECONNECT_TIMEOUT = 5.0
"""Seconds after the daemon's start until a node that has not reconnected is recorded as unreachable."""
MAX_LOSSES = 5
"""Nodes that may be lost with a session in a row before a person must restore it."""

INTERRUPTED_MESSAGE = (
    "The machine that you worked on ({node}) was lost in the midst of your turn. You go on on another one: your workspace is as it was "
    "last saved, so what you did right before may be missing. Look at what is there (git status, git log), and go on with your task."
)
MOVED_MESSAGE = (
    "You were moved from {node} to another machine in the midst of your turn ({reason}). Your workspace is as it was; "
    "programs that you had started have ended. Go on with your task."
)

log = structlog.get_logger()


class LostNodes(Part):
    """Watches nodes that cannot be reached, and restarts or moves their sessions."""

    source = "node"

    def __init__(
        self, core: Core, nodes: NodeRegistry, specs: SessionSpecs, observer: Observer, notices: NoticeGate
    ) -> None:
        super().__init__(core)
        self.nodes = nodes
        self.specs = specs
        self.observer = observer
        self._notices = notices
        self._watch_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch nodes and sessions, and restart agents that were lost on a node that is still in use."""
        self.on_signal(NodeStateChanged, lambda _signal: self.check_nodes())
        self.on(self._restart_lost, e.AgentLost, e.SessionPlaced)
        for facts in self.flow.sessions.values():
            self._restart_in_place(facts)
        self.check_nodes()

    def check_nodes(self) -> None:
        """Check unreachable nodes until there are none; does nothing while that is in progress."""
        if self._watch_task is None or self._watch_task.done():
            self._watch_task = self.spawn(self._watch())

    def _restart_lost(self, changes: Sequence[FactsChange]) -> None:
        """Restart a session whose agent was lost, if it stays on its node; check nodes after a loss or a placement."""
        for change in changes:
            if change.after is not None:
                self._restart_in_place(change.after)
                self.check_nodes()

    # -- lost nodes ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Check unreachable nodes every `CHECK_INTERVAL` seconds until each is connected again or dealt with."""
        while True:
            unreachable = [node for node in self.nodes.nodes.values() if not node.remote.connected]
            pending = [node for node in unreachable if not await self._check_node(node)]
            if not pending:
                return
            await asyncio.sleep(CHECK_INTERVAL)

    async def _check_node(self, node: RegisteredNode) -> bool:
        """Record what is certain about an unreachable node by now; return whether nothing is left to wait for."""
        name, now = node.remote.name, self.nodes.clock()
        sessions = self.nodes.sessions(name)
        facts = self.flow.home.nodes.get(name)
        since = now if node.disconnected_since is None else node.disconnected_since
        try:
            if now - since >= (UNREACHABLE_AFTER_SECONDS if node.has_joined else RECONNECT_TIMEOUT) and (
                sessions or (facts and facts.state == "ready")
            ):
                await self.nodes.record_unreachable(
                    node, "its link is gone" if node.has_joined else "it has not come yet"
                )
            remaining = [session for session in sessions if not await self._displace_if_certain(node, session)]
            is_waiting = now - since < self._grace_period(node)
            if not remaining and not is_waiting and facts is not None and facts.state != "gone":
                node_lost = e.NodeLost(name, facts.reason)
                await self.flow.append(Event(node_lost, self.clock(), "node", uuid.uuid4().hex))
                log.warning("a node is lost", node=name)
            if remaining != sessions:
                await self._notify_people(name, [session for session in sessions if session not in remaining])
        except AoError as error:
            log.warning("the loss of a node could not be recorded; it is tried again", node=name, error=str(error))
            return False
        return not remaining and (not is_waiting or facts is None or facts.state == "gone")

    def _grace_period(self, node: RegisteredNode) -> float:
        """Return how many seconds without a link a node is given before it counts as lost."""
        lease = self.nodes.grants.lease_seconds + MARGIN_SECONDS
        return lease if node.has_joined else max(lease, JOIN_TIMEOUT)

    async def _displace_if_certain(self, node: RegisteredNode, facts: SessionFacts) -> bool:
        """Record that a session is lost with its node, as soon as that is certain; return whether it is."""
        grants = self.nodes.grants
        if facts.live:
            if not grants.is_over(facts.id):
                return False
            grants.refuse_renewals(facts.id, facts.generation)
        elif node.disconnected_since is None or self.nodes.clock() - node.disconnected_since < self._grace_period(node):
            return False
        if not grants.is_over(facts.id) or node.remote.connected:
            return False
        await self._displace(facts, f"node {node.remote.name} is lost")
        return True

    async def _displace(self, facts: SessionFacts, reason: str) -> None:
        """Record that a session has left its lost node; restart it, or notify a person after `MAX_LOSSES` losses."""
        node, handle = facts.node or "", handle_of(facts)
        if facts.live and handle is not None:
            await self.observer.record_end(facts.id, handle, Exit(), lost=reason)
        facts = self.flow.sessions[facts.id]
        is_wanted = facts.requested_state == "run" and bool(facts.launch and facts.launch.loss_reason)
        has_lost_too_many = facts.losses_after_another(self.clock()) >= MAX_LOSSES
        now, unique = self.clock(), f"{facts.id}:{facts.moves}"
        body = e.SessionDisplaced(node, reason, lost=True, restart=is_wanted and not has_lost_too_many)
        events = [Event(body, now, "node", f"displaced:{unique}", facts.project, facts.id)]
        if is_wanted and not has_lost_too_many and facts.launch and facts.launch.lost_in_turn:
            message = e.MessageQueued(
                f"lost-{unique.replace(':', '-')}", INTERRUPTED_MESSAGE.format(node=node), "daemon"
            )
            events.append(Event(message, now, "node", f"interrupted:{unique}", facts.project, facts.id))
        if has_lost_too_many and is_wanted:
            notification = e.Notified(
                "node-lost",
                f"{facts.id}: {MAX_LOSSES} nodes were lost with it",
                f"it is not started again by itself; when the nodes are well: ao restore {facts.id}",
                "urgent",
            )
            events.append(Event(notification, now, "node", f"given-up:{unique}", facts.project, facts.id))
        await self.flow.append(*events)

    async def _notify_people(self, node: str, sessions: Sequence[SessionFacts]) -> None:
        """Notify each project that sessions were lost with a node."""
        sessions_by_project: dict[str, list[str]] = defaultdict(list)
        for facts in sessions:
            sessions_by_project[facts.project].append(facts.id)
        events = []
        for project, session_ids in sessions_by_project.items():
            text = f"{', '.join(session_ids)}: started again on other nodes as these have room, from their last checkpoints"
            notification = e.Notified(
                "node-lost", f"node {node} is lost with {len(session_ids)} sessions", text, "warning"
            )
            events.append(Event(self._notices(project, notification), self.clock(), "node", uuid.uuid4().hex, project))
        if events:
            await self.flow.append(*events)

    # -- agents that ended on a node that lives ------------------------------------------------------------------------

    def _restart_in_place(self, facts: SessionFacts) -> None:
        """Restart an agent whose lease ran out, or whose node restarted, on the same node once it is connected."""
        launch = facts.launch
        is_lost = facts.remote and facts.node and launch is not None and launch.loss_reason and not facts.stopped
        if is_lost and facts.requested_state == "run" and facts.launched_run == facts.run and not facts.move_reason:
            self.spawn(self._restore_on_node(facts.id))

    async def _restore_on_node(self, session: str) -> None:
        """Wait for the session's node, then request the restore of its lost launch, unless that is outdated by then."""
        facts = self.flow.sessions[session]
        node = facts.node or ""
        await self.nodes.get(node).remote.wait_connected()
        facts = self.flow.sessions[session]
        launch = facts.launch
        if (
            facts.node != node
            or launch is None
            or not launch.loss_reason
            or facts.launched_run != facts.run
            or facts.stopped
        ):
            return
        self.nodes.grants.refuse_renewals(session, facts.generation)
        now, unique = self.clock(), f"{session}:{facts.generation}"
        events = [Event(e.RestoreRequested(), now, "node", f"restore:{unique}:lost", facts.project, session)]
        if launch.lost_in_turn:
            message = e.MessageQueued(
                f"lost-{unique.replace(':', '-')}-again", INTERRUPTED_MESSAGE.format(node=node), "daemon"
            )
            events.append(Event(message, now, "node", f"interrupted:{unique}:again", facts.project, session))
        await self.flow.append(*events)

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def move(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Save a session's work and remove its workspace on the node that it leaves; return the events.

        Its agent has ended.
        """
        facts = self.flow.sessions[intent.session]
        node, has_pending_run = facts.node or "", facts.launched_run != facts.run
        report = await self._save_and_leave(facts)
        bodies: list[e.Body] = [e.SessionDisplaced(node, facts.move_reason, restart=has_pending_run)]
        if report.ref:
            bodies.insert(0, e.WorkRescued(report.ref, report.commit or "", tuple(report.saved)))
        now = self.clock()
        return [Event(body, now, "node", f"{intent.key}:{body.type}", facts.project, facts.id) for body in bodies]

    async def _save_and_leave(self, facts: SessionFacts) -> Rescue:
        """Save everything in a session's workspace and remove it, because the session continues on another node."""
        site, spec, handle = self.core.sites.for_session(facts), self.specs.workspace(facts), handle_of(facts)
        if handle is not None:
            await self.core.plugins.runtime_of(facts).discard(handle)
        if facts.workspace is None or not facts.workspace.present or not await site.folder_exists(spec.path):
            return await site.stored_rescue(spec)
        report = await site.rescue(spec)
        if reasons := await site.removal_obstacles(spec):
            raise Conflict(
                f"{spec.path} on {site.node} cannot be left: {'; '.join(reasons)}",
                f"look at it: ao sh {facts.id}; then stop it: ao stop {facts.id}",
            )
        await self.core.plugins.workspace_of(facts).remove(spec)
        return report
