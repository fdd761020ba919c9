"""One connection between the daemon and a node: many calls and byte streams at once, both ways, over WebSocket frames.

A frame is one binary message: a byte for its kind, eight for the call's or channel's number, then the rest. A call's rest is JSON behind
its length, then raw bytes; what is longer than a frame comes in parts, so that a keystroke never waits behind a large answer. Whoever
dialled counts in odd numbers, the other side in even ones.

A lost link fails everything that is under way with `LinkLost`, which is `Temporary`: what came of it is not known.
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

from agent_orchestrator.base.http_client import error_of
from agent_orchestrator.cluster.link.channel import CHUNK, CLOSE, CREDIT, DATA
from agent_orchestrator.cluster.link.channel import Channel as Channel
from agent_orchestrator.cluster.link.channel import LinkLost as LinkLost
from agent_orchestrator.errors import AoError, NotFound, Temporary
from agent_orchestrator.protocols.text import one_line

LARGEST = 256 << 20
"""Bytes of one call or answer, at most."""
TOGETHER = 2 * LARGEST
"""Bytes of all calls and answers together that have not come whole yet, at most."""
MOST_AT_ONCE = 4096
"""Calls and channels of the other side that are under way, and as many that have not come whole yet, at most."""
CALL_TIMEOUT = 60.0
"""Seconds that an answer may take where nothing else is said."""

_HEAD = struct.Struct("!BQ")
_LENGTH = struct.Struct("!I")
_CALL, _REPLY, _FAIL, _CANCEL, _NOTE, _PART, _OPEN = range(7)

log = structlog.get_logger()


class Misunderstood(AoError):
    """The other side does not say what it should."""


class Transport(Protocol):
    """What carries the frames: whole binary messages, in order."""

    async def send(self, frame: bytes) -> None:
        """Send one; waits while the other side is slow. Raises anything when the connection is gone."""
        ...

    async def receive(self) -> bytes:
        """The next one. Raises anything when the connection is gone."""
        ...

    async def close(self, reason: str = "") -> None:
        """Hang up; the other side may be told why."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: JSON data and raw bytes."""

    body: Any = None
    data: bytes = b""


Note = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Request:
    """A call as its handler sees it."""

    name: str
    body: Any
    data: bytes
    note: Note
    """Tells the caller something before the answer (JSON data); in order, and all of it before the answer."""
    link: Link


Handler = Callable[[Request], Awaitable[Reply]]
"""Answers a call; what it raises crosses the link. Cancelled when the caller gives up or the link is lost."""
ChannelHandler = Callable[[Any, Channel], Awaitable[None]]
"""Serves a channel until either side closes it; `body` is what it was opened with."""


@dataclass(slots=True)
class _Waiting:
    answer: asyncio.Future[Reply]
    note: Note


class Link:
    """One connection. `start` it, then call; it is over when `closed` is set."""

    def __init__(
        self,
        transport: Transport,
        handlers: Mapping[str, Handler],
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
        self.heard = time.monotonic()
        """When something last came from the other side."""
        self._transport = transport
        self._own = 1 if dialled else 0
        """What is left of this side's numbers when they are divided by two."""
        self._numbers = itertools.count(1 if dialled else 2, 2)
        self._waiting: dict[int, _Waiting] = {}
        self._parts: dict[int, bytearray] = {}
        self._unfinished = 0
        """Bytes in the parts."""
        self._open: dict[int, Channel] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._sending = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Read from now on."""
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._read())

    async def serve(self) -> None:
        """Read until the connection is gone."""
        self.start()
        await self.closed.wait()

    async def close(self, reason: str = "") -> None:
        """Hang up; fails what is under way."""
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()
        self._end()
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
        note: Note = lambda _note: None,
    ) -> Reply:
        """Ask the other side. Raises what its handler raised, `LinkLost`, or `Temporary` when time runs out (it is told to stop)."""
        number = next(self._numbers)
        waiting = _Waiting(asyncio.get_running_loop().create_future(), note)
        self._waiting[number] = waiting
        try:
            async with asyncio.timeout(timeout):
                await self._send_message(_CALL, number, {"name": name, "body": body}, data)
                return await waiting.answer
        except TimeoutError:
            self._give_up(number)
            raise Temporary(f"{self.peer} did not answer {name} within {timeout:g} s", "try again") from None
        except asyncio.CancelledError:
            self._give_up(number)
            raise
        finally:
            self._waiting.pop(number, None)
            self._without_parts(number)
            if waiting.answer.done() and not waiting.answer.cancelled():
                waiting.answer.exception()

    async def open(self, name: str, body: Any = None) -> Channel:
        """Open a stream of bytes to the other side's channel handler; one that it has not is closed at once."""
        number = next(self._numbers)
        channel = self._open[number] = Channel(self, number)
        await self._send_message(_OPEN, number, {"name": name, "body": body})
        return channel

    def _give_up(self, number: int) -> None:
        if not self.closed.is_set():
            task = asyncio.get_running_loop().create_task(self._quietly(_CANCEL, number))
            self._serving[-number] = task
            task.add_done_callback(lambda _: self._serving.pop(-number, None))

    async def _quietly(self, kind: int, number: int) -> None:
        with contextlib.suppress(LinkLost):
            await self.send_frame(kind, number)

    # -- frames --------------------------------------------------------------------------------------------------------

    async def send_frame(self, kind: int, number: int, rest: bytes = b"") -> None:
        """Send one frame. Raises `LinkLost`."""
        async with self._sending:
            if self.closed.is_set():
                raise self._lost()
            try:
                await self._transport.send(_HEAD.pack(kind, number) + rest)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # whatever the transport says, the connection is of no more use
                self._end()
                raise self._lost() from error

    async def _send_message(self, kind: int, number: int, body: Any, data: bytes = b"") -> None:
        text = json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode()
        message = _LENGTH.pack(len(text)) + text + data
        if len(message) > LARGEST:
            raise AoError(f"{len(message)} bytes are too many for one call to {self.peer}", "ask for less at once")
        start = 0
        while len(message) - start > CHUNK:
            await self.send_frame(_PART, number, message[start : start + CHUNK])
            start += CHUNK
        await self.send_frame(kind, number, message[start:])

    def _lost(self) -> LinkLost:
        return LinkLost(f"the connection to {self.peer} is lost", "it is dialled again by itself; try again")

    async def _read(self) -> None:
        reason = ""
        try:
            while not reason:
                frame = await self._transport.receive()
                self.heard = time.monotonic()
                reason = self._why_not(frame)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the connection is gone
            log.debug("a link ended", peer=self.peer, reason=repr(error))
        finally:
            self._end()
        with contextlib.suppress(Exception):
            await self._transport.close(reason)

    def _why_not(self, frame: bytes) -> str:
        """Take a frame; why not, where the other side does not speak our language."""
        try:
            kind, number = _HEAD.unpack_from(frame)
            self._take(kind, number, frame[_HEAD.size :])
        except Exception as error:
            reason = one_line(f"{type(error).__name__}: {error}", 100)
            log.warning("a link is hung up: what came cannot be understood", peer=self.peer, reason=reason)
            return reason
        return ""

    def _take(self, kind: int, number: int, rest: bytes) -> None:
        if kind in (DATA, CREDIT, CLOSE):
            if (channel := self._open.get(number)) is not None:
                channel.take(kind, rest)
                if kind == CLOSE:
                    self._open.pop(number, None)
        elif number % 2 == self._own and number not in self._waiting:
            if kind in (_CALL, _OPEN):
                raise ValueError("a call with a number of this side")
            # else it is the answer to what was given up
        elif kind == _PART:
            self._take_part(number, rest)
        elif kind == _CANCEL:
            self._without_parts(number)
            if (task := self._serving.get(number)) is not None:
                task.cancel()
        else:
            self._take_message(kind, number, self._without_parts(number) + rest)

    def _take_part(self, number: int, rest: bytes) -> None:
        kept = self._parts.setdefault(number, bytearray())
        kept += rest
        self._unfinished += len(rest)
        if len(kept) > LARGEST or self._unfinished > TOGETHER or len(self._parts) > MOST_AT_ONCE:
            raise ValueError("messages are too long, or too many at once")

    def _without_parts(self, number: int) -> bytes:
        """What has come of a message; it is not kept any more."""
        kept = bytes(self._parts.pop(number, b""))
        self._unfinished -= len(kept)
        return kept

    def _take_message(self, kind: int, number: int, message: bytes) -> None:
        (length,) = _LENGTH.unpack_from(message)
        start = _LENGTH.size + length
        body, data = json.loads(message[_LENGTH.size : start]), message[start:]
        if kind in (_CALL, _OPEN):
            if not isinstance(body, dict) or not isinstance(body.get("name"), str) or number in self._serving:
                raise ValueError("a call without a name, or with a number that is taken")
            if len(self._serving) >= MOST_AT_ONCE:
                raise ValueError("too many calls at once")
            if kind == _OPEN:  # before the next frame is read, which may be for it
                channel = self._open[number] = Channel(self, number)
                work = self._serve_channel(channel, body)
            else:
                work = self._serve(number, body, data)
            task = self._serving[number] = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda _: self._serving.pop(number, None))
        elif (waiting := self._waiting.get(number)) is not None and not waiting.answer.done():
            if kind == _NOTE:
                for note in body:
                    waiting.note(note)
            elif kind == _REPLY:
                waiting.answer.set_result(Reply(body, data))
            else:
                waiting.answer.set_exception(_error(body))

    # -- answering -----------------------------------------------------------------------------------------------------

    async def _serve(self, number: int, asked: Mapping[str, Any], data: bytes) -> None:
        notes: asyncio.Queue[Any] = asyncio.Queue()
        teller = asyncio.get_running_loop().create_task(self._tell(number, notes))
        try:
            handler = self.handlers.get(asked["name"])
            if handler is None:
                raise NotFound(f"{self.peer} asks for {asked['name']}, which is not known here", "use the same version")
            reply = await handler(Request(asked["name"], asked.get("body"), data, notes.put_nowait, self))
            await notes.join()
            await self._send_message(_REPLY, number, reply.body, reply.data)
        except Exception as error:  # the other side is told, whatever it is
            if isinstance(error, Misunderstood):
                log.warning("a call is refused", peer=self.peer, name=one_line(asked["name"], 60), reason=str(error))
            elif not isinstance(error, AoError):
                log.error("a call failed", name=asked.get("name"), exc_info=error)
            with contextlib.suppress(LinkLost):
                await notes.join()
                await self._send_message(_FAIL, number, problem_of(error))
        finally:
            teller.cancel()

    async def _tell(self, number: int, notes: asyncio.Queue[Any]) -> None:
        while True:
            due = [await notes.get()]
            while not notes.empty():
                due.append(notes.get_nowait())
            with contextlib.suppress(LinkLost):
                await self._send_message(_NOTE, number, due)
            for _ in due:
                notes.task_done()

    async def _serve_channel(self, channel: Channel, asked: Mapping[str, Any]) -> None:
        try:
            handler = self.channels.get(asked["name"])
            if handler is not None:
                await handler(asked.get("body"), channel)
        except (LinkLost, ConnectionError):
            pass
        except Exception as error:
            log.error("a channel failed", name=asked.get("name"), exc_info=error)
        finally:
            await channel.close()

    def forget_channel(self, number: int) -> None:
        """A channel was closed on this side."""
        self._open.pop(number, None)

    def _end(self) -> None:
        if self.closed.is_set():
            return
        self.closed.set()
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(self._lost())
        for channel in list(self._open.values()):
            channel.end()
        for task in list(self._serving.values()):
            if task is not asyncio.current_task():
                task.cancel()
        self._parts.clear()
        self._unfinished = 0


def problem_of(error: Exception) -> dict[str, Any]:
    """An error as it crosses the link."""
    if not isinstance(error, AoError):
        text = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
        return {"category": AoError.category, "detail": text, "remedy": "see the log of the other side"}
    return {
        "category": error.category,
        "detail": error.text,
        "remedy": error.remedy,
        "until": getattr(error, "until", None),
    }


def _error(problem: Mapping[str, Any]) -> AoError:
    error = error_of(problem)
    if isinstance(error, Temporary):
        error.until = problem.get("until")
    return error
