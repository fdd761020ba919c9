"""Servers on the Unix socket and on TCP (loopback or TLS), in the daemon's event loop.

Sockets are bound, and clients may connect, before anything is served; requests are answered once `serve` runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import stat
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from agent_orchestrator.base.attempt_limit import RateLimiter
from agent_orchestrator.errors import AoError, Conflict, Denied, UsageError, resource_shortage
from agent_orchestrator.server.access.auth import is_git
from agent_orchestrator.server.access.peers import peer_user
from agent_orchestrator.server.access.tls import Certificate
from agent_orchestrator.server.app import App
from agent_orchestrator.server.standby import SwitchableApp

MAX_HEAD_BYTES = 1 << 16
"""Bytes that a request's line and headers may have."""
HEAD_TIMEOUT = 20.0
"""Seconds within which a request's line and headers must arrive, counted from the connection's or the request's start."""
BODY_TIMEOUT = 120.0
"""Seconds within which a request's body must arrive."""
SHUTDOWN_GRACE_SECONDS = 2
"""Seconds that requests in progress have to finish when the daemon ends."""
_BACKLOG = 1024
_PORTS_TO_TRY = 100
_RESPONSE_HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]

log = structlog.get_logger(__name__)
_full_warning_limiter = RateLimiter(1, 60.0, time.monotonic)


def bind_unix(path: Path) -> socket.socket:
    """Return a listening Unix socket that only its owner may open, replacing a stale one. The caller holds the daemon's lock."""
    # Bound under another name and then renamed: another user, or a client that is too early, can never connect.
    unfinished = path.with_name(path.name + "~")
    unfinished.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(unfinished))
        unfinished.chmod(0o600)
        listener.listen(_BACKLOG)
        unfinished.replace(path)
    except OSError as error:
        listener.close()
        unfinished.unlink(missing_ok=True)
        raise AoError(
            f"the socket {path} cannot be made: {error.strerror or error}",
            "check the folder, or set AO_HOME to another one",
        ) from None
    return listener


def bind_tcp(host: str, port: int, explicit: bool) -> tuple[socket.socket, str | None]:
    """Return a listening TCP socket. If its port is taken, raise Conflict if it was `explicit`, else use the next free one and say so in
    the note.
    """
    if not 0 <= port <= 65535:
        raise UsageError(f"{port} is no port", "choose one from 1 to 65535")
    tries = 1 if explicit or port == 0 else min(_PORTS_TO_TRY, 65536 - port)
    for candidate in range(port, port + tries):
        listener = _try_bind(host, candidate)
        if listener is not None:
            return listener, None if candidate == port else f"port {port} is taken, so this is port {candidate}"
    raise Conflict(
        f"port {port} on {host} is taken"
        if tries == 1
        else f"the ports {port} to {port + tries - 1} on {host} are taken",
        "choose another with --port or `port:` in the configuration, or end the program that listens there",
    )


def _try_bind(host: str, port: int) -> socket.socket | None:
    """Return a socket that listens there, or None if the port is taken."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"the host {host} is not known", "use 127.0.0.1, or an address of this machine") from None
    family, kind, protocol, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
    listener = _LimitedSocket(family, kind, protocol)
    try:
        if sys.platform == "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        if error.errno == errno.EACCES:
            raise Denied(f"port {port} on {host} may not be used", "choose a port above 1023") from None
        raise UsageError(
            f"{host} is no address of this machine: {error.strerror}", "use 127.0.0.1, or an address of this machine"
        ) from None
    return listener


def url_of(listener: socket.socket, host: str, *, secure: bool = False) -> str:
    """Return the URL of a TCP listener; a host name stays as given, and a wildcard address becomes the loopback."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http{'s' if secure else ''}://{name}:{listener.getsockname()[1]}"


class _LimitedSocket(socket.socket):
    """A socket that limits open connections, also those still in the TLS handshake, and so leaves file descriptors for the daemon."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._connections: WeakSet[socket.socket] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; if too many are open, close it at once and raise ConnectionAbortedError."""
        connection, address = super().accept()
        if len(self._connections) >= _max_connections():
            self._connections = WeakSet(
                open_connection for open_connection in self._connections if open_connection.fileno() >= 0
            )
        if len(self._connections) >= _max_connections():
            connection.close()
            if not _full_warning_limiter.seconds_until_allowed(""):
                _full_warning_limiter.add("")
                log.warning("refused", reason="too many connections are open", peer=address[0])
            raise ConnectionAbortedError  # as if the client had disconnected
        self._connections.add(connection)
        return connection, address


class Servers:
    """The two servers, on sockets that are already bound; `unix` is None where there are no Unix sockets."""

    def __init__(
        self,
        unix: socket.socket | None,
        tcp: socket.socket | None,
        unix_path: Path | None = None,
        certificate: Certificate | None = None,
    ) -> None:
        self._unix, self._tcp = unix, tcp
        self._certificate = certificate
        self._unix_path = unix_path
        self._inode = unix_path.stat().st_ino if unix is not None and unix_path is not None else None
        self._servers: list[_EventDrivenServer] = []
        self._apps: list[App | SwitchableApp] = []
        self._closing = asyncio.Event()
        self.started = asyncio.Event()
        """Set once requests are answered."""

    @classmethod
    def bind(
        cls, unix_path: Path, host: str, port: int, explicit: bool, certificate: Certificate | None = None
    ) -> tuple[Servers, str, str | None]:
        """Bind both sockets; return the servers, the URL of TCP, and a note for the user about the port."""
        tcp, note = bind_tcp(host, port, explicit)
        try:
            unix = bind_unix(unix_path) if hasattr(socket, "AF_UNIX") else None
        except AoError:
            tcp.close()
            raise
        return cls(unix, tcp, unix_path, certificate), url_of(tcp, host, secure=certificate is not None), note

    async def serve(self, app_unix: App | SwitchableApp, app_tcp: App | SwitchableApp) -> None:
        """Answer requests until `close` is called and those in progress are done."""
        pairs = [(app, sock) for app, sock in ((app_unix, self._unix), (app_tcp, self._tcp)) if sock is not None]
        self._apps = [app for app, _ in pairs]
        self._servers = [
            _EventDrivenServer(app, self._closing, self._certificate if sock is self._tcp else None)
            for app, sock in pairs
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for server, (_, sock) in zip(self._servers, pairs, strict=True):
                    group.create_task(server.serve(sockets=[sock]))
                for server in self._servers:
                    await server.ready.wait()
                self.started.set()
        except ExceptionGroup as errors:
            first = errors.exceptions[0]
            raise resource_shortage(first) or first from None
        finally:
            self._remove_sockets()

    def close(self) -> None:
        """Accept no more requests, end the streams, and let `serve` return."""
        self._closing.set()
        for app in self._apps:
            app.state.closing.set()

    def _remove_sockets(self) -> None:
        """Close both sockets and remove the Unix socket's file, unless another daemon has replaced it."""
        for sock in (self._unix, self._tcp):
            if sock is not None:
                sock.close()
        path = self._unix_path
        with contextlib.suppress(FileNotFoundError):
            if path is not None and (status := path.stat()).st_ino == self._inode and stat.S_ISSOCK(status.st_mode):
                path.unlink()


class _EventDrivenServer(uvicorn.Server):
    """uvicorn without its signal handlers and its periodic tick: it waits for an event, so that idling costs nothing."""

    def __init__(self, app: App | SwitchableApp, closing: asyncio.Event, certificate: Certificate | None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_LimitedHttpProtocol,
                ws="websockets-sansio",
                ws_max_size=MAX_HEAD_BYTES,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                log_level="critical",  # the gate logs what fails; uvicorn would add a line for every refused WebSocket
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                headers=_RESPONSE_HEADERS,
                backlog=_BACKLOG,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=SHUTDOWN_GRACE_SECONDS,
                ssl_certfile=certificate.cert if certificate else None,
                ssl_keyfile=certificate.key if certificate else None,
            )
        )
        self._closing = closing
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers to the daemon."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving and set `ready`."""
        self.server_state.default_headers = self.config.encoded_headers
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Wait until the server is to close."""
        await self._closing.wait()


class _LimitedHttpProtocol(HttpToolsProtocol):
    """HTTP with limits that neither the parser nor uvicorn has: on the size of a request's head and on the time it takes."""

    _user = ""
    _head_bytes = 0
    _in_head = True
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Look up the user of a Unix socket, and wait for the first request."""
        super().connection_made(transport)
        if self.client is None:
            self._user = peer_user(transport.get_extra_info("socket"))
        self._set_deadline(HEAD_TIMEOUT)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self._set_deadline(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of the head, and answer 400 if they are too many."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request's headers are too large.")

    def on_message_begin(self) -> None:
        """Start the deadline of a request's head."""
        self._header_bytes = 0
        self._set_deadline(HEAD_TIMEOUT)
        super().on_message_begin()
        if self._user:
            self.scope["state"]["user"] = self._user

    def on_header(self, name: bytes, value: bytes) -> None:
        """Limit the size of the headers, also of trailers, which are dropped."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEAD_BYTES:
            raise ValueError("the headers are too large")  # the parser turns this into a 400 answer
        if self._in_head:  # trailers behind a body are not headers of its request
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the deadline of the body."""
        self._in_head = False
        self._set_deadline(BODY_TIMEOUT)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Extend the deadline of a push while data arrives."""
        super().on_body(body)
        if is_git(self.scope["path"]) and not self.cycle.response_complete:
            self._set_deadline(BODY_TIMEOUT)  # a pack may be large as long as data keeps arriving

    def on_message_complete(self) -> Any:
        """Reset the counters for the next request."""
        self._in_head, self._head_bytes = True, 0
        self._set_deadline(None)
        return super().on_message_complete()

    def _set_deadline(self, seconds: float | None) -> None:
        """Close the connection after so many seconds unless this is called again: idle connections would use up the limit."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.close)


@cache
def _max_connections() -> int:
    """Return half of the files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
