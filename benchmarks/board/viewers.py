"""Many people who look at the board at once: what each of them gets and how soon, and what that costs the daemon."""

from __future__ import annotations

import re
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.fleet import SIZE, Changes
from benchmarks.measure import Figure, cpu_seconds, quartiles, resident, share

COUNT = 50
DEAF = 3
"""Others beside them who never read what they are sent."""
CHANGES = 100
A_SECOND = 10.0
PATIENCE = 30.0

_FRAME = re.compile(rb"id: (\d+)\nevent: live\n")
_MARK = re.compile(rb'"step":"mark(\d+)\."')


@dataclass(eq=False)
class Viewer:
    """One who reads the stream as it comes."""

    line: socket.socket
    frames: list[int] = field(default_factory=list)
    """The numbers of the frames that came, in order."""
    marks: dict[int, float] = field(default_factory=dict)
    """When each change was here."""
    rest: bytes = b""

    def read(self) -> None:
        """Take what is there."""
        data = self.line.recv(1 << 20)
        if not data:
            raise ConnectionError("the daemon has cut a viewer off")
        at = time.time()
        whole, end, self.rest = (self.rest + data).rpartition(b"\n\n")
        self.frames += [int(number) for number in _FRAME.findall(whole + end)]
        for number in _MARK.findall(whole):
            self.marks.setdefault(int(number), at)


def following(box: Sandbox, changes: Changes, count: int = COUNT, times: int = CHANGES) -> Iterator[Figure]:
    """So many follow the same stream while agents report steps."""
    pid = box.daemon_pid()
    assert pid is not None
    before = resident(pid)
    token = box.request("POST", "/api/tokens", {"name": "viewers", "role": "viewer"})["token"]
    viewers = [Viewer(_opened(box, token)) for _ in range(count)]
    deaf = [_opened(box, token) for _ in range(DEAF)]
    enough = threading.Event()
    reader = threading.Thread(target=_read_all, args=(viewers, enough))
    reader.start()
    try:
        box.until(lambda: all(viewer.frames for viewer in viewers), "the first frame for everybody", PATIENCE)
        first = max(viewer.frames[0] for viewer in viewers)
        used, begun = cpu_seconds(pid), time.monotonic()
        made = changes.make_all(times, A_SECOND)
        used = 100 * (cpu_seconds(pid) - used) / (time.monotonic() - begun)
        whole = lambda viewer: made.keys() <= viewer.marks.keys()  # noqa: E731
        end = time.monotonic() + PATIENCE
        while not all(map(whole, viewers)) and time.monotonic() < end:
            time.sleep(0.05)
        memory = resident(pid)
    finally:
        enough.set()
        reader.join()
        for line in [*deaf, *(viewer.line for viewer in viewers)]:
            line.close()
    note = f"{before:.0f} MB before; CPU {used:.0f} % at {A_SECOND:g} changes a second"
    yield Figure(f"resident memory of the daemon, {count} viewers, {SIZE} sessions", memory, 250, "MB", note=note)
    yield from _fair(viewers, made, first)


def _fair(viewers: list[Viewer], made: Mapping[int, float], first: int) -> Iterator[Figure]:
    """Does everybody get everything, and soon?"""
    frames = [[number for number in viewer.frames if number > first] for viewer in viewers]
    every = set().union(*frames)
    lacking = sum(len(every.difference(one)) for one in frames)
    lacking += sum(len(made.keys() - viewer.marks.keys()) for viewer in viewers)
    note = f"{len(every)} frames with {len(made)} changes to each of {len(viewers)}; {DEAF} more read nothing"
    yield Figure("frames or changes that a viewer did not get", lacking, 0, "missed", note=note)
    last = [max(viewer.marks[number] for viewer in viewers) - at for number, at in made.items()]
    first_of = [min(viewer.marks[number] for viewer in viewers) - at for number, at in made.items()]
    apart = [slow - quick for slow, quick in zip(last, first_of, strict=True)]
    note = (
        f"p50 {share(last, 0.5) * 1e3:.0f} ms, to the first of them {share(first_of, 0.5) * 1e3:.0f} ms; "
        f"from the first to the last {share(apart, 0.95) * 1e3:.0f} ms (p95)"
    )
    middle = tuple(one * 1e3 for one in quartiles(last))
    yield Figure(
        f"change → the last of {len(viewers)} viewers (p95)",
        share(last, 0.95) * 1e3,
        300,
        "ms",
        note=note,
        stretch=100,
        spread=(middle[0], middle[1]),
    )


def _opened(box: Sandbox, token: str) -> socket.socket:
    place = urlsplit(str(box.client().info()["url"]))
    line = socket.create_connection((place.hostname or "", place.port or 0))
    head = f"GET /api/live HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    line.sendall(head.encode())
    return line


def _read_all(viewers: list[Viewer], enough: threading.Event) -> None:
    with selectors.DefaultSelector() as ready:
        for viewer in viewers:
            ready.register(viewer.line, selectors.EVENT_READ, viewer)
        while not enough.is_set():
            for key, _ in ready.select(0.1):
                key.data.read()
