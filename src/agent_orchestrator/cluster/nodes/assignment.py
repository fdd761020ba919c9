"""Sessions get their nodes: who waits for one is held by admission, which says what for, until a placer has found it."""

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
CHOOSING_WITHIN = 1.0
"""Seconds that choosing a node may take until somebody who waits for it is told what for."""
LONGEST_PAUSE = 60.0
"""The longest pause before a session whose nodes were lost one after the other is tried again."""


@dataclass(slots=True)
class _Asked:
    """A session that asks for a node: once for each time that it needs one."""

    need: tuple[int, int, str | None]
    task: asyncio.Task[str]
    begun: float


class Placing:
    """Asks the placer, for those that want to start."""

    def __init__(self, flow: Flow, placer: Placer, settings: Callable[[], ClusterSettings]) -> None:
        self.flow = flow
        self.placer = placer
        self.settings = settings
        self.on_news: list[Callable[[], None]] = []
        """Called when somebody has got a node."""
        self._asked: dict[str, _Asked] = {}
        self._leaving: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Those that live on nodes have their places; the others get theirs."""
        self.flow.on_change.append(self._on_change)
        for facts in self.flow.sessions.values():
            if facts.remote and facts.node and not facts.stopped:
                self.placer.take(facts.id, facts.generation, facts.node, self.wish(facts))

    def close(self) -> None:
        """Ask no more."""
        for asked in self._asked.values():
            asked.task.cancel()
        for task in self._tasks:
            task.cancel()

    def wish(self, facts: SessionFacts) -> Wish:
        """What a session needs of a node; who has a workspace on a node needs that one. `--node` says where it begins."""
        asked = None if facts.moves else facts.spec.node
        return replace(self.settings().wish, node=facts.node or asked)

    def gate(self, facts: SessionFacts, working: Sequence[SessionFacts]) -> str:
        """What somebody who wants to start waits for: a node, or a free place on the one that he has got."""
        if not facts.remote:
            return ""
        pause = min(2.0**facts.losses, LONGEST_PAUSE) if facts.losses > 1 else 0.0
        wait = facts.displaced_at + pause - self.flow.clock()
        if pause and wait > 0:
            asyncio.get_running_loop().call_later(wait, self._tell)
            return f"a while: {facts.losses} nodes were lost with it"
        task = self._ask(facts)
        if not task.done():
            begun = self._asked[facts.id].begun
            if self.flow.clock() - begun < CHOOSING_WITHIN:
                asyncio.get_running_loop().call_later(CHOOSING_WITHIN, self._tell)
                return CHOOSING
            return self.placer.why(facts.id) or "a node"
        if task.exception() is not None:
            return ""  # the effect tells it
        node, most = task.result(), self.settings().most
        taken = sum(self.node_of(one) == node for one in working if one.id != facts.id)
        if most is not None and taken >= most:
            return f"a free place on {node} ({taken} of {most} agents at work)"
        return ""

    def node_of(self, facts: SessionFacts) -> str | None:
        """Where a session lives, or is about to."""
        asked = self._asked.get(facts.id)
        got = asked and asked.task.done() and not asked.task.cancelled() and asked.task.exception() is None
        return facts.node or (asked.task.result() if asked and got else None)

    async def place(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Record the node that a session has got."""
        facts = self.flow.sessions[intent.session]
        task = self._ask(facts)
        await asyncio.wait([task], timeout=LOOK_AGAIN)
        if not task.done() or task.cancelled():
            raise Again(LOOK_AGAIN)
        self._asked.pop(facts.id, None)
        body = e.SessionPlaced(task.result())
        return [Event(body, self.flow.clock(), "scheduler", f"{intent.key}:done", facts.project, facts.id)]

    def _ask(self, facts: SessionFacts) -> asyncio.Task[str]:
        need = (facts.run, facts.moves, facts.node)
        asked = self._asked.get(facts.id)
        if asked is None or asked.need != need or asked.task.cancelled():
            if asked is not None:
                asked.task.cancel()
            task = asyncio.get_running_loop().create_task(self._place(facts))
            asked = self._asked[facts.id] = _Asked(need, task, self.flow.clock())
            task.add_done_callback(lambda _: self._tell())
        return asked.task

    async def _place(self, facts: SessionFacts) -> str:
        if facts.id in self._leaving:
            await self._release(facts.id)
        return await self.placer.place(facts.id, facts.generation + 1, self.wish(facts))

    def _tell(self) -> None:
        for tell in self.on_news:
            tell()

    def _on_change(self, changes: Sequence[Change]) -> None:
        """Who has left his node, or is over, needs no place."""
        for change in changes:
            after, body = change.after, change.event.body
            if after is None or not after.remote:
                continue
            if isinstance(body, e.SessionDisplaced):
                self._leaving.add(after.id)
            elif isinstance(body, e.SessionStopped) or (isinstance(body, e.StopRequested) and not after.node):
                if asked := self._asked.pop(after.id, None):
                    asked.task.cancel()
                self._leaving.add(after.id)
            else:
                continue
            task = asyncio.get_running_loop().create_task(self._release(after.id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _release(self, session: str) -> None:
        if session in self._leaving:
            self._leaving.discard(session)
            try:
                await self.placer.release(session)
            except AoError:
                self._leaving.add(session)
                raise
