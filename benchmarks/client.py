"""A client that costs next to nothing: requests made beforehand, answers only measured off; and a daemon kept to one core."""

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
from benchmarks.measure import cpu_exact

Place = str | tuple[str, int]
"""A Unix socket by its path, or a port."""
LINES = 4
"""Connections that ask at the same time."""


class Line:
    """One connection, kept alive."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._reader = wire.makefile("rb")

    @classmethod
    def unix(cls, box: Sandbox) -> Line:
        """The command line's way in."""
        return cls.to(str(box.home.socket("daemon.sock")))

    @classmethod
    def to(cls, place: Place) -> Line:
        """Connected to there."""
        wire = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
        wire.connect(place)
        if not isinstance(place, str):
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(wire)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._wire.close()

    def get(self, path: str) -> tuple[int, bytes]:
        """Ask, as bare as can be."""
        return self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a whole request; the status and the body of its answer."""
        self._wire.sendall(request)
        status = int(self._reader.readline().split(b" ", 2)[1])
        length = 0
        while (line := self._reader.readline()) not in (b"\r\n", b""):
            if line[:15].lower() == b"content-length:":
                length = int(line[15:])
        return status, self._reader.read(length)


def tcp(box: Sandbox) -> Place:
    """The daemon's port on loopback."""
    place = urlsplit(str(box.client().info()["url"]))
    assert place.hostname and place.port
    return place.hostname, place.port


@dataclass(frozen=True, slots=True)
class Rate:
    """How often a process answered, and what that cost it."""

    a_second: float
    each: float
    """Seconds of CPU time for an answer."""


def rate(
    pid: int, place: Place, requests: Sequence[bytes], seconds: float, *, wanted: int = 200, again: bool = True
) -> Rate:
    """Asked by a process of its own, by several connections; without `again` each request is made once at most."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    asker = context.Process(target=_ask, args=(sender, place, requests, seconds, wanted, again))
    used = cpu_exact(pid)
    asker.start()
    sender.close()
    try:
        answered, took = receiver.recv()
    except EOFError:
        raise RuntimeError("whoever asks got another answer than expected") from None
    finally:
        asker.join()
    return Rate(answered / took, (cpu_exact(pid) - used) / answered)


def _ask(told: Connection, place: Place, requests: Sequence[bytes], seconds: float, wanted: int, again: bool) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    left = itertools.cycle(requests) if again else iter(requests)
    begun = time.monotonic()

    def keep_on(_: int) -> int:
        count = 0
        with Line.to(place) as line:
            for request in left:
                status = line.send(request)[0]
                if status != wanted:
                    raise RuntimeError(f"answered with {status}")
                count += 1
                if time.monotonic() > begun + seconds:
                    break
        return count

    with ThreadPoolExecutor(LINES) as pool:
        told.send((sum(pool.map(keep_on, range(LINES))), time.monotonic() - begun))


@contextmanager
def one_core(pid: int) -> Iterator[None]:
    """Keep all threads of a process to the first core; whoever asks it has the last one."""
    before = os.sched_getaffinity(pid)
    _keep(pid, {min(before)})
    try:
        yield
    finally:
        _keep(pid, before)


def _keep(pid: int, cores: set[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)
