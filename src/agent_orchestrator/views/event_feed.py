"""The event log for readers: pages of the past, a live stream, and replays with the current rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, event_from_json, event_json, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.reactions import Intent, decide
from agent_orchestrator.core.rules.stuck_threshold import stuck_after_seconds
from agent_orchestrator.core.status import derive_status
from agent_orchestrator.errors import UsageError
from agent_orchestrator.sessions.part import Core, Part

MAX_QUEUED_EVENTS = 1000
"""Events that a slow reader may lag behind before it is disconnected; it reconnects with the last number it saw."""


class EventFeed(Part):
    """Reads the event log."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._readers: set[asyncio.Queue[Event | None]] = set()
        self._closed = False
        self.on(self._broadcast)

    async def page(
        self,
        after: int | None,
        limit: int,
        session: str | None = None,
        project: str | None = None,
        kind: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return events after a number, or the newest ones if it is None; oldest first."""
        events = await self.flow.store.events(
            after or 0, limit, session=session, project=project, kind=kind, newest=after is None
        )
        return [event_json(event) for event in events]

    async def notifications(self, project: str | None, limit: int) -> list[dict[str, Any]]:
        """Return the notifications to people, newest first."""
        events = await self.flow.store.events(0, limit, project=project, kind="notified", newest=True)
        return [
            {
                "id": event.seq,
                "session": event.session,
                "project": event.project,
                "title": event.body.title,
                "message": event.body.message,
                "level": event.body.level,
                "trigger": event.body.trigger,
                "at": rfc3339(event.time),
            }
            for event in reversed(events)
            if isinstance(event.body, e.Notified)
        ]

    async def subscribe(self, after: int | None = None) -> AsyncIterator[Sequence[Event]]:
        """Yield past events after a number, then new ones, those of one moment together; ends if the reader is too slow
        or the daemon stops.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue(MAX_QUEUED_EVENTS + 1)
        self._readers.add(queue)
        try:
            last_seq = self.flow.seq if after is None else after
            while last_seq < self.flow.seq and (past := await self.flow.store.events(last_seq, 500)):
                yield past
                last_seq = past[-1].seq
            while not self._closed:
                received = [await queue.get()]
                while not queue.empty():
                    received.append(queue.get_nowait())
                new_events = [event for event in received if event is not None and event.seq > last_seq]
                if new_events:
                    yield new_events
                    last_seq = new_events[-1].seq
                if None in received:
                    return
        finally:
            self._readers.discard(queue)

    async def close(self) -> None:
        """Close all readers' streams."""
        self._closed = True
        for queue in self._readers:
            _disconnect(queue)
        await super().close()

    def _broadcast(self, changes: Sequence[FactsChange]) -> None:
        for queue in list(self._readers):
            for change in changes:
                if queue.qsize() >= MAX_QUEUED_EVENTS:
                    self._readers.discard(queue)
                    _disconnect(queue)
                    break
                queue.put_nowait(change.event)

    async def replay(self, events: Sequence[Mapping[str, Any]], project: str | None) -> list[dict[str, Any]]:
        """Run a recorded log through the current rules; return what each event would cause, without doing any of it."""
        sessions: dict[str, SessionFacts] = {}
        known_keys: set[str] = set()
        steps = []
        for number, data in enumerate(events, 1):
            try:
                event = event_from_json(data)
                status, intents = self._replay_event(event, sessions, project)
            except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
                raise UsageError(
                    f"event {number} of the log cannot be read: {error}", "record one by: ao events --json"
                ) from None
            new_intents = [
                {
                    "kind": new_intent.kind,
                    "key": new_intent.key,
                    "due": new_intent.due or None,
                    "args": dict(new_intent.args),
                }
                for new_intent in intents
                if new_intent.key not in known_keys
            ]
            known_keys.update(intent.key for intent in intents)
            steps.append(
                {
                    "seq": event.seq,
                    "type": event.type,
                    "session": event.session,
                    "status": status,
                    "intents": new_intents,
                }
            )
        return steps

    def _replay_event(
        self, event: Event, sessions: dict[str, SessionFacts], project: str | None
    ) -> tuple[str | None, list[Intent]]:
        """Fold one event as the engine does; return the session's status and the intents that the change causes."""
        before = sessions.get(event.session or "")
        after = reduce(before, event)
        if after is None or not event.session:
            return None, []
        sessions[event.session] = after
        rules = self.flow.rules(project or after.project, after.spec.profile)
        status = derive_status(after, event.time, stuck_after_seconds(rules)).name
        return status, [] if after is before else decide(before, after, rules, event.time)


def _disconnect(queue: asyncio.Queue[Event | None]) -> None:
    while queue.full():
        queue.get_nowait()
    queue.put_nowait(None)
