"""Nodes that are lost, and sessions that leave their node: saved there where that can be, and started again elsewhere.

Nobody is started elsewhere before it is certain that nothing of him runs where he was: the lease of his agent is over by our own
clock, or the node itself said that the agent has ended. Each loss is told once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence

import structlog

from agent_orchestrator.cluster.node.lease import MARGIN
from agent_orchestrator.cluster.nodes.registry import UNSEEN_AFTER, Known, Nodes
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Exit
from agent_orchestrator.sessions.agents.observer import Observer
from agent_orchestrator.sessions.lifecycle import Lifecycle
from agent_orchestrator.sessions.plugins import handle_of

LOOK_EVERY = 0.5
"""Seconds between two looks at nodes that cannot be reached; while all are there nothing is looked at."""
JOIN_WITHIN = 60.0
"""Seconds that a node which was chosen gets to come for the first time."""
UNHEARD_AFTER = 5.0
"""Seconds after the daemon's start until it is told that a node has not come back."""
MOST_LOSSES = 5
"""Nodes that may be lost with a session, one after the other, until a person must look."""

INTERRUPTED = (
    "The machine that you worked on ({node}) was lost in the midst of your turn. You go on on another one: your workspace is as it was "
    "last saved, so what you did right before may be missing. Look at what is there (git status, git log), and go on with your task."
)
MOVED = (
    "You were moved from {node} to another machine in the midst of your turn ({reason}). Your workspace is as it was; "
    "programs that you had started have ended. Go on with your task."
)

log = structlog.get_logger()


class Loss:
    """Watches those that cannot be reached."""

    def __init__(
        self,
        flow: Flow,
        nodes: Nodes,
        lifecycle: Lifecycle,
        observer: Observer,
        notice: Callable[[str, e.Notified], e.Body],
    ) -> None:
        self.flow = flow
        self.nodes = nodes
        self.lifecycle = lifecycle
        self.observer = observer
        self.notice = notice
        self._watching: asyncio.Task[None] | None = None
        self._restarting: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Look whenever a node came or went."""
        self.nodes.on_news.append(self.look)
        self.flow.on_change.append(self._on_change)
        for facts in self.flow.sessions.values():
            self._restart_in_place(facts)
        self.look()

    def close(self) -> None:
        """Look no more."""
        for task in (self._watching, *self._restarting):
            if task:
                task.cancel()

    def look(self) -> None:
        """Look at those that cannot be reached until there are none."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.after is not None and isinstance(change.event.body, e.AgentLost | e.SessionPlaced):
                self._restart_in_place(change.after)
                self.look()

    # -- lost nodes ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            down = [known for known in self.nodes.known.values() if not known.remote.connected]
            open_ones = [known for known in down if not await self._settled(known)]
            if not open_ones:
                return
            await asyncio.sleep(LOOK_EVERY)

    async def _settled(self, known: Known) -> bool:
        """Is there nothing more to wait for? Then what there was to tell has been told."""
        name, now = known.remote.name, self.nodes.clock()
        sessions = self.nodes.sessions(name)
        facts = self.flow.home.nodes.get(name)
        since = now if known.down is None else known.down
        try:
            if now - since >= (UNSEEN_AFTER if known.joined else UNHEARD_AFTER) and (
                sessions or (facts and facts.state == "ready")
            ):
                await self.nodes.unseen(known, "its link is gone" if known.joined else "it has not come yet")
            left = [one for one in sessions if not await self._lost(known, one)]
            patient = now - since < self._patience(known)
            if not left and not patient and facts is not None and facts.state != "gone":
                lost = e.NodeLost(name, facts.reason)
                await self.flow.append(Event(lost, self.flow.clock(), "node", uuid.uuid4().hex))
                log.warning("a node is lost", node=name)
            if left != sessions:
                await self._tell_people(name, [one for one in sessions if one not in left])
        except AoError as error:
            log.warning("the loss of a node could not be recorded; it is tried again", node=name, error=str(error))
            return False
        return not left and (not patient or facts is None or facts.state == "gone")

    def _patience(self, known: Known) -> float:
        lease = self.nodes.grants.length + MARGIN
        return lease if known.joined else max(lease, JOIN_WITHIN)

    async def _lost(self, known: Known, facts: SessionFacts) -> bool:
        """Record that a session is lost with its node, as soon as that is certain."""
        grants = self.nodes.grants
        if facts.live:
            if not grants.is_over(facts.id):
                return False
            grants.end(facts.id, facts.generation)
        elif known.down is None or self.nodes.clock() - known.down < self._patience(known):
            return False
        if not grants.is_over(facts.id) or known.remote.connected:
            return False
        await self._displace(facts, f"node {known.remote.name} is lost")
        return True

    async def _displace(self, facts: SessionFacts, reason: str) -> None:
        node, handle = facts.node or "", handle_of(facts)
        if facts.live and handle is not None:
            await self.observer.tell_end(facts.id, handle, Exit(), lost=reason)
        facts = self.flow.sessions[facts.id]
        wanted = facts.wanted == "run" and bool(facts.launch and facts.launch.lost)
        often = facts.losses_with(self.flow.clock()) >= MOST_LOSSES
        now, unique = self.flow.clock(), f"{facts.id}:{facts.moves}"
        body = e.SessionDisplaced(node, reason, lost=True, restart=wanted and not often)
        events = [Event(body, now, "node", f"displaced:{unique}", facts.project, facts.id)]
        if wanted and not often and facts.launch and facts.launch.cut_short:
            text = e.MessageQueued(f"lost-{unique.replace(':', '-')}", INTERRUPTED.format(node=node), "daemon")
            events.append(Event(text, now, "node", f"interrupted:{unique}", facts.project, facts.id))
        if often and wanted:
            told = e.Notified(
                "node-lost",
                f"{facts.id}: {MOST_LOSSES} nodes were lost with it",
                f"it is not started again by itself; when the nodes are well: ao restore {facts.id}",
                "urgent",
            )
            events.append(Event(told, now, "node", f"given-up:{unique}", facts.project, facts.id))
        await self.flow.append(*events)

    async def _tell_people(self, node: str, sessions: Sequence[SessionFacts]) -> None:
        of_project: dict[str, list[str]] = defaultdict(list)
        for facts in sessions:
            of_project[facts.project].append(facts.id)
        events = []
        for project, names in of_project.items():
            text = f"{', '.join(names)}: started again on other nodes as these have room, from their last checkpoints"
            told = e.Notified("node-lost", f"node {node} is lost with {len(names)} sessions", text, "warning")
            events.append(Event(self.notice(project, told), self.flow.clock(), "node", uuid.uuid4().hex, project))
        if events:
            await self.flow.append(*events)

    # -- agents that ended on a node that lives ------------------------------------------------------------------------

    def _restart_in_place(self, facts: SessionFacts) -> None:
        """An agent whose lease ran out, or whose node was started anew, goes on where it was once the node is there."""
        launch = facts.launch
        gone = facts.remote and facts.node and launch is not None and launch.lost and not facts.stopped
        if gone and facts.wanted == "run" and facts.launched_run == facts.run and not facts.moving:
            task = asyncio.get_running_loop().create_task(self._again(facts.id))
            self._restarting.add(task)
            task.add_done_callback(self._restarting.discard)

    async def _again(self, session: str) -> None:
        facts = self.flow.sessions[session]
        node = facts.node or ""
        await self.nodes.of(node).remote.until_connected()
        facts = self.flow.sessions[session]
        launch = facts.launch
        if facts.node != node or launch is None or not launch.lost or facts.launched_run != facts.run or facts.stopped:
            return
        self.nodes.grants.end(session, facts.generation)
        now, unique = self.flow.clock(), f"{session}:{facts.generation}"
        events = [Event(e.RestoreRequested(), now, "node", f"restore:{unique}:lost", facts.project, session)]
        if launch.cut_short:
            text = e.MessageQueued(f"lost-{unique.replace(':', '-')}-again", INTERRUPTED.format(node=node), "daemon")
            events.append(Event(text, now, "node", f"interrupted:{unique}:again", facts.project, session))
        await self.flow.append(*events)

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def move(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Save a session's work and remove its workspace on the node that it leaves; its agent has ended."""
        facts = self.flow.sessions[intent.session]
        node, due = facts.node or "", facts.launched_run != facts.run
        report = await self.lifecycle.leave(facts)
        bodies: list[e.Body] = [e.SessionDisplaced(node, facts.moving, restart=due)]
        if report.ref:
            bodies.insert(0, e.WorkRescued(report.ref, report.commit or "", tuple(report.saved)))
        now = self.flow.clock()
        return [Event(one, now, "node", f"{intent.key}:{one.type}", facts.project, facts.id) for one in bodies]
