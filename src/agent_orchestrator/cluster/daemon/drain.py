"""Draining of nodes: a drained node gets no new sessions; those it has finish their turns, are saved, and continue on other nodes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agent_orchestrator.cluster.daemon.lost_nodes import MOVED_MESSAGE
from agent_orchestrator.cluster.daemon.placement import Placer
from agent_orchestrator.cluster.daemon.registry import NodeRegistry
from agent_orchestrator.cluster.daemon.signals import NodeStateChanged
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.part import Core, Part

MAX_TURN_SECONDS = 600.0
"""Seconds that a turn may go on after a drain began before it is interrupted."""
PROGRESS_INTERVAL = 1.0
"""Progress is checked four times in this many seconds."""


class Drain(Part):
    """Moves sessions away from drained nodes."""

    def __init__(self, core: Core, nodes: NodeRegistry, placer: Placer) -> None:
        super().__init__(core)
        self.nodes = nodes
        self.placer = placer
        self._draining_since: dict[str, float] = {}
        """Drained node → the time from which its sessions have been moved."""
        self._immediate_drains: set[str] = set()
        """Drained nodes whose sessions are moved without waiting for their turns to end."""
        self._timer: Timer | None = None

    def start(self) -> None:
        """Watch for changes, and continue the drains that were requested before."""
        self.on(self._check_changed)
        for node in self.flow.home.nodes.values():
            if node.drained:
                self._draining_since[node.name] = self.clock()
                self.spawn(self.placer.drain(node.name, True))
        self.check_sessions()

    async def close(self) -> None:
        """Cancel the timer and all tasks; no more sessions are moved."""
        if self._timer:
            self._timer.cancel()
        await super().close()

    async def drain(self, name: str, *, undo: bool = False, now: bool = False) -> dict[str, Any]:
        """Request or undo the drain of a node; return the progress.

        Sessions that are already moving continue to move after an undo.
        """
        if name not in self.flow.home.nodes:
            names = ", ".join(sorted(self.flow.home.nodes)) or "none"
            raise NotFound(f"no node {name}", f"known: {names}; see them: ao nodes")
        body: e.Body = e.DrainEnded(name) if undo else e.DrainRequested(name, now)
        await self.flow.append(Event(body, self.clock(), "person", uuid.uuid4().hex))
        await self.placer.drain(name, not undo)
        if undo:
            self._draining_since.pop(name, None)
            self._immediate_drains.discard(name)
        else:
            self._draining_since.setdefault(name, self.clock())
            self._immediate_drains |= {name} if now else set()
        self.emit(NodeStateChanged())
        self.check_sessions()
        return await self.progress(name)

    async def progress(self, name: str) -> dict[str, Any]:
        """Return the node, and the sessions still on it with what each waits for, as JSON data."""
        waits = {facts.id: _waiting_for(facts) for facts in self.nodes.sessions(name)}
        return {
            "node": await self.nodes.view(name),
            "left": [{"session": session, "waits": reason} for session, reason in waits.items()],
        }

    async def follow_progress(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the progress whenever the remaining sessions change, until none is left or the drain is undone."""
        remaining: Any = None
        while True:
            progress = await self.progress(name)
            if progress["left"] != remaining:
                remaining = progress["left"]
                yield progress
            if not remaining or not progress["node"]["draining"]:
                return
            await asyncio.sleep(PROGRESS_INTERVAL / 4)

    def check_sessions(self) -> None:
        """Start a check for sessions that may be moved now."""
        self.spawn(self._request_moves())

    async def _request_moves(self) -> None:
        """Request the move of sessions on drained nodes that may move now; set a timer for those still in a turn."""
        now, events, wait = self.clock(), [], 0.0
        for name, since in list(self._draining_since.items()):
            for facts in self.nodes.sessions(name):
                if facts.move_reason or facts.requested_state != "run" or facts.node != name:
                    continue
                in_turn = facts.live and facts.activity.state in IN_TURN_ACTIVITIES
                seconds_left = since + MAX_TURN_SECONDS - now
                if in_turn and name not in self._immediate_drains and seconds_left > 0:
                    wait = min(wait or seconds_left, seconds_left)
                    continue
                unique = f"{facts.id}:{facts.moves}:{facts.run}"
                move = e.MoveRequested(name, f"{name} is being drained")
                events.append(Event(move, now, "node", f"move:{unique}", facts.project, facts.id))
                if in_turn or (facts.live and facts.activity.state == "blocked"):
                    text = MOVED_MESSAGE.format(node=name, reason="it is being drained")
                    message = e.MessageQueued(f"moved-{unique.replace(':', '-')}", text, "daemon")
                    events.append(Event(message, now, "node", f"moved:{unique}", facts.project, facts.id))
        if events:
            await self.flow.append(*events)
        if self._timer:
            self._timer.cancel()
        if wait:
            self._timer = self.clock.call_later(wait, self.check_sessions)

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        """Check again when a session on a drained node changed."""
        for change in changes:
            after = change.after
            if (
                after is not None
                and after.node in self._draining_since
                and after is not change.before
                and not after.move_reason
            ):
                self.check_sessions()
                return


def _waiting_for(facts: SessionFacts) -> str:
    """Return what a session on a drained node waits for."""
    if facts.requested_state == "stop":
        return "its end"
    if facts.move_reason:
        return "its agent to end" if facts.live else "its work to be saved"
    return "the end of its turn" if facts.activity.state in IN_TURN_ACTIVITIES else "its agent to end"
