"""Assigns nodes to sessions: admission holds a session and shows what it waits for until the placer has chosen its node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_orchestrator.cluster.nodes.placement import Placer, Wish
from agent_orchestrator.cluster.nodes.settings import ClusterSettings
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Again
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError
from agent_orchestrator.fleet.scheduling.slots import CHOOSING

LOOK_AGAIN = 1.0
"""Seconds that the `place` effect waits for a node before it is retried."""
CHOOSING_WITHIN = 1.0
"""Seconds that choosing a node may take before the session shows what it waits for."""
LONGEST_PAUSE = 60.0
"""The longest pause in seconds before a session that lost several nodes in a row is placed again."""


@dataclass(slots=True)
class _NodeRequest:
    """A session's pending request for a node; a new one is made for each run, move and node."""

    need: tuple[int, int, str | None]
    task: asyncio.Task[str]
    begun: float


class Placing:
    """Requests nodes from the placer for sessions that are ready to start."""

    def __init__(self, flow: Flow, placer: Placer, settings: Callable[[], ClusterSettings]) -> None:
        self.flow = flow
        self.placer = placer
        self.settings = settings
        self.on_news: list[Callable[[], None]] = []
        """Called when a session has been given a node, or may check its gate again."""
        self._requests: dict[str, _NodeRequest] = {}
        self._to_release: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Watch for changes, and report to the placer the sessions that have a node already."""
        self.flow.on_change.append(self._on_change)
        for facts in self.flow.sessions.values():
            if facts.remote and facts.node and not facts.stopped:
                self.placer.take(facts.id, facts.generation, facts.node, self.wish(facts))

    def close(self) -> None:
        """Cancel all pending requests."""
        for request in self._requests.values():
            request.task.cancel()
        for task in self._tasks:
            task.cancel()

    def wish(self, facts: SessionFacts) -> Wish:
        """Return what a session needs of a node: the node of its workspace, else before its first move the one from `--node`."""
        requested_node = None if facts.moves else facts.spec.node
        return replace(self.settings().wish, node=facts.node or requested_node)

    def gate(self, facts: SessionFacts, working: Sequence[SessionFacts]) -> str:
        """Return what a session waits for (a pause, a node, or a free place on its node), or "" if it may start."""
        if not facts.remote:
            return ""
        pause = min(2.0**facts.losses, LONGEST_PAUSE) if facts.losses > 1 else 0.0
        wait = facts.displaced_at + pause - self.flow.clock()
        if pause and wait > 0:
            asyncio.get_running_loop().call_later(wait, self._notify_listeners)
            return f"a while: {facts.losses} nodes were lost with it"
        task = self._request_node(facts)
        if not task.done():
            begun = self._requests[facts.id].begun
            if self.flow.clock() - begun < CHOOSING_WITHIN:
                asyncio.get_running_loop().call_later(CHOOSING_WITHIN, self._notify_listeners)
                return CHOOSING
            return self.placer.why(facts.id) or "a node"
        if task.exception() is not None:
            return ""  # the effect `place` fails with this error
        node, limit = task.result(), self.settings().most
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
        """Return the event that records a session's node; raise `Again` while none is chosen."""
        facts = self.flow.sessions[intent.session]
        task = self._request_node(facts)
        await asyncio.wait([task], timeout=LOOK_AGAIN)
        if not task.done() or task.cancelled():
            raise Again(LOOK_AGAIN)
        self._requests.pop(facts.id, None)
        body = e.SessionPlaced(task.result())
        return [Event(body, self.flow.clock(), "scheduler", f"{intent.key}:done", facts.project, facts.id)]

    def _request_node(self, facts: SessionFacts) -> asyncio.Task[str]:
        """Return the task that chooses the session's node; start it if none is running for its current need."""
        need = (facts.run, facts.moves, facts.node)
        request = self._requests.get(facts.id)
        if request is None or request.need != need or request.task.cancelled():
            if request is not None:
                request.task.cancel()
            task = asyncio.get_running_loop().create_task(self._choose_node(facts))
            request = self._requests[facts.id] = _NodeRequest(need, task, self.flow.clock())
            task.add_done_callback(lambda _: self._notify_listeners())
        return request.task

    async def _choose_node(self, facts: SessionFacts) -> str:
        """Release the session's old place if that is pending, then return the node that the placer chooses."""
        if facts.id in self._to_release:
            await self._release_place(facts.id)
        return await self.placer.place(facts.id, facts.generation + 1, self.wish(facts))

    def _notify_listeners(self) -> None:
        """Call all listeners in `on_news`."""
        for listener in self.on_news:
            listener()

    def _on_change(self, changes: Sequence[Change]) -> None:
        """Release the place of a session that has left its node or was stopped."""
        for change in changes:
            after, body = change.after, change.event.body
            if after is None or not after.remote:
                continue
            if isinstance(body, e.SessionDisplaced):
                self._to_release.add(after.id)
            elif isinstance(body, e.SessionStopped) or (isinstance(body, e.StopRequested) and not after.node):
                if request := self._requests.pop(after.id, None):
                    request.task.cancel()
                self._to_release.add(after.id)
            else:
                continue
            task = asyncio.get_running_loop().create_task(self._release_place(after.id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _release_place(self, session: str) -> None:
        """Release a session's place, once; on an error it stays pending."""
        if session in self._to_release:
            self._to_release.discard(session)
            try:
                await self.placer.release(session)
            except AoError:
                self._to_release.add(session)
                raise
