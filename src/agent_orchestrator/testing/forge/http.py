"""HTTP of the test forges: answers sent whole, streamed or cut in the middle, and connections that can be ended."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agent_orchestrator.testing.forge.ledger import OrderedFault


@dataclass
class ForgeAnswer:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    stream: Iterator[bytes] | None = None
    """A body that is not JSON and may be larger than memory."""
    last_modified: str | None = None


class ConnectionCut(Exception):
    """Raised when the connection was ended on purpose."""


class ForgeListener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], clock: Callable[[], float]
    ) -> None:
        self.clock = clock
        self.secure = False
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def close_request(self, request: Any) -> None:
        self._open.discard(request)
        super().close_request(request)

    def end(self) -> None:
        """Stop listening and end all open connections."""
        self.shutdown()
        self.server_close()
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnected."""


class ForgeRequestHandler(BaseHTTPRequestHandler):
    """A connection; a subclass answers in `serve`."""

    protocol_version = "HTTP/1.1"
    sys_version = ""
    disable_nagle_algorithm = True
    server: ForgeListener

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(self.server.clock() if timestamp is None else timestamp)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
        """Log nothing; the ledger records requests."""

    def do_GET(self) -> None:
        self.serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def serve(self) -> None:
        raise NotImplementedError

    def _read(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send_whole(self, answer: ForgeAnswer, headers: dict[str, str], cut: bool = False) -> None:
        """Send an answer that fits into memory."""
        if answer.stream is not None:
            data = b"".join(answer.stream)
        else:
            data = b"" if answer.status in (204, 304) or answer.body is None else encode(answer.body)
            headers.setdefault("Content-Type", "application/json; charset=utf-8")
        length = {"Content-Length": str(len(data))}
        self._send_head(answer.status, headers | length, b"" if self.command == "HEAD" else data, cut)

    def _send_head(self, status: int, headers: dict[str, str], data: bytes, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or status not in (204, 304):
                self.send_header(name, value)
        lines: list[bytes] = getattr(self, "_headers_buffer", [])
        head = b"".join(lines) + b"\r\n"
        self._headers_buffer: list[bytes] = []
        self.wfile.write(head + (data[: len(data) // 2] if cut else data))
        if cut:
            self._disconnect()
            raise ConnectionCut

    def _send_stream(self, answer: ForgeAnswer, headers: dict[str, str], fault: OrderedFault | None) -> None:
        assert answer.stream is not None
        self._send_head(answer.status, headers | {"Transfer-Encoding": "chunked"}, b"")
        for number, piece in enumerate(_regroup(answer.stream)):
            if fault and fault.failure == "cut" and number:
                self._disconnect()
                raise ConnectionCut
            self.wfile.write(b"%x\r\n" % len(piece) + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _disconnect(self) -> None:
        try:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def encode(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _regroup(pieces: Iterator[bytes], size: int = 1 << 16) -> Iterator[bytes]:
    """Yield the same bytes in pieces of at least `size` bytes, except for the last, and none empty."""
    held = b""
    for piece in pieces:
        held += piece
        if len(held) >= size:
            yield held
            held = b""
    if held:
        yield held
