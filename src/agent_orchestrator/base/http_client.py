"""HTTP/1.1 as seen by a client, on a bare socket: what `client/daemon_client.py` speaks with.

`http.client` alone takes as long to import as a whole command may take, so the little that is needed stands here: keep-alive,
bodies by length and in chunks, lines and Server-Sent Events read as they come.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from agent_orchestrator import errors
from agent_orchestrator.errors import AoError, Unreachable

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Broken(Unreachable):
    """The connection ended before the answer did."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the connection to the daemon broke ({reason})", "run the command again; the daemon starts by itself"
        )


def quote(text: str) -> str:
    """Percent-encode a piece of a path, a query or a header."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in os.fsencode(text))


def unquote(text: str) -> str:
    """Undo `quote`."""
    first, *rest = text.split("%")
    parts = [first.encode()]
    for part in rest:
        try:
            parts.append(bytes([int(part[:2], 16)]) + part[2:].encode())
        except ValueError:
            parts.append(b"%" + part.encode())
    return b"".join(parts).decode(errors="replace")


def with_query(path: str, query: Mapping[str, str | int | None] | None = None) -> str:
    """A path with a query: true is 1; false, none and the empty string are left out."""
    kept = {
        key: 1 if value is True else value
        for key, value in (query or {}).items()
        if value not in (None, "") and value is not False
    }
    text = "&".join(f"{key}={quote(str(value))}" for key, value in kept.items())
    return f"{path}?{text}" if text else path


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """The body as JSON; none if it is empty."""
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise AoError("the daemon's answer is not JSON", "is another program listening on its address?") from None

    def error(self) -> AoError:
        """The error that this answer tells of."""
        try:
            problem = json.loads(self.body)
        except (ValueError, RecursionError):
            problem = None
        if isinstance(problem, dict):
            return error_of(problem, self.status)
        text = " ".join(self.text.split())[:200]
        return AoError(f"the daemon answered {self.status}: {text}" if text else f"the daemon answered {self.status}")


def error_of(problem: Mapping[str, Any], status: int = 500) -> AoError:
    """A problem document as the error that was raised in the daemon."""
    if isinstance(problem.get("status"), int):
        status = problem["status"]
    kind = _CATEGORIES.get(str(problem.get("category"))) or _STATUSES.get(status, AoError)
    detail = problem.get("detail") or problem.get("title") or f"the daemon answered {status}"
    error = kind(detail if isinstance(detail, str) else json.dumps(detail), str(problem.get("remedy") or ""))
    if isinstance(problem.get("exitCode"), int):
        error.exit_code = problem["exitCode"]
    return error


_CATEGORIES: dict[str, type[AoError]] = {
    kind.category: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AoError)
}
_STATUSES: dict[int, type[AoError]] = {
    400: errors.UsageError,
    401: errors.Denied,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    422: errors.UsageError,
}


class Connection:
    """A socket with what was read from it and not yet used; a time-out leaves both as they were."""

    def __init__(self, sock: socket.socket, peer: str = "") -> None:
        self.sock = sock
        self.peer = peer
        """Host and port; empty for a Unix socket, where the daemon knows us without a token."""
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """Send all of it."""
        try:
            self.sock.sendall(data)
        except TimeoutError:
            raise
        except OSError as error:
            raise Broken(error.strerror or str(error)) from None

    def some(self, limit: int) -> bytes:
        """At most so many bytes, at least one."""
        if not self._buffer:
            self._fill()
        taken, self._buffer = self._buffer[:limit], self._buffer[limit:]
        return taken

    def line(self) -> bytes:
        """The next line, without its end."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._fill()
        taken, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        return taken.rstrip(b"\r")

    def close(self) -> None:
        """Hang up."""
        self.sock.close()

    def _fill(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError as error:
            raise Broken(error.strerror or str(error)) from None
        if not data:
            raise Broken("it was closed")
        self._buffer += data


class ServerEvent(NamedTuple):
    """One Server-Sent Event."""

    id: str
    type: str
    data: str


class Stream:
    """An answer whose body is read as it comes.

    Reading raises `TimeoutError` when nothing came within the time set by `wait`; nothing is lost by that, read again.
    """

    def __init__(self, connection: Connection, release: Callable[[Connection], None]) -> None:
        self.status, self.headers = _read_head(connection)
        self._connection: Connection | None = connection
        self._release = release
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        self._until_close = not self._chunked and length is None and self.status not in (204, 304)
        self._left = 0 if self._chunked else _size(length or "0", 10)
        self._text = b""
        self._event: dict[str, str] = {}
        self.last_id = ""
        """The id of the last Server-Sent Event, by which another stream goes on after it."""

    def chunk(self) -> bytes:
        """The next piece of the body; empty at its end."""
        connection = self._connection
        if connection is None:
            return b""
        if self._until_close:
            try:
                return connection.some(1 << 16)
            except Broken:
                self.close()
                return b""
        if self._chunked and not self._left:
            self._left = _next_chunk(connection)
        if not self._left:
            self._connection = None
            if self.headers.get("connection", "").lower() == "close":
                connection.close()
            else:
                self._release(connection)
            return b""
        piece = connection.some(self._left)
        self._left -= len(piece)
        return piece

    def read(self) -> bytes:
        """The rest of the body."""
        return b"".join(iter(self.chunk, b""))

    def line(self) -> str | None:
        """The next line of the body; none at its end."""
        while b"\n" not in self._text:
            if not (piece := self.chunk()):
                rest, self._text = self._text, b""
                return rest.decode(errors="replace") if rest else None
            self._text += piece
        line, _, self._text = self._text.partition(b"\n")
        return line.rstrip(b"\r").decode(errors="replace")

    def event(self) -> ServerEvent | None:
        """The next Server-Sent Event; none at the end."""
        while (line := self.line()) is not None:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line:
                self._event[name] = (
                    f"{self._event['data']}\n{value}" if name == "data" and "data" in self._event else value
                )
                continue
            event, self._event = self._event, {}
            self.last_id = event.get("id") or self.last_id
            if "data" in event:
                return ServerEvent(event.get("id", ""), event.get("event", "message"), event["data"])
        return None

    def wait(self, seconds: float | None) -> None:
        """Set how long the next piece may take; none: for ever."""
        if self._connection is not None:
            self._connection.sock.settimeout(seconds)

    def close(self) -> None:
        """Hang up, if the body was not read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_head(connection: Connection) -> tuple[int, dict[str, str]]:
    try:
        status = int(connection.line().split(b" ")[1])
    except (IndexError, ValueError):
        raise Unreachable("what answers at the daemon's address does not speak HTTP", "run `ao doctor`") from None
    headers: dict[str, str] = {}
    while line := connection.line().decode("latin-1"):
        name, _, value = line.partition(":")
        key = name.strip().lower()
        headers[key] = f"{headers[key]},{value.strip()}" if key in headers else value.strip()
    return status, headers


def _next_chunk(connection: Connection) -> int:
    """Read a chunk's size, past the end of the one before it; after the last one, read the trailers too."""
    while not (size := connection.line()):
        pass
    length = _size(size.partition(b";")[0].decode("latin-1").strip(), 16)
    while not length and connection.line():
        pass
    return length


def _size(text: str, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if size < 0:
        raise Broken("a piece without a size")
    return size
