"""One container's way to the network: an HTTP proxy that connects to allowed hosts alone. Ends with the process that started it.

    python -I -S proxy.py RULES

RULES is a file of lines: SOCKETS, LOG, DAEMON, and one for each that is ALLOWED. SOCKETS is the folder for its two sockets:
`proxy.sock` takes `CONNECT host:port` and plain HTTP requests, `daemon.sock` leads straight to DAEMON (`host:port`, or `-`).
ALLOWED are `host` (its ports 80 and 443), `host:port` and `*.domain`. What is refused is told to the one who asked, and noted in LOG.
"""

# A process a session: pathlib would cost it more than it needs.
# ruff: noqa: PTH108, PTH110, PTH123, PTH202

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TypeAlias
from urllib.parse import urlsplit

PORTS = (80, 443)
LONGEST_HEAD = 65536
HEAD_WITHIN = 30.0
CONNECT_WITHIN = 20.0
NOTED = 1_000_000

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


class Refused(Exception):
    """Not to be reached from here."""


class Proxy:
    """What may be reached, and what was refused."""

    def __init__(self, log: str, daemon: str, allowed: list[str]) -> None:
        self.log, self.daemon = log, daemon
        self.allowed = [split(one.lower()) for one in allowed]

    def check(self, host: str, port: int) -> None:
        """Raise unless it is allowed."""
        name = host.lower().rstrip(".")
        for pattern, only in self.allowed:
            same = name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern
            if same and (port == only if only else port in PORTS):
                return
        self.note(f"{host}:{port}")
        raise Refused(f"{host}:{port}")

    def note(self, what: str) -> None:
        """Keep what was refused, for the person who wonders."""
        try:
            if not os.path.exists(self.log) or os.path.getsize(self.log) < NOTED:
                with open(self.log, "a", encoding="utf-8", errors="replace") as log:
                    log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} refused {what}\n")
        except OSError:
            pass

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """One connection of the container's."""
        try:
            async with asyncio.timeout(HEAD_WITHIN):
                head = await reader.readuntil(b"\r\n\r\n")
            line, _, rest = head.partition(b"\r\n")
            method, target, version = line.decode("latin-1").split(" ")
            if method == "CONNECT":
                host, port = split(target)
                first = b""
            else:
                url = urlsplit(target)
                if url.scheme != "http" or not url.hostname:
                    raise ValueError(target)
                host, port = url.hostname, url.port or 80
                path = (url.path or "/") + (f"?{url.query}" if url.query else "")
                first = f"{method} {path} {version}\r\n".encode("latin-1") + one_request(rest)
            self.check(host, port or 443)
            far = await connect(host, port or 443)
        except Refused as error:
            await say(writer, 403, f"{error} is not allowed; add it to docker.allow")
        except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            await say(writer, 400, "not a request for a proxy")
        except OSError as error:
            await say(writer, 502, str(error))
        else:
            if first:
                far[1].write(first)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await both_ways((reader, writer), far)

    async def to_daemon(self, reader: Reader, writer: Writer) -> None:
        """Straight to the daemon, which asks for the session's token itself."""
        host, port = split(self.daemon)
        try:
            far = await connect(host, port)
        except OSError:
            writer.close()
            return
        await both_ways((reader, writer), far)


def split(text: str) -> tuple[str, int]:
    """Host and port; 0: none is said."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        return text.strip("[]"), 0
    return host.strip("[]"), int(port)


def one_request(headers: bytes) -> bytes:
    """A plain request's headers without what concerns the proxy; the connection is not kept for another host."""
    kept = [
        line for line in headers.split(b"\r\n") if line and not line.lower().startswith((b"proxy-", b"connection:"))
    ]
    return b"\r\n".join([*kept, b"Connection: close", b"", b""])


async def connect(host: str, port: int) -> tuple[Reader, Writer]:
    """To the other side."""
    try:
        async with asyncio.timeout(CONNECT_WITHIN):
            return await asyncio.open_connection(host, port)
    except TimeoutError:
        raise OSError(f"{host}:{port} does not answer") from None


async def say(writer: Writer, code: int, text: str) -> None:
    """Answer instead of the other side."""
    body = f"ao: {text}\n".encode()
    head = f"HTTP/1.1 {code} ao\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    try:
        writer.write(head.encode() + body)
        await writer.drain()
    except OSError:
        pass
    writer.close()


async def both_ways(near: tuple[Reader, Writer], far: tuple[Reader, Writer]) -> None:
    """Until both sides are done."""
    await asyncio.gather(pump(near[0], far[1]), pump(far[0], near[1]))
    for _, writer in (near, far):
        writer.close()


async def pump(reader: Reader, writer: Writer) -> None:
    """One direction."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def main(sockets: str, log: str, daemon: str, *allowed: str) -> None:
    """Serve until the one who started us has ended."""
    os.umask(0o077)
    proxy = Proxy(log, daemon, list(allowed))
    doors = {"proxy.sock": proxy.serve, **({"daemon.sock": proxy.to_daemon} if daemon != "-" else {})}
    for name, serve in doors.items():
        path = os.path.join(sockets, name)
        if os.path.lexists(path):
            os.unlink(path)
        await asyncio.start_unix_server(serve, path, limit=LONGEST_HEAD)
    ended = asyncio.Event()
    parent = os.pidfd_open(os.getppid())
    asyncio.get_running_loop().add_reader(parent, ended.set)
    await ended.wait()


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8", errors="surrogateescape") as rules:
        asked = rules.read().split("\n")
    asyncio.run(main(*asked))
