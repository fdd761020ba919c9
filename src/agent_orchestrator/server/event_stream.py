"""The event log as Server-Sent Events: first missed events, then new ones."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from agent_orchestrator.core.events import Event, event_json
from agent_orchestrator.errors import UsageError
from agent_orchestrator.server.streams import EndlessResponse

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
) -> EndlessResponse:
    """Return an endless answer with the events of one session or project, or all. A reader resumes by `Last-Event-ID`."""
    return EndlessResponse(
        _frames(events, session, project),
        closing,
        "text/event-stream",
        first=b"retry: 1000\n\n",
        pulse=b": keep-alive\n\n",
        idle=KEEP_ALIVE_SECONDS,
    )


def encoded_stream(frames: AsyncIterator[bytes], closing: asyncio.Event) -> EndlessResponse:
    """Return an endless answer with frames that are already encoded."""
    pulse = b"event: pulse\ndata: {}\n\n"
    return EndlessResponse(
        frames, closing, "text/event-stream", first=b"retry: 1000\n\n", pulse=pulse, idle=KEEP_ALIVE_SECONDS
    )


def parse_event_id(text: str) -> int:
    """Return the number in a `Last-Event-ID`; raise UsageError if it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_ID_DIGITS):
        raise UsageError(
            f"Last-Event-ID is {text[:40]!r}, which is no event's number", "leave it out to follow from now on"
        )
    return int(text)


class FrameCache:
    """Encoded events: each is encoded once for all readers, who are passed the same event object."""

    def __init__(self) -> None:
        self._cache: OrderedDict[int, tuple[Event, bytes]] = OrderedDict()

    def encode(self, event: Event) -> bytes:
        """Return an event's frame."""
        cached = self._cache.get(event.seq)
        if cached is None or cached[0] is not event:
            cached = self._cache[event.seq] = (event, encode_frame(event))
            if len(self._cache) > MAX_CACHED_FRAMES:
                self._cache.popitem(last=False)
        return cached[1]


FRAME_CACHE = FrameCache()


def encode_frame(event: Event) -> bytes:
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
            yield b"".join(map(FRAME_CACHE.encode, matching))
    finally:
        if (close := getattr(events, "aclose", None)) is not None:
            await close()
