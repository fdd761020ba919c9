"""One connection between the daemon and a node: many calls and byte streams at once, both ways, over WebSocket frames.

A frame is one binary message: a byte for its kind, eight for the number of the call or channel, then the rest. The rest of a call is
JSON after its length, then raw bytes; a message longer than a frame is sent in parts, so that a keystroke never waits behind a large
answer. The side that dialled uses odd numbers, the other side even ones.

When the link is lost, everything in progress fails with `LinkLost`, which is `Temporary`: its outcome is not known.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from agent_orchestrator.base.http_client import error_from_problem
from agent_orchestrator.cluster.link.channel import CLOSE, CREDIT, DATA, MAX_CHUNK_BYTES
from agent_orchestrator.cluster.link.channel import Channel as Channel
from agent_orchestrator.cluster.link.channel import LinkLost as LinkLost
from agent_orchestrator.errors import AoError, NotFound, Temporary
from agent_orchestrator.protocols.text import one_line

MAX_MESSAGE_BYTES = 256 << 20
"""Bytes of one call or answer, at most."""
MAX_UNFINISHED_BYTES = 2 * MAX_MESSAGE_BYTES
"""Bytes of all calls and answers together that have not arrived completely, at most."""
MAX_CONCURRENT = 4096
"""Calls and channels of the other side in progress, and as many messages that have not arrived completely, at most."""
CALL_TIMEOUT = 60.0
"""Seconds that an answer may take by default."""

_HEAD = struct.Struct("!BQ")
_LENGTH = struct.Struct("!I")
_CALL, _REPLY, _FAIL, _CANCEL, _NOTE, _PART, _OPEN = range(7)
"""Kinds of frames; those of channels are in `channel.py`."""

log = structlog.get_logger()


class ProtocolViolation(AoError):
    """The other side sent something that does not fit the protocol."""


class Transport(Protocol):
    """What carries the frames: whole binary messages, in order."""

    async def send(self, frame: bytes) -> None:
        """Send one message; wait while the other side is slow. Raises any exception if the connection is lost."""
        ...

    async def receive(self) -> bytes:
        """Return the next message. Raises any exception if the connection is lost."""
        ...

    async def close(self, reason: str = "") -> None:
        """Close the connection; the other side may be sent the reason."""
        ...


@dataclass(frozen=True, slots=True)
class LinkReply:
    """An answer: JSON data and raw bytes."""

    body: Any = None
    data: bytes = b""


NoteCallback = Callable[[Any], None]
"""Receives a note: JSON data that a handler sends to its caller before the answer."""


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """A call as its handler sees it."""

    name: str
    body: Any
    data: bytes
    note: NoteCallback
    """Sends the caller a note (JSON data) before the answer; notes arrive in order, and before the answer."""
    link: NodeLink


CallHandler = Callable[[LinkRequest], Awaitable[LinkReply]]
"""Answers a call; what it raises is sent to the caller. Cancelled when the caller gives up or the link is lost."""
ChannelHandler = Callable[[Any, Channel], Awaitable[None]]
"""Serves a channel until either side closes it; `body` is what it was opened with."""


@dataclass(slots=True)
class _PendingCall:
    """A call of this side that waits for its answer."""

    answer: asyncio.Future[LinkReply]
    note: NoteCallback


class NodeLink:
    """One connection. `start` it, then call; it has ended when `closed` is set."""

    def __init__(
        self,
        transport: Transport,
        handlers: Mapping[str, CallHandler],
        channels: Mapping[str, ChannelHandler] | None = None,
        *,
        dialled: bool,
        peer: str = "the other side",
    ) -> None:
        self.handlers = handlers
        """Looked up at each call: may be added to, or replaced."""
        self.channels = channels or {}
        self.peer = peer
        self.closed = asyncio.Event()
        self.last_received = time.monotonic()
        """When something was last received from the other side, by `time.monotonic`."""
        self._transport = transport
        self._parity = 1 if dialled else 0
        """The parity of this side's numbers: 1 for odd, 0 for even."""
        self._numbers = itertools.count(1 if dialled else 2, 2)
        self._pending: dict[int, _PendingCall] = {}
        self._parts: dict[int, bytearray] = {}
        self._unfinished_bytes = 0
        """Bytes in all parts."""
        self._open_channels: dict[int, Channel] = {}
        self._handler_tasks: dict[int, asyncio.Task[None]] = {}
        self._send_lock = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start reading; repeating it does nothing."""
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._read())

    async def wait_closed(self) -> None:
        """Read until the connection is lost."""
        self.start()
        await self.closed.wait()

    async def close(self, reason: str = "") -> None:
        """Close the connection; what is in progress fails."""
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()
        self._end_all()
        with contextlib.suppress(Exception):
            await self._transport.close(reason)

    # -- asking --------------------------------------------------------------------------------------------------------

    async def call(
        self,
        name: str,
        body: Any = None,
        data: bytes = b"",
        *,
        timeout: float | None = CALL_TIMEOUT,
        note: NoteCallback = lambda _note: None,
    ) -> LinkReply:
        """Call the other side and return its answer.

        Raises what its handler raised, `LinkLost`, or `Temporary` on a timeout, after which the other side cancels its handler.
        """
        number = next(self._numbers)
        waiting = _PendingCall(asyncio.get_running_loop().create_future(), note)
        self._pending[number] = waiting
        try:
            async with asyncio.timeout(timeout):
                await self._send_message(_CALL, number, {"name": name, "body": body}, data)
                return await waiting.answer
        except TimeoutError:
            self._cancel_remote_call(number)
            raise Temporary(f"{self.peer} did not answer {name} within {timeout:g} s", "try again") from None
        except asyncio.CancelledError:
            self._cancel_remote_call(number)
            raise
        finally:
            self._pending.pop(number, None)
            self._pop_parts(number)
            if waiting.answer.done() and not waiting.answer.cancelled():
                waiting.answer.exception()

    async def open_channel(self, name: str, body: Any = None) -> Channel:
        """Open a byte stream to the other side's channel handler of this name; without such a handler it is closed at once."""
        number = next(self._numbers)
        channel = self._open_channels[number] = Channel(self, number)
        await self._send_message(_OPEN, number, {"name": name, "body": body})
        return channel

    def _cancel_remote_call(self, number: int) -> None:
        """Ask the other side to cancel a call."""
        if not self.closed.is_set():
            task = asyncio.get_running_loop().create_task(self._send_if_linked(_CANCEL, number))
            self._handler_tasks[-number] = task
            task.add_done_callback(lambda _: self._handler_tasks.pop(-number, None))

    async def _send_if_linked(self, kind: int, number: int) -> None:
        """Send a frame; ignore a lost link."""
        with contextlib.suppress(LinkLost):
            await self.send_frame(kind, number)

    # -- frames --------------------------------------------------------------------------------------------------------

    async def send_frame(self, kind: int, number: int, rest: bytes = b"") -> None:
        """Send one frame. Raises `LinkLost`."""
        async with self._send_lock:
            if self.closed.is_set():
                raise self._link_lost()
            try:
                await self._transport.send(_HEAD.pack(kind, number) + rest)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # after any error of the transport the connection is unusable
                self._end_all()
                raise self._link_lost() from error

    async def _send_message(self, kind: int, number: int, body: Any, data: bytes = b"") -> None:
        """Send JSON and raw bytes, in parts if they do not fit in one frame. Raises `AoError` if they are too long."""
        text = json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode()
        message = _LENGTH.pack(len(text)) + text + data
        if len(message) > MAX_MESSAGE_BYTES:
            raise AoError(f"{len(message)} bytes are too many for one call to {self.peer}", "ask for less at once")
        start = 0
        while len(message) - start > MAX_CHUNK_BYTES:
            await self.send_frame(_PART, number, message[start : start + MAX_CHUNK_BYTES])
            start += MAX_CHUNK_BYTES
        await self.send_frame(kind, number, message[start:])

    def _link_lost(self) -> LinkLost:
        """Return the error for a lost connection."""
        return LinkLost(f"the connection to {self.peer} is lost", "it is dialled again by itself; try again")

    async def _read(self) -> None:
        """Read frames until the connection is lost or the other side breaks the protocol."""
        reason = ""
        try:
            while not reason:
                frame = await self._transport.receive()
                self.last_received = time.monotonic()
                reason = self._process(frame)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the connection is gone
            log.debug("a link ended", peer=self.peer, reason=repr(error))
        finally:
            self._end_all()
        with contextlib.suppress(Exception):
            await self._transport.close(reason)

    def _process(self, frame: bytes) -> str:
        """Process a frame; return "", or why the link must be closed if the frame breaks the protocol."""
        try:
            kind, number = _HEAD.unpack_from(frame)
            self._process_frame(kind, number, frame[_HEAD.size :])
        except Exception as error:
            reason = one_line(f"{type(error).__name__}: {error}", 100)
            log.warning("a link is hung up: what came cannot be understood", peer=self.peer, reason=reason)
            return reason
        return ""

    def _process_frame(self, kind: int, number: int, rest: bytes) -> None:
        """Process a frame; raise an exception if it breaks the protocol."""
        if kind in (DATA, CREDIT, CLOSE):
            if (channel := self._open_channels.get(number)) is not None:
                channel.process_frame(kind, rest)
                if kind == CLOSE:
                    self._open_channels.pop(number, None)
        elif number % 2 == self._parity and number not in self._pending:
            if kind in (_CALL, _OPEN):
                raise ValueError("a call with a number of this side")
            # Otherwise it is the answer to a call that was given up.
        elif kind == _PART:
            self._store_part(number, rest)
        elif kind == _CANCEL:
            self._pop_parts(number)
            if (task := self._handler_tasks.get(number)) is not None:
                task.cancel()
        else:
            self._process_message(kind, number, self._pop_parts(number) + rest)

    def _store_part(self, number: int, rest: bytes) -> None:
        """Store a part of a message; raise `ValueError` if there is too much."""
        parts = self._parts.setdefault(number, bytearray())
        parts += rest
        self._unfinished_bytes += len(rest)
        if (
            len(parts) > MAX_MESSAGE_BYTES
            or self._unfinished_bytes > MAX_UNFINISHED_BYTES
            or len(self._parts) > MAX_CONCURRENT
        ):
            raise ValueError("messages are too long, or too many at once")

    def _pop_parts(self, number: int) -> bytes:
        """Return the parts of a message that have arrived, and remove them."""
        parts = bytes(self._parts.pop(number, b""))
        self._unfinished_bytes -= len(parts)
        return parts

    def _process_message(self, kind: int, number: int, message: bytes) -> None:
        """Process a complete message: start to serve a call, or pass on an answer or notes."""
        (length,) = _LENGTH.unpack_from(message)
        start = _LENGTH.size + length
        body, data = json.loads(message[_LENGTH.size : start]), message[start:]
        if kind in (_CALL, _OPEN):
            if not isinstance(body, dict) or not isinstance(body.get("name"), str) or number in self._handler_tasks:
                raise ValueError("a call without a name, or with a number that is taken")
            if len(self._handler_tasks) >= MAX_CONCURRENT:
                raise ValueError("too many calls at once")
            if kind == _OPEN:  # created before the next frame is read, which may be for it
                channel = self._open_channels[number] = Channel(self, number)
                work = self._serve_channel(channel, body)
            else:
                work = self._serve(number, body, data)
            task = self._handler_tasks[number] = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda _: self._handler_tasks.pop(number, None))
        elif (waiting := self._pending.get(number)) is not None and not waiting.answer.done():
            if kind == _NOTE:
                for note in body:
                    waiting.note(note)
            elif kind == _REPLY:
                waiting.answer.set_result(LinkReply(body, data))
            else:
                waiting.answer.set_exception(_error_from_json(body))

    # -- answering -----------------------------------------------------------------------------------------------------

    async def _serve(self, number: int, call: Mapping[str, Any], data: bytes) -> None:
        """Run the handler of a call, and send its answer or error."""
        notes: asyncio.Queue[Any] = asyncio.Queue()
        note_sender = asyncio.get_running_loop().create_task(self._send_notes(number, notes))
        try:
            handler = self.handlers.get(call["name"])
            if handler is None:
                raise NotFound(f"{self.peer} asks for {call['name']}, which is not known here", "use the same version")
            reply = await handler(LinkRequest(call["name"], call.get("body"), data, notes.put_nowait, self))
            await notes.join()
            await self._send_message(_REPLY, number, reply.body, reply.data)
        except Exception as error:  # any error is sent to the caller
            if isinstance(error, ProtocolViolation):
                log.warning("a call is refused", peer=self.peer, name=one_line(call["name"], 60), reason=str(error))
            elif not isinstance(error, AoError):
                log.error("a call failed", name=call.get("name"), exc_info=error)
            with contextlib.suppress(LinkLost):
                await notes.join()
                await self._send_message(_FAIL, number, error_to_json(error))
        finally:
            note_sender.cancel()

    async def _send_notes(self, number: int, notes: asyncio.Queue[Any]) -> None:
        """Send notes to the caller; those that are ready at the same time share a message."""
        while True:
            batch = [await notes.get()]
            while not notes.empty():
                batch.append(notes.get_nowait())
            with contextlib.suppress(LinkLost):
                await self._send_message(_NOTE, number, batch)
            for _ in batch:
                notes.task_done()

    async def _serve_channel(self, channel: Channel, call: Mapping[str, Any]) -> None:
        """Run the handler of a channel, then close the channel."""
        try:
            handler = self.channels.get(call["name"])
            if handler is not None:
                await handler(call.get("body"), channel)
        except (LinkLost, ConnectionError):
            pass
        except Exception as error:
            log.error("a channel failed", name=call.get("name"), exc_info=error)
        finally:
            await channel.close()

    def forget_channel(self, number: int) -> None:
        """Remove a channel that was closed on this side."""
        self._open_channels.pop(number, None)

    def _end_all(self) -> None:
        """Mark the link as closed; fail calls, end channels, and cancel handlers in progress."""
        if self.closed.is_set():
            return
        self.closed.set()
        for waiting in self._pending.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(self._link_lost())
        for channel in list(self._open_channels.values()):
            channel.mark_ended()
        for task in list(self._handler_tasks.values()):
            if task is not asyncio.current_task():
                task.cancel()
        self._parts.clear()
        self._unfinished_bytes = 0


def error_to_json(error: Exception) -> dict[str, Any]:
    """Return an error as JSON data."""
    if not isinstance(error, AoError):
        text = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
        return {"category": AoError.category, "detail": text, "remedy": "see the log of the other side"}
    return {
        "category": error.category,
        "detail": error.text,
        "remedy": error.remedy,
        "until": getattr(error, "until", None),
    }


def _error_from_json(problem: Mapping[str, Any]) -> AoError:
    """Return the error that the other side sent."""
    error = error_from_problem(problem)
    if isinstance(error, Temporary):
        error.until = problem.get("until")
    return error
