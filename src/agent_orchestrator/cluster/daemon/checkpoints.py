"""Checkpoints: saves the work of sessions on nodes to the daemon's machine after each turn, and every few minutes during one.

What is lost with a node is the work since the last checkpoint. A session has one checkpoint in progress at a time; after a failure, for
example because the node cannot be reached, it is retried after the configured interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.cluster.daemon.conversations import ConversationCopier
from agent_orchestrator.cluster.daemon.registry import NodeRegistry
from agent_orchestrator.cluster.daemon.settings import ClusterSettings
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.part import Core, Part

SETTLE_SECONDS = 0.5
"""Seconds between the end of a turn and its checkpoint, so that late writes and a next turn share one checkpoint."""
MAX_CONCURRENT = 4
"""Checkpoints that run at the same time, at most."""

log = structlog.get_logger()


class Checkpoints(Part):
    """Schedules and makes the checkpoints of all sessions on nodes."""

    def __init__(
        self,
        core: Core,
        nodes: NodeRegistry,
        settings: Callable[[], ClusterSettings],
        specs: SessionSpecs,
        conversations: ConversationCopier,
    ) -> None:
        super().__init__(core)
        self.nodes = nodes
        self.settings = settings
        self.specs = specs
        self.conversations = conversations
        self._timers: dict[str, Timer] = {}
        self._saving: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    def start(self) -> None:
        """Watch for changes, and schedule checkpoints for the sessions on nodes."""
        self.on(self._update_changed)
        for facts in self.flow.sessions.values():
            if facts.remote:
                self._update_schedule(facts, facts)

    async def close(self) -> None:
        """Cancel all timers and checkpoints in progress."""
        for timer in self._timers.values():
            timer.cancel()
        await super().close()

    def _update_changed(self, changes: Sequence[FactsChange]) -> None:
        """Update the schedule of each session on a node that has changed."""
        for change in changes:
            if change.after is not None and change.after.remote:
                self._update_schedule(change.before, change.after)

    def _update_schedule(self, before: SessionFacts | None, after: SessionFacts) -> None:
        """Schedule a checkpoint if the session's turn ended or is in progress; cancel its timer if it needs none."""
        if not self._needs_checkpoints(after):
            if timer := self._timers.pop(after.id, None):
                timer.cancel()
            return
        was_in_turn, is_in_turn = before is not None and _in_turn(before), _in_turn(after)
        if was_in_turn and not is_in_turn:
            self._schedule(after.id, SETTLE_SECONDS)
        elif is_in_turn and after.id not in self._timers:
            self._schedule(after.id, self.settings().checkpoint_seconds)

    def _needs_checkpoints(self, facts: SessionFacts) -> bool:
        """Return whether a session has a workspace on a node and is meant to keep running on it."""
        has_workspace = facts.workspace is not None and facts.workspace.present and facts.node is not None
        return has_workspace and not facts.stopped and not facts.move_reason and facts.requested_state == "run"

    def _schedule(self, session: str, seconds: float) -> None:
        """Schedule the session's checkpoint in this many seconds; an earlier timer is replaced."""
        if timer := self._timers.pop(session, None):
            timer.cancel()
        self._timers[session] = self.clock.call_later(seconds, lambda: self._start_checkpoint(session))

    def _start_checkpoint(self, session: str) -> None:
        """Start the session's checkpoint unless one is in progress, and schedule the next one if it is in a turn."""
        self._timers.pop(session, None)
        facts = self.flow.sessions[session]
        if not self._needs_checkpoints(facts):
            return
        if session not in self._saving:
            task = self._saving[session] = self.spawn(self._save_when_free(session))
            task.add_done_callback(lambda _: self._saving.pop(session, None))
        if _in_turn(facts):
            self._schedule(session, self.settings().checkpoint_seconds)

    async def _save_when_free(self, session: str) -> None:
        """Save a session when there is room; on an error, log it and schedule another try."""
        async with self._slots:
            try:
                await self.save(session)
            except AoError as error:
                log.info("a checkpoint could not be made", session=session, error=str(error))
                if self._needs_checkpoints(self.flow.sessions[session]):
                    self._schedule(session, self.settings().checkpoint_seconds)

    async def save(self, session: str) -> None:
        """Save one session's conversation and work now; record a checkpoint if the work has changed."""
        facts = self.flow.sessions[session]
        site = self.nodes.site(facts.node or "")
        await self.conversations.save(facts)
        checkpoint = await site.checkpoint(self.specs.workspace(facts))
        facts = self.flow.sessions[session]
        if checkpoint is None or facts.node != site.node:
            return
        head = await Git(self.host, self.specs.workspace(facts).repo).text("rev-parse", f"{checkpoint.commit}^1")
        body = e.WorkCheckpointed(checkpoint.commit, head)
        await self.flow.append(
            Event(body, self.clock(), "node", f"checkpoint:{session}:{checkpoint.commit}", facts.project, session)
        )


def _in_turn(facts: SessionFacts) -> bool:
    """Return whether a session's agent is live and in a turn."""
    return facts.live and facts.activity.state in IN_TURN_ACTIVITIES
