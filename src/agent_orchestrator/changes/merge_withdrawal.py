"""`MergeWithdrawal`: take back the request to merge a change, wherever it was to be merged."""

from __future__ import annotations

import uuid

from agent_orchestrator.changes.forge_sync import ForgePullRequests
from agent_orchestrator.changes.merge_queue import MergeQueue
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.errors import Conflict


class MergeWithdrawal:
    """Withdraws merges from our own queue and from forges."""

    def __init__(self, flow: Flow, queue: MergeQueue, forge: ForgePullRequests) -> None:
        self._flow = flow
        self._queue = queue
        self._forge = forge

    async def withdraw(self, session: str, key: str | None = None) -> None:
        """Withdraw a merge request; a repeated key does nothing. Raises `Conflict` if there is none, or if it is being merged."""
        facts = self._flow.sessions[session]
        event_key = f"call-off:{session}:{key or uuid.uuid4().hex}"
        if await self._flow.store.event_by_key(event_key):
            return
        if facts.pr is None or facts.pr.merge_request is None:
            raise Conflict(f"{session} is not to land", "see what is: ao queue")
        if facts.has_remote_forge:
            await self._forge.call_off(session, event_key)
        else:
            await self._queue.remove(facts, event_key)
