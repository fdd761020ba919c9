"""Draining a node: no new sessions, and those it has finish their turns, are saved, and go on elsewhere."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agent_orchestrator.cluster.nodes.lost_nodes import MOVED
from agent_orchestrator.cluster.nodes.placement import Placer
from agent_orchestrator.cluster.nodes.registry import Nodes
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.status import IN_TURN
from agent_orchestrator.errors import NotFound

TURN_WITHIN = 600.0
"""Seconds that a turn may last on until it is interrupted all the same."""
TELL_EVERY = 1.0


class Drain:
    """Moves sessions away from nodes."""

    def __init__(self, flow: Flow, nodes: Nodes, placer: Placer) -> None:
        self.flow = flow
        self.nodes = nodes
        self.placer = placer
        self.on_news: list[Callable[[], None]] = []
        self._since: dict[str, float] = {}
        """Drained node → since when its sessions are being moved."""
        self._now: set[str] = set()
        """Those whose turns are not waited for."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Go on with what was asked for before."""
        self.flow.on_change.append(self._on_change)
        for node in self.flow.home.nodes.values():
            if node.drained:
                self._since[node.name] = self.flow.clock()
                self._spawn(self.placer.drain(node.name, True))
        self.look()

    def close(self) -> None:
        """Move nobody any more."""
        if self._timer:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    async def drain(self, name: str, *, undo: bool = False, now: bool = False) -> dict[str, Any]:
        """Ask for it, or take it back; those that are on their way already go on."""
        if name not in self.flow.home.nodes:
            known = ", ".join(sorted(self.flow.home.nodes)) or "none"
            raise NotFound(f"no node {name}", f"known: {known}; see them: ao nodes")
        body: e.Body = e.DrainEnded(name) if undo else e.DrainRequested(name, now)
        await self.flow.append(Event(body, self.flow.clock(), "person", uuid.uuid4().hex))
        await self.placer.drain(name, not undo)
        if undo:
            self._since.pop(name, None)
            self._now.discard(name)
        else:
            self._since.setdefault(name, self.flow.clock())
            self._now |= {name} if now else set()
        for tell in self.on_news:
            tell()
        self.look()
        return await self.progress(name)

    async def progress(self, name: str) -> dict[str, Any]:
        """How far it is: who is still there, and what each waits for."""
        waits = {facts.id: _waits(facts) for facts in self.nodes.sessions(name)}
        return {
            "node": await self.nodes.view(name),
            "left": [{"session": one, "waits": why} for one, why in waits.items()],
        }

    async def follow(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """The same again and again until nobody is left."""
        told: Any = None
        while True:
            now = await self.progress(name)
            if now["left"] != told:
                told = now["left"]
                yield now
            if not told or not now["node"]["draining"]:
                return
            await asyncio.sleep(TELL_EVERY / 4)

    def look(self) -> None:
        """Ask those to move that may."""
        self._spawn(self._look())

    async def _look(self) -> None:
        now, events, wait = self.flow.clock(), [], 0.0
        for name, since in list(self._since.items()):
            for facts in self.nodes.sessions(name):
                if facts.moving or facts.wanted != "run" or facts.node != name:
                    continue
                in_turn = facts.live and facts.activity.state in IN_TURN
                left = since + TURN_WITHIN - now
                if in_turn and name not in self._now and left > 0:
                    wait = min(wait or left, left)
                    continue
                unique = f"{facts.id}:{facts.moves}:{facts.run}"
                moved = e.MoveRequested(name, f"{name} is being drained")
                events.append(Event(moved, now, "node", f"move:{unique}", facts.project, facts.id))
                if in_turn or (facts.live and facts.activity.state == "blocked"):
                    text = MOVED.format(node=name, reason="it is being drained")
                    queued = e.MessageQueued(f"moved-{unique.replace(':', '-')}", text, "daemon")
                    events.append(Event(queued, now, "node", f"moved:{unique}", facts.project, facts.id))
        if events:
            await self.flow.append(*events)
        if self._timer:
            self._timer.cancel()
        if wait:
            self._timer = asyncio.get_running_loop().call_later(wait, self.look)

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            after = change.after
            if after is not None and after.node in self._since and after is not change.before and not after.moving:
                self.look()
                return

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _waits(facts: SessionFacts) -> str:
    if facts.wanted == "stop":
        return "its end"
    if facts.moving:
        return "its agent to end" if facts.live else "its work to be saved"
    return "the end of its turn" if facts.activity.state in IN_TURN else "its agent to end"
