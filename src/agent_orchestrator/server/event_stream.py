"""The event log as Server-Sent Events: first missed events, then new ones."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from agent_orchestrator.core.events import Event, event_json
from agent_orchestrator.errors import UsageError
from agent_orchestrator.server.streams import Stream

KEEP_ALIVE_SECONDS = 15.0
"""Seconds of silence after which a comment shows proxies and readers that the connection is alive."""
MAX_CACHED_FRAMES = 256
"""How many encoded events are kept for other readers of the same event."""
_MAX_ID_DIGITS = 18
"""Digits that an event's number may have."""


def event_stream(
    events: AsyncIterator[Sequence[Event]],
    closing: asyncio.Event,
    *,
    session: str | None = None,
    project: str | None = None,
) -> Stream:
    """Return an endless answer with the events of one session or project, or all. A reader resumes by `Last-Event-ID`."""
    return Stream(
        _frames(events, session, project),
        closing,
        "text/event-stream",
        first=b"retry: 1000\n\n",
        pulse=b": keep-alive\n\n",
        idle=KEEP_ALIVE_SECONDS,
    )


def live_stream(frames: AsyncIterator[bytes], closing: asyncio.Event) -> Stream:
    """Return an endless answer with frames that are already encoded."""
    pulse = b"event: pulse\ndata: {}\n\n"
    return Stream(frames, closing, "text/event-stream", first=b"retry: 1000\n\n", pulse=pulse, idle=KEEP_ALIVE_SECONDS)


def sequence(text: str) -> int:
    """Return the number in a `Last-Event-ID`; raise UsageError if it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_ID_DIGITS):
        raise UsageError(
            f"Last-Event-ID is {text[:40]!r}, which is no event's number", "leave it out to follow from now on"
        )
    return int(text)


class Frames:
    """Encoded events: each is encoded once for all readers, who are passed the same event object."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Event, bytes]] = OrderedDict()

    def of(self, event: Event) -> bytes:
        """Return an event's frame."""
        cached = self._kept.get(event.seq)
        if cached is None or cached[0] is not event:
            cached = self._kept[event.seq] = (event, frame(event))
            if len(self._kept) > MAX_CACHED_FRAMES:
                self._kept.popitem(last=False)
        return cached[1]


FRAMES = Frames()


def frame(event: Event) -> bytes:
    """Encode one event as a frame."""
    data = json.dumps(event_json(event), separators=(",", ":"))
    return f"id: {event.seq}\nevent: {event.type}\ndata: {data}\n\n".encode()


async def _frames(
    events: AsyncIterator[Sequence[Event]], session: str | None, project: str | None
) -> AsyncIterator[bytes]:
    """Yield the frames of the events of one session or project, or all."""
    try:
        async for batch in events:
            matching = (
                event
                for event in batch
                if (session is None or event.session == session) and (project is None or event.project == project)
            )
            yield b"".join(map(FRAMES.of, matching))
    finally:
        if (close := getattr(events, "aclose", None)) is not None:
            await close()
