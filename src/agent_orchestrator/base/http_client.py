"""A minimal HTTP/1.1 client on a plain socket, which `client/daemon_client.py` uses to talk to the daemon.

Importing `http.client` takes as long as a whole command may take, so this module implements only what is needed:
keep-alive, bodies by length and in chunks, lines and Server-Sent Events read as they arrive.
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


class ConnectionBroken(Unreachable):
    """The connection ended before the answer was complete."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the connection to the daemon broke ({reason})", "run the command again; the daemon starts by itself"
        )


def quote(text: str) -> str:
    """Percent-encode a part of a path, a query or a header."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in os.fsencode(text))


def unquote(text: str) -> str:
    """Decode percent-encoded text."""
    first, *rest = text.split("%")
    parts = [first.encode()]
    for part in rest:
        try:
            parts.append(bytes([int(part[:2], 16)]) + part[2:].encode())
        except ValueError:
            parts.append(b"%" + part.encode())
    return b"".join(parts).decode(errors="replace")


def with_query(path: str, query: Mapping[str, str | int | None] | None = None) -> str:
    """Return a path with a query: True becomes 1; False, None and the empty string are left out."""
    parameters = {
        key: 1 if value is True else value
        for key, value in (query or {}).items()
        if value not in (None, "") and value is not False
    }
    text = "&".join(f"{key}={quote(str(value))}" for key, value in parameters.items())
    return f"{path}?{text}" if text else path


class CompleteResponse(NamedTuple):
    """A complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """Return the body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return the body as JSON, or None if it is empty. Raises `AoError` if it is not JSON."""
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise AoError("the daemon's answer is not JSON", "is another program listening on its address?") from None

    def to_error(self) -> AoError:
        """Return the error that this response reports."""
        try:
            problem = json.loads(self.body)
        except (ValueError, RecursionError):
            problem = None
        if isinstance(problem, dict):
            return error_from_problem(problem, self.status)
        text = " ".join(self.text.split())[:200]
        return AoError(f"the daemon answered {self.status}: {text}" if text else f"the daemon answered {self.status}")


def error_from_problem(problem: Mapping[str, Any], status: int = 500) -> AoError:
    """Return a problem document as the error that was raised in the daemon."""
    if isinstance(problem.get("status"), int):
        status = problem["status"]
    error_class = _CATEGORIES.get(str(problem.get("category"))) or _STATUSES.get(status, AoError)
    detail = problem.get("detail") or problem.get("title") or f"the daemon answered {status}"
    error = error_class(detail if isinstance(detail, str) else json.dumps(detail), str(problem.get("remedy") or ""))
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


class BufferedSocket:
    """A socket with a buffer of what was read and not used yet; a timeout changes neither."""

    def __init__(self, sock: socket.socket, peer: str = "") -> None:
        self.sock = sock
        self.peer = peer
        """Host and port; empty for a Unix socket, where the daemon knows the caller without a token."""
        self._buffer = b""

    def send(self, data: bytes) -> None:
        """Send all of the data. Raises `ConnectionBroken` if the connection has ended."""
        try:
            self.sock.sendall(data)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionBroken(error.strerror or str(error)) from None

    def read_some(self, limit: int) -> bytes:
        """Return at least one byte and at most `limit` bytes."""
        if not self._buffer:
            self._receive()
        data, self._buffer = self._buffer[:limit], self._buffer[limit:]
        return data

    def read_line(self) -> bytes:
        """Return the next line, without its end."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._receive()
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        return line.rstrip(b"\r")

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def _receive(self) -> None:
        """Read more into the buffer. Raises `TimeoutError`, or `ConnectionBroken` if the connection has ended."""
        try:
            data = self.sock.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionBroken(error.strerror or str(error)) from None
        if not data:
            raise ConnectionBroken("it was closed")
        self._buffer += data


class ServerEvent(NamedTuple):
    """One Server-Sent Event."""

    id: str
    type: str
    data: str


class StreamedResponse:
    """A response whose body is read as it arrives.

    Reading raises `TimeoutError` if nothing arrives within the time set by `wait`; no data is lost by that, and
    reading can go on.
    """

    def __init__(self, connection: BufferedSocket, release: Callable[[BufferedSocket], None]) -> None:
        self.status, self.headers = _read_head(connection)
        self._connection: BufferedSocket | None = connection
        self._release = release
        self._is_chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        self._until_close = not self._is_chunked and length is None and self.status not in (204, 304)
        self._remaining = 0 if self._is_chunked else _parse_size(length or "0", 10)
        self._line_buffer = b""
        self._event_fields: dict[str, str] = {}
        self.last_id = ""
        """The id of the last Server-Sent Event, with which another stream can continue after it."""

    def read_chunk(self) -> bytes:
        """Return the next piece of the body, or b"" at its end."""
        connection = self._connection
        if connection is None:
            return b""
        if self._until_close:
            try:
                return connection.read_some(1 << 16)
            except ConnectionBroken:
                self.close()
                return b""
        if self._is_chunked and not self._remaining:
            self._remaining = _read_chunk_size(connection)
        if not self._remaining:
            self._connection = None
            if self.headers.get("connection", "").lower() == "close":
                connection.close()
            else:
                self._release(connection)
            return b""
        piece = connection.read_some(self._remaining)
        self._remaining -= len(piece)
        return piece

    def read(self) -> bytes:
        """Return the rest of the body."""
        return b"".join(iter(self.read_chunk, b""))

    def read_line(self) -> str | None:
        """Return the next line of the body, or None at its end."""
        while b"\n" not in self._line_buffer:
            if not (piece := self.read_chunk()):
                rest, self._line_buffer = self._line_buffer, b""
                return rest.decode(errors="replace") if rest else None
            self._line_buffer += piece
        line, _, self._line_buffer = self._line_buffer.partition(b"\n")
        return line.rstrip(b"\r").decode(errors="replace")

    def read_event(self) -> ServerEvent | None:
        """Return the next Server-Sent Event, or None at the end."""
        while (line := self.read_line()) is not None:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line:
                self._event_fields[name] = (
                    f"{self._event_fields['data']}\n{value}"
                    if name == "data" and "data" in self._event_fields
                    else value
                )
                continue
            fields, self._event_fields = self._event_fields, {}
            self.last_id = fields.get("id") or self.last_id
            if "data" in fields:
                return ServerEvent(fields.get("id", ""), fields.get("event", "message"), fields["data"])
        return None

    def set_timeout(self, seconds: float | None) -> None:
        """Set how many seconds the next piece may take; None: no limit."""
        if self._connection is not None:
            self._connection.sock.settimeout(seconds)

    def close(self) -> None:
        """Close the connection, if the body was not read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> StreamedResponse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_head(connection: BufferedSocket) -> tuple[int, dict[str, str]]:
    """Read a response's status line and headers. Raises `Unreachable` if it is not HTTP."""
    try:
        status = int(connection.read_line().split(b" ")[1])
    except (IndexError, ValueError):
        raise Unreachable("what answers at the daemon's address does not speak HTTP", "run `ao doctor`") from None
    headers: dict[str, str] = {}
    while line := connection.read_line().decode("latin-1"):
        name, _, value = line.partition(":")
        key = name.strip().lower()
        headers[key] = f"{headers[key]},{value.strip()}" if key in headers else value.strip()
    return status, headers


def _read_chunk_size(connection: BufferedSocket) -> int:
    """Return the size of the next chunk, after the line end of the previous one; after the last chunk, read the trailers too."""
    while not (size_line := connection.read_line()):
        pass
    length = _parse_size(size_line.partition(b";")[0].decode("latin-1").strip(), 16)
    while not length and connection.read_line():
        pass
    return length


def _parse_size(text: str, base: int) -> int:
    """Return a size as a number. Raises `ConnectionBroken` if it is not one."""
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if size < 0:
        raise ConnectionBroken("a piece without a size")
    return size
