"""Work on nodes is saved here while it is being done: at the end of a turn, and every few minutes in one.

What a lost node costs is what was done since. One at a time a session; a node that cannot be reached is tried again when it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.cluster.nodes.registry import Nodes
from agent_orchestrator.cluster.nodes.settings import ClusterSettings
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.status import IN_TURN
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.protocols.host import Host

SETTLES = 0.5
"""Seconds after a turn: what it still writes, and what is asked of it next, is one checkpoint."""
AT_ONCE = 4
"""Checkpoints that are made at the same time."""

log = structlog.get_logger()


class Checkpoints:
    """Makes them."""

    def __init__(
        self,
        flow: Flow,
        host: Host,
        nodes: Nodes,
        settings: Callable[[], ClusterSettings],
        spec_of: Callable[[SessionFacts], WorkspaceSpec],
        talk: Callable[[SessionFacts], Awaitable[None]],
    ) -> None:
        self.flow = flow
        self.host = host
        self.nodes = nodes
        self.settings = settings
        self.spec_of = spec_of
        self.talk = talk
        """Saves the agent's conversation."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._saving: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    def start(self) -> None:
        """Look at those that live on nodes, and at those to come."""
        self.flow.on_change.append(self._on_change)
        for facts in self.flow.sessions.values():
            if facts.remote:
                self._look(facts, facts)

    def close(self) -> None:
        """Save nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._saving.values():
            task.cancel()

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.after is not None and change.after.remote:
                self._look(change.before, change.after)

    def _look(self, before: SessionFacts | None, after: SessionFacts) -> None:
        if not self._wanted(after):
            if timer := self._timers.pop(after.id, None):
                timer.cancel()
            return
        was, now = before is not None and _in_turn(before), _in_turn(after)
        if was and not now:
            self._in(after.id, SETTLES)
        elif now and after.id not in self._timers:
            self._in(after.id, self.settings().checkpoint)

    def _wanted(self, facts: SessionFacts) -> bool:
        there = facts.place is not None and facts.place.present and facts.node is not None
        return there and not facts.stopped and not facts.moving and facts.wanted == "run"

    def _in(self, session: str, seconds: float) -> None:
        if timer := self._timers.pop(session, None):
            timer.cancel()
        self._timers[session] = asyncio.get_running_loop().call_later(seconds, self._due, session)

    def _due(self, session: str) -> None:
        self._timers.pop(session, None)
        facts = self.flow.sessions[session]
        if not self._wanted(facts):
            return
        if session not in self._saving:
            task = self._saving[session] = asyncio.get_running_loop().create_task(self._save(session))
            task.add_done_callback(lambda _: self._saving.pop(session, None))
        if _in_turn(facts):
            self._in(session, self.settings().checkpoint)

    async def _save(self, session: str) -> None:
        async with self._room:
            try:
                await self.save(session)
            except AoError as error:
                log.info("a checkpoint could not be made", session=session, error=str(error))
                if self._wanted(self.flow.sessions[session]):
                    self._in(session, self.settings().checkpoint)

    async def save(self, session: str) -> None:
        """Save one session's work now, if anything has changed."""
        facts = self.flow.sessions[session]
        site = self.nodes.site(facts.node or "")
        await self.talk(facts)
        saved = await site.checkpoint(self.spec_of(facts))
        facts = self.flow.sessions[session]
        if saved is None or facts.node != site.node:
            return
        head = await Git(self.host, self.spec_of(facts).repo).text("rev-parse", f"{saved.commit}^1")
        body = e.WorkCheckpointed(saved.commit, head)
        await self.flow.append(
            Event(body, self.flow.clock(), "node", f"checkpoint:{session}:{saved.commit}", facts.project, session)
        )


def _in_turn(facts: SessionFacts) -> bool:
    return facts.live and facts.activity.state in IN_TURN
