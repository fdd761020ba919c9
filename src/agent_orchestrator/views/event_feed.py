"""The event log for readers: pages of the past, a live stream, and replays through today's rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event, event_from_json, event_json, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.reactions import Intent, decide, stuck_after
from agent_orchestrator.core.status import derive
from agent_orchestrator.errors import UsageError

BACKLOG = 1000
"""Events that a slow reader may be behind before it is cut off; it comes back with the last number it saw."""


class Feed:
    """Events, as they are in the log."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._readers: set[asyncio.Queue[Event | None]] = set()
        self._closed = False
        flow.on_change.append(self._on_change)

    async def page(
        self,
        after: int | None,
        limit: int,
        session: str | None = None,
        project: str | None = None,
        kind: str | None = None,
    ) -> list[dict[str, Any]]:
        """Events after a number, or the newest ones if none is given; oldest first."""
        found = await self.flow.store.events(
            after or 0, limit, session=session, project=project, kind=kind, newest=after is None
        )
        return [event_json(event) for event in found]

    async def notifications(self, project: str | None, limit: int) -> list[dict[str, Any]]:
        """What people were told, newest first."""
        told = await self.flow.store.events(0, limit, project=project, kind="notified", newest=True)
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
            for event in reversed(told)
            if isinstance(event.body, e.Notified)
        ]

    async def subscribe(self, after: int | None = None) -> AsyncIterator[Sequence[Event]]:
        """Past events after a number, then the new ones, those that came together at once; ends when the reader is too slow or the
        daemon stops.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue(BACKLOG + 1)
        self._readers.add(queue)
        try:
            seen = self.flow.seq if after is None else after
            while seen < self.flow.seq and (past := await self.flow.store.events(seen, 500)):
                yield past
                seen = past[-1].seq
            while not self._closed:
                found = [await queue.get()]
                while not queue.empty():
                    found.append(queue.get_nowait())
                fresh = [event for event in found if event is not None and event.seq > seen]
                if fresh:
                    yield fresh
                    seen = fresh[-1].seq
                if None in found:
                    return
        finally:
            self._readers.discard(queue)

    def close(self) -> None:
        """Send every reader home."""
        self._closed = True
        for queue in self._readers:
            _end(queue)

    def _on_change(self, changes: Sequence[Change]) -> None:
        for queue in list(self._readers):
            for change in changes:
                if queue.qsize() >= BACKLOG:
                    self._readers.discard(queue)
                    _end(queue)
                    break
                queue.put_nowait(change.event)

    async def replay(self, events: Sequence[Mapping[str, Any]], project: str | None) -> list[dict[str, Any]]:
        """Run a recorded log through today's rules; says what each event would lead to, and does none of it."""
        sessions: dict[str, SessionFacts] = {}
        done: set[str] = set()
        steps = []
        for number, data in enumerate(events, 1):
            try:
                event = event_from_json(data)
                status, intents = self._replayed(event, sessions, project)
            except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
                raise UsageError(
                    f"event {number} of the log cannot be read: {error}", "record one by: ao events --json"
                ) from None
            planned = [
                {"kind": one.kind, "key": one.key, "due": one.due or None, "args": dict(one.args)}
                for one in intents
                if one.key not in done
            ]
            done.update(intent.key for intent in intents)
            steps.append(
                {"seq": event.seq, "type": event.type, "session": event.session, "status": status, "intents": planned}
            )
        return steps

    def _replayed(
        self, event: Event, sessions: dict[str, SessionFacts], project: str | None
    ) -> tuple[str | None, list[Intent]]:
        """Fold one event as the engine does; the session's status then, and what that change calls for."""
        before = sessions.get(event.session or "")
        after = reduce(before, event)
        if after is None or not event.session:
            return None, []
        sessions[event.session] = after
        rules = self.flow.rules(project or after.project, after.spec.profile)
        status = derive(after, event.time, stuck_after(rules)).name
        return status, [] if after is before else decide(before, after, rules, event.time)


def _end(queue: asyncio.Queue[Event | None]) -> None:
    while queue.full():
        queue.get_nowait()
    queue.put_nowait(None)
