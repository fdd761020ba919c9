"""HTTP to the daemon in a few lines: over its Unix socket with bare `socket` and `json`, for every command waits for this import.

The daemon is found by `$AO_HOME/daemon.json`; where none answers it is started. A request that the daemon died on is
repeated with the same `Idempotency-Key`. Errors come back as the classes of `errors.py`, rebuilt from problem documents.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from agent_orchestrator import errors
from agent_orchestrator.errors import AoError, Unreachable

ATTEMPTS = 4
"""A request, and three repetitions when the connection breaks on it."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_REPEATED_WITH_KEY = frozenset({"POST", "PUT", "PATCH", "DELETE"})


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


def with_query(path: str, **query: str | int | bool | None) -> str:
    """A path with a query: true is 1; false, none and the empty string are left out."""
    pairs = [f"{key}={1 if value is True else quote(str(value))}" for key, value in query.items() if value not in (None, False, "")]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def home_folder() -> str:
    """`$AO_HOME`, or its default; by the same rule as `home.Home`, without what that imports."""
    return os.path.abspath(os.path.expanduser(os.environ.get("AO_HOME") or "~/.agent-orchestrator"))  # noqa: PTH100, PTH111


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
        except ValueError:
            raise AoError("the daemon's answer is not JSON", "is another program listening on its address?") from None

    def error(self) -> AoError:
        """The error that this answer tells of."""
        try:
            problem = json.loads(self.body)
        except ValueError:
            problem = None
        if not isinstance(problem, dict):
            return AoError(f"the daemon answered {self.status}: {self.text.strip()[:200]}".rstrip(": "))
        kind = _CATEGORIES.get(problem.get("category", ""), _STATUSES.get(self.status, AoError))
        detail = problem.get("detail") or problem.get("title") or f"the daemon answered {self.status}"
        error = kind(detail if isinstance(detail, str) else json.dumps(detail), str(problem.get("remedy") or ""))
        if isinstance(problem.get("exitCode"), int):
            error.exit_code = problem["exitCode"]
        return error


def _tree(kind: type[AoError]) -> Iterator[type[AoError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


_CATEGORIES: dict[str, type[AoError]] = {kind.category: kind for kind in _tree(AoError)}
_STATUSES: dict[int, type[AoError]] = {400: errors.UsageError, 401: errors.Denied, 403: errors.Denied, 404: errors.NotFound, 409: errors.Conflict, 422: errors.UsageError}


class _Broken(Exception):
    """The connection ended before the answer did."""


class _Connection:
    """A socket with what was read from it and not yet used; a time-out leaves both as they were."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except TimeoutError:
            raise
        except OSError as error:
            raise _Broken(str(error)) from None

    def some(self, limit: int) -> bytes:
        """At most so many bytes, at least one."""
        if not self._buffer:
            self._fill()
        taken, self._buffer = self._buffer[:limit], self._buffer[limit:]
        return taken

    def line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            self._fill()
        taken, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        return taken.rstrip(b"\r")

    def _fill(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError as error:
            raise _Broken(str(error)) from None
        if not data:
            raise _Broken("it was closed")
        self._buffer += data


class ServerEvent(NamedTuple):
    """One Server-Sent Event."""

    id: str
    type: str
    data: str


class Stream:
    """An answer whose body is read as it comes."""

    def __init__(self, connection: _Connection, release: Callable[[_Connection], None]) -> None:
        self._connection: _Connection | None = connection
        self._release = release
        self.status, self.headers = _read_head(connection)
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        self._to_close = not self._chunked and length is None and self.status not in (204, 304)
        self._left = int(length or 0) if not self._chunked else 0
        self._ended = False
        self._text = b""
        self._event: dict[str, str] = {}

    def chunk(self) -> bytes:
        """The next piece of the body; empty at its end. Raises `TimeoutError` when nothing came in time: call again."""
        connection = self._connection
        if self._ended or connection is None:
            return b""
        if self._to_close:
            try:
                return connection.some(1 << 16)
            except _Broken:
                return self._end(keep=False)
        if self._chunked and not self._left:
            while not (size := connection.line()):
                pass
            self._left = int(size.partition(b";")[0], 16)
            if not self._left:
                while connection.line():
                    pass
        if not self._left:
            return self._end(keep=self.headers.get("connection", "").lower() != "close")
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

    def lines(self) -> Iterator[str]:
        """The body line by line."""
        while (line := self.line()) is not None:
            yield line

    def event(self) -> ServerEvent | None:
        """The next Server-Sent Event; none at the end."""
        while (line := self.line()) is not None:
            if line:
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "data" and "data" in self._event:
                    value = f"{self._event['data']}\n{value}"
                self._event[name] = value
            else:
                event, self._event = self._event, {}
                if "data" in event:
                    return ServerEvent(event.get("id", ""), event.get("event", "message"), event["data"])
        return None

    def wait(self, seconds: float | None) -> None:
        """Set how long the next piece may take; none: for ever."""
        if self._connection is not None:
            self._connection.sock.settimeout(seconds)

    def close(self) -> None:
        """Drop the connection, if the body was not read to its end."""
        if self._connection is not None:
            self._end(keep=False)

    def _end(self, keep: bool) -> bytes:
        connection, self._connection, self._ended = self._connection, None, True
        if connection is not None and keep:
            self._release(connection)
        elif connection is not None:
            connection.sock.close()
        return b""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if isinstance(error, _Broken):
            raise Unreachable("the daemon went away", "run the command again; the daemon starts by itself") from None


def _read_head(connection: _Connection) -> tuple[int, dict[str, str]]:
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


class Client:
    """One user's daemon, started when it is needed and does not run."""

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        *,
        start: bool = True,
        notice: Callable[[str], None] | None = None,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        self.home = os.path.abspath(home) if home is not None else home_folder()  # noqa: PTH100 - pathlib costs 6 ms here
        self._start = start
        self._notice = notice
        self._waiting = waiting
        self._connection: _Connection | None = None

    def info(self) -> dict[str, Any]:
        """What `$AO_HOME/daemon.json` says; empty if there is none."""
        try:
            with open(os.path.join(self.home, "daemon.json"), encoding="utf-8") as file:  # noqa: PTH123
                info = json.load(file)
        except (OSError, ValueError):
            return {}
        return info if isinstance(info, dict) else {}

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 60.0,
        check: bool = True,
        repeat: bool = True,
    ) -> Answer:
        """Ask, and return the whole answer; an answer of 400 and above is raised as its error unless `check` is off."""
        payload = self._encode(method, path, body, headers)

        def ask() -> Answer:
            with self._send(payload, timeout) as stream:
                try:
                    return Answer(stream.status, stream.headers, stream.read())
                except _Broken:
                    stream.close()
                    raise _Broken("within its answer") from None

        answer = self._repeat(ask, timeout, repeat)
        if check and answer.status >= 400:
            raise answer.error()
        return answer

    def stream(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None, timeout: float | None = 60.0
    ) -> Stream:
        """Ask, and return the answer to be read as it comes; `timeout` is for its beginning only."""
        payload = self._encode(method, path, body, headers)
        stream = self._repeat(lambda: self._send(payload, timeout), timeout, True)
        if stream.status >= 400:
            raise Answer(stream.status, stream.headers, stream.read()).error()
        stream.wait(None)
        return stream

    def get(self, path: str, *, timeout: float | None = 60.0, **query: str | int | bool | None) -> Any:
        """GET a JSON document."""
        return self.request("GET", with_query(path, **query), timeout=timeout).json()

    def post(self, path: str, body: object = None, *, timeout: float | None = 60.0) -> Any:
        """POST a JSON document and return the one that is answered."""
        return self.request("POST", path, {} if body is None else body, timeout=timeout).json()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.sock.close()

    def ensure(self, arguments: Sequence[str] = ()) -> bool:
        """Make sure that the daemon answers; true if it had to be started (with these arguments)."""
        try:
            self._connection = self._connection or self._dial()
            return False
        except _Broken:
            self._launch(arguments)
            return True

    def _repeat[Result](self, ask: Callable[[], Result], timeout: float | None, repeat: bool) -> Result:
        for attempt in range(ATTEMPTS):
            try:
                return ask()
            except _Broken as broken:
                self.close()
                if attempt + 1 == ATTEMPTS or not repeat:
                    raise Unreachable(f"the daemon broke the connection: {broken}", f"look at {self.home}/daemon.log") from None
            except TimeoutError:
                self.close()
                raise Unreachable(f"the daemon did not answer within {timeout:g} s", f"look at {self.home}/daemon.log") from None
        raise AssertionError("unreachable")
