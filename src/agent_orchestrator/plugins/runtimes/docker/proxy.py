"""One container's way to the network: an HTTP proxy that connects only to allowed hosts. Ends with the process that started it.

    python -I -S proxy.py RULES

RULES is a file of lines: SOCKETS, LOG, DAEMON, and one line per ALLOWED. SOCKETS is the folder for its two sockets: `proxy.sock` takes
`CONNECT host:port` and plain HTTP requests, `daemon.sock` leads directly to DAEMON (`host:port`, or `-`). ALLOWED is `host` (its ports
80 and 443), `host:port` or `*.domain`. A refused request gets an error response, and is noted in LOG.
"""

# There is one such process per session, so it is kept small: pathlib would cost more than it is worth.
# ruff: noqa: PTH108, PTH110, PTH123, PTH202

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TypeAlias
from urllib.parse import urlsplit

PORTS = (80, 443)
MAX_HEAD_BYTES = 65536
HEAD_TIMEOUT = 30.0
CONNECT_TIMEOUT = 20.0
MAX_LOG_BYTES = 1_000_000

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


class HostRefused(Exception):
    """Raised when a host may not be reached."""


class Proxy:
    """The proxy of one container: its allowed hosts, and its log of refused ones."""

    def __init__(self, log: str, daemon: str, allowed: list[str]) -> None:
        self.log, self.daemon = log, daemon
        self.allowed = [split_host_port(entry.lower()) for entry in allowed]

    def check(self, host: str, port: int) -> None:
        """Note the host and raise `Refused` unless it is allowed."""
        name = host.lower().rstrip(".")
        for pattern, allowed_port in self.allowed:
            is_match = name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern
            if is_match and (port == allowed_port if allowed_port else port in PORTS):
                return
        self.log_refusal(f"{host}:{port}")
        raise HostRefused(f"{host}:{port}")

    def log_refusal(self, what: str) -> None:
        """Append a refused host to the log, up to `MAX_LOG_BYTES`."""
        try:
            if not os.path.exists(self.log) or os.path.getsize(self.log) < MAX_LOG_BYTES:
                with open(self.log, "a", encoding="utf-8", errors="replace") as log:
                    log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} refused {what}\n")
        except OSError:
            pass

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """Serve one connection of the container."""
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
            line, _, header_lines = head.partition(b"\r\n")
            method, target, version = line.decode("latin-1").split(" ")
            if method == "CONNECT":
                host, port = split_host_port(target)
                first_bytes = b""
            else:
                url = urlsplit(target)
                if url.scheme != "http" or not url.hostname:
                    raise ValueError(target)
                host, port = url.hostname, url.port or 80
                path = (url.path or "/") + (f"?{url.query}" if url.query else "")
                first_bytes = f"{method} {path} {version}\r\n".encode("latin-1") + closing_headers(header_lines)
            self.check(host, port or 443)
            upstream = await connect(host, port or 443)
        except HostRefused as error:
            await send_error(writer, 403, f"{error} is not allowed; add it to docker.allow")
        except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            await send_error(writer, 400, "not a request for a proxy")
        except OSError as error:
            await send_error(writer, 502, str(error))
        else:
            if first_bytes:
                upstream[1].write(first_bytes)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await copy_both_ways((reader, writer), upstream)

    async def forward_to_daemon(self, reader: Reader, writer: Writer) -> None:
        """Forward a connection to the daemon, which checks the session's token itself."""
        host, port = split_host_port(self.daemon)
        try:
            upstream = await connect(host, port)
        except OSError:
            writer.close()
            return
        await copy_both_ways((reader, writer), upstream)


def split_host_port(text: str) -> tuple[str, int]:
    """Return host and port; port 0 if none is given."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        return text.strip("[]"), 0
    return host.strip("[]"), int(port)


def closing_headers(headers: bytes) -> bytes:
    """Return a plain request's headers without those for the proxy; the connection is closed after it, not reused for another host."""
    kept_lines = [
        line for line in headers.split(b"\r\n") if line and not line.lower().startswith((b"proxy-", b"connection:"))
    ]
    return b"\r\n".join([*kept_lines, b"Connection: close", b"", b""])


async def connect(host: str, port: int) -> tuple[Reader, Writer]:
    """Connect to a host. Raises `OSError` if it does not answer in time."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            return await asyncio.open_connection(host, port)
    except TimeoutError:
        raise OSError(f"{host}:{port} does not answer") from None


async def send_error(writer: Writer, code: int, text: str) -> None:
    """Send an error response and close the connection."""
    body = f"ao: {text}\n".encode()
    head = f"HTTP/1.1 {code} ao\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    try:
        writer.write(head.encode() + body)
        await writer.drain()
    except OSError:
        pass
    writer.close()


async def copy_both_ways(near: tuple[Reader, Writer], far: tuple[Reader, Writer]) -> None:
    """Copy data in both directions until both sides are done."""
    await asyncio.gather(pump(near[0], far[1]), pump(far[0], near[1]))
    for _, writer in (near, far):
        writer.close()


async def pump(reader: Reader, writer: Writer) -> None:
    """Copy data in one direction until its end."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def main(sockets: str, log: str, daemon: str, *allowed: str) -> None:
    """Serve until the parent process has ended."""
    os.umask(0o077)
    proxy = Proxy(log, daemon, list(allowed))
    handlers = {"proxy.sock": proxy.serve, **({"daemon.sock": proxy.forward_to_daemon} if daemon != "-" else {})}
    for name, handler in handlers.items():
        path = os.path.join(sockets, name)
        if os.path.lexists(path):
            os.unlink(path)
        await asyncio.start_unix_server(handler, path, limit=MAX_HEAD_BYTES)
    ended = asyncio.Event()
    parent = os.pidfd_open(os.getppid())
    asyncio.get_running_loop().add_reader(parent, ended.set)
    await ended.wait()


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8", errors="surrogateescape") as rules:
        lines = rules.read().split("\n")
    asyncio.run(main(*lines))
