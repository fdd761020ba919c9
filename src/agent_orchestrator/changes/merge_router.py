"""`MergeRouter`: merge a change where its pull request is, by the forge or by our own queue, and withdraw a merge request there."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agent_orchestrator.changes.forge_sync import PullRequestActions
from agent_orchestrator.changes.forge_sync.backoff import is_host_error
from agent_orchestrator.changes.merge_queue import MergeQueue
from agent_orchestrator.core.effects import Effect, retry_until_done
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import Conflict


class MergeRouter:
    """Has changes merged by their forge if it is a service, else by our own queue."""

    def __init__(self, flow: Flow, queue: MergeQueue, forge: PullRequestActions) -> None:
        self._flow = flow
        self._queue = queue
        self._forge = forge
        self._merge_at_forge = retry_until_done(forge.merge_change, is_host_error)

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {"land": Effect(self._merge)}

    async def _merge(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Merge a change whose merge was requested."""
        is_at_forge = self._flow.sessions[intent.session].has_remote_forge
        return await (self._merge_at_forge if is_at_forge else self._queue.merge_change)(intent, attempts)

    async def withdraw_merge(self, session: str, key: str | None = None) -> None:
        """Withdraw a merge request; a repeated key does nothing. Raises `Conflict` if there is none, or if it is being merged."""
        facts = self._flow.sessions[session]
        event_key = f"call-off:{session}:{key or uuid.uuid4().hex}"
        if await self._flow.store.event_by_key(event_key):
            return
        if facts.pr is None or facts.pr.merge_request is None:
            raise Conflict(f"{session} is not to land", "see what is: ao queue")
        if facts.has_remote_forge:
            await self._forge.withdraw_merge(session, event_key)
        else:
            await self._queue.remove(facts, event_key)
