"""A cheap HTTP client, with prepared requests and unparsed answers, and a context that pins a daemon to one core."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.measure import exact_cpu_seconds

Address = str | tuple[str, int]
"""The path of a Unix socket, or host and port."""
CONNECTION_COUNT = 4
"""Connections used at the same time."""


class HTTPConnection:
    """One HTTP connection that is kept alive."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")

    @classmethod
    def unix(cls, box: Sandbox) -> HTTPConnection:
        """Return a connection to the daemon's Unix socket, which the command line uses."""
        return cls.connect(str(box.home.socket("daemon.sock")))

    @classmethod
    def connect(cls, address: Address) -> HTTPConnection:
        """Return a connection to the address."""
        connection = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        connection.connect(address)
        if not isinstance(address, str):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(connection)

    def __enter__(self) -> HTTPConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._connection.close()

    def get(self, path: str) -> tuple[int, bytes]:
        """Send a GET request without further headers; return status and body."""
        return self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a complete request; return the status and the body of the answer."""
        self._connection.sendall(request)
        status = int(self._reader.readline().split(b" ", 2)[1])
        length = 0
        while (line := self._reader.readline()) not in (b"\r\n", b""):
            if line[:15].lower() == b"content-length:":
                length = int(line[15:])
        return status, self._reader.read(length)


def tcp_address(box: Sandbox) -> Address:
    """Return the daemon's host and port."""
    url = urlsplit(str(box.client().info()["url"]))
    assert url.hostname and url.port
    return url.hostname, url.port


@dataclass(frozen=True, slots=True)
class RequestRate:
    """Answers of a process per second, and their CPU time."""

    per_second: float
    cpu_seconds_each: float
    """Seconds of CPU time per answer."""


def measure_request_rate(
    pid: int,
    address: Address,
    requests: Sequence[bytes],
    seconds: float,
    *,
    expected_status: int = 200,
    repeat: bool = True,
) -> RequestRate:
    """Send the requests from another process over several connections; without `repeat`, each request is sent at most once."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    client_process = context.Process(
        target=_send_requests, args=(sender, address, requests, seconds, expected_status, repeat)
    )
    cpu_before = exact_cpu_seconds(pid)
    client_process.start()
    sender.close()
    try:
        count, seconds_taken = receiver.recv()
    except EOFError:
        raise RuntimeError("the client got another answer than expected") from None
    finally:
        client_process.join()
    return RequestRate(count / seconds_taken, (exact_cpu_seconds(pid) - cpu_before) / count)


def _send_requests(
    pipe: Connection, address: Address, requests: Sequence[bytes], seconds: float, expected_status: int, repeat: bool
) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    remaining = itertools.cycle(requests) if repeat else iter(requests)
    started_at = time.monotonic()

    def send_requests(_: int) -> int:
        count = 0
        with HTTPConnection.connect(address) as line:
            for request in remaining:
                status = line.send(request)[0]
                if status != expected_status:
                    raise RuntimeError(f"answered with {status}")
                count += 1
                if time.monotonic() > started_at + seconds:
                    break
        return count

    with ThreadPoolExecutor(CONNECTION_COUNT) as pool:
        pipe.send((sum(pool.map(send_requests, range(CONNECTION_COUNT))), time.monotonic() - started_at))


@contextmanager
def pin_to_one_core(pid: int) -> Iterator[None]:
    """Pin all threads of a process to the first core; the client process uses the last one."""
    before = os.sched_getaffinity(pid)
    _pin_threads(pid, {min(before)})
    try:
        yield
    finally:
        _pin_threads(pid, before)


def _pin_threads(pid: int, cores: set[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)
