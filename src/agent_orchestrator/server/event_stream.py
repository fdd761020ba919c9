"""The event log as Server-Sent Events: what was missed first, then what happens."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from agent_orchestrator.core.events import Event, event_json
from agent_orchestrator.errors import UsageError
from agent_orchestrator.server.streams import Stream

IDLE = 15.0
"""Seconds of silence after which a comment shows proxies and readers that the line is alive."""
KEPT = 256
"""Events that are kept as they were written, for those who are handed them next."""
_LONGEST_ID = 18
"""Digits that an event's number may have."""


def event_stream(
    events: AsyncIterator[Sequence[Event]],
    closing: asyncio.Event,
    *,
    session: str | None = None,
    project: str | None = None,
) -> Stream:
    """An endless answer with the events of one session or project, or all. A reader resumes by `Last-Event-ID`."""
    return Stream(
        _frames(events, session, project),
        closing,
        "text/event-stream",
        first=b"retry: 1000\n\n",
        pulse=b": keep-alive\n\n",
        idle=IDLE,
    )


def live_stream(frames: AsyncIterator[bytes], closing: asyncio.Event) -> Stream:
    """An endless answer with frames that are written already."""
    pulse = b"event: pulse\ndata: {}\n\n"
    return Stream(frames, closing, "text/event-stream", first=b"retry: 1000\n\n", pulse=pulse, idle=IDLE)


def sequence(text: str) -> int:
    """The number in a `Last-Event-ID`."""
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID):
        raise UsageError(
            f"Last-Event-ID is {text[:40]!r}, which is no event's number", "leave it out to follow from now on"
        )
    return int(text)


class Frames:
    """Events on the wire, each written once for all who follow: they are handed the same event, and so the same bytes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Event, bytes]] = OrderedDict()

    def of(self, event: Event) -> bytes:
        """One event."""
        kept = self._kept.get(event.seq)
        if kept is None or kept[0] is not event:
            kept = self._kept[event.seq] = (event, frame(event))
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return kept[1]


FRAMES = Frames()


def frame(event: Event) -> bytes:
    """One event on the wire."""
    data = json.dumps(event_json(event), separators=(",", ":"))
    return f"id: {event.seq}\nevent: {event.type}\ndata: {data}\n\n".encode()


async def _frames(
    events: AsyncIterator[Sequence[Event]], session: str | None, project: str | None
) -> AsyncIterator[bytes]:
    try:
        async for found in events:
            wanted = (
                event
                for event in found
                if (session is None or event.session == session) and (project is None or event.project == project)
            )
            yield b"".join(map(FRAMES.of, wanted))
    finally:
        if (close := getattr(events, "aclose", None)) is not None:
            await close()
