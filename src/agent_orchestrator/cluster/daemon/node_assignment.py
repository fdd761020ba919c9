"""Assigns nodes to sessions: admission holds a session and shows what it waits for until the placer has chosen its node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_orchestrator.cluster.daemon.placement import Placer, Requirements
from agent_orchestrator.cluster.daemon.settings import ClusterSettings
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import RetryLater
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.signals import NodesChanged
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.start_decision import CHOOSING_NODE_REASON
from agent_orchestrator.sessions.part import Core, Part

RETRY_SECONDS = 1.0
"""Seconds that the `place` effect waits for a node before it is retried."""
CHOICE_SECONDS = 1.0
"""Seconds that choosing a node may take before the session shows what it waits for."""
MAX_LOSS_PAUSE_SECONDS = 60.0
"""The longest pause in seconds before a session that lost several nodes in a row is placed again."""


@dataclass(slots=True)
class _NodeRequest:
    """A session's pending request for a node; a new one is made for each run, move and node."""

    need: tuple[int, int, str | None]
    task: asyncio.Task[str]
    began_at: float


class NodeAssignment(Part):
    """Requests nodes from the placer for sessions that are ready to start."""

    def __init__(self, core: Core, placer: Placer, settings: Callable[[], ClusterSettings]) -> None:
        super().__init__(core)
        self.placer = placer
        self.settings = settings
        self._requests: dict[str, _NodeRequest] = {}
        self._pending_releases: set[str] = set()

    def start(self) -> None:
        """Watch for changes, and report to the placer the sessions that have a node already."""
        self.on(self._release_after_changes, e.SessionDisplaced, e.SessionStopped, e.StopRequested)
        for facts in self.flow.sessions.values():
            if facts.remote and facts.node and not facts.stopped:
                self.placer.count_existing(facts.id, facts.generation, facts.node, self.requirements(facts))

    def requirements(self, facts: SessionFacts) -> Requirements:
        """Return what a session needs of a node: the node of its workspace, else before its first move the one from `--node`."""
        requested_node = None if facts.moves else facts.spec.node
        return replace(self.settings().requirements, node=facts.node or requested_node)

    def gate(self, facts: SessionFacts, working: Sequence[SessionFacts]) -> str:
        """Return what a session waits for (a pause, a node, or a free place on its node), or "" if it may start."""
        if not facts.remote:
            return ""
        pause = min(2.0**facts.losses, MAX_LOSS_PAUSE_SECONDS) if facts.losses > 1 else 0.0
        wait = facts.displaced_at + pause - self.clock()
        if pause and wait > 0:
            self.clock.call_later(wait, self._allow_checks)
            return f"a while: {facts.losses} nodes were lost with it"
        task = self._request_node(facts)
        if not task.done():
            begun = self._requests[facts.id].began_at
            if self.clock() - begun < CHOICE_SECONDS:
                self.clock.call_later(CHOICE_SECONDS, self._allow_checks)
                return CHOOSING_NODE_REASON
            return self.placer.waiting_reason(facts.id) or "a node"
        if task.exception() is not None:
            return ""  # the effect `place` fails with this error
        node, limit = task.result(), self.settings().max_sessions_per_node
        agents_there = sum(self.node_of(other) == node for other in working if other.id != facts.id)
        if limit is not None and agents_there >= limit:
            return f"a free place on {node} ({agents_there} of {limit} agents at work)"
        return ""

    def node_of(self, facts: SessionFacts) -> str | None:
        """Return the node that a session lives on or has been given, or None."""
        request = self._requests.get(facts.id)
        is_chosen = (
            request and request.task.done() and not request.task.cancelled() and request.task.exception() is None
        )
        return facts.node or (request.task.result() if request and is_chosen else None)

    async def place(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Return the event that records a session's node; raise `RetryLater` while none is chosen."""
        facts = self.flow.sessions[intent.session]
        task = self._request_node(facts)
        await asyncio.wait([task], timeout=RETRY_SECONDS)
        if not task.done() or task.cancelled():
            raise RetryLater(RETRY_SECONDS)
        self._requests.pop(facts.id, None)
        body = e.SessionPlaced(task.result())
        return [Event(body, self.clock(), "scheduler", f"{intent.key}:done", facts.project, facts.id)]

    def _request_node(self, facts: SessionFacts) -> asyncio.Task[str]:
        """Return the task that chooses the session's node; start it if none is running for its current need."""
        need = (facts.run, facts.moves, facts.node)
        request = self._requests.get(facts.id)
        if request is None or request.need != need or request.task.cancelled():
            if request is not None:
                request.task.cancel()
            task = self.spawn(self._choose_node(facts))
            request = self._requests[facts.id] = _NodeRequest(need, task, self.clock())
            task.add_done_callback(lambda _: self._allow_checks())
        return request.task

    async def _choose_node(self, facts: SessionFacts) -> str:
        """Release the session's old place if that is pending, then return the node that the placer chooses."""
        if facts.id in self._pending_releases:
            await self._release_place(facts.id)
        return await self.placer.place(facts.id, facts.generation + 1, self.requirements(facts))

    def _allow_checks(self) -> None:
        """Let sessions check again whether they may start."""
        self.emit(NodesChanged())

    def _release_after_changes(self, changes: Sequence[FactsChange]) -> None:
        """Release the place of a session that has left its node or was stopped."""
        for change in changes:
            after, body = change.after, change.event.body
            if after is None or not after.remote:
                continue
            if isinstance(body, e.SessionDisplaced):
                self._pending_releases.add(after.id)
            elif isinstance(body, e.SessionStopped) or (isinstance(body, e.StopRequested) and not after.node):
                if request := self._requests.pop(after.id, None):
                    request.task.cancel()
                self._pending_releases.add(after.id)
            else:
                continue
            self.spawn(self._release_place(after.id))

    async def _release_place(self, session: str) -> None:
        """Release a session's place, once; on an error it stays pending."""
        if session in self._pending_releases:
            self._pending_releases.discard(session)
            try:
                await self.placer.release(session)
            except AoError:
                self._pending_releases.add(session)
                raise
