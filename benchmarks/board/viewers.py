"""Many simultaneous viewers of the board: what each gets, how soon, and what that costs the daemon."""

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
from benchmarks.fleet import SIZE, ProgressReports
from benchmarks.measure import Figure, cpu_seconds, quantile, quartiles, resident_megabytes

VIEWER_COUNT = 50
UNREAD_CONNECTIONS = 3
"""Further connections that never read."""
CHANGES = 100
CHANGES_PER_SECOND = 10.0
TIMEOUT = 30.0

_FRAME = re.compile(rb"id: (\d+)\nevent: live\n")
_MARK = re.compile(rb'"step":"mark(\d+)\."')


@dataclass(eq=False)
class StreamViewer:
    """A viewer that reads the event stream."""

    line: socket.socket
    frames: list[int] = field(default_factory=list)
    """The numbers of the received frames, in order."""
    marks: dict[int, float] = field(default_factory=dict)
    """When each change was received."""
    buffer: bytes = b""

    def read(self) -> None:
        """Read the available data."""
        data = self.line.recv(1 << 20)
        if not data:
            raise ConnectionError("the daemon has cut a viewer off")
        at = time.time()
        complete, end, self.buffer = (self.buffer + data).rpartition(b"\n\n")
        self.frames += [int(number) for number in _FRAME.findall(complete + end)]
        for number in _MARK.findall(complete):
            self.marks.setdefault(int(number), at)


def measure_viewers(
    box: Sandbox, changes: ProgressReports, count: int = VIEWER_COUNT, count_of_changes: int = CHANGES
) -> Iterator[Figure]:
    """Measure many viewers of the same stream while agents report progress."""
    pid = box.daemon_pid()
    assert pid is not None
    before = resident_megabytes(pid)
    token = box.request("POST", "/api/tokens", {"name": "viewers", "role": "viewer"})["token"]
    viewers = [StreamViewer(_open_stream(box, token)) for _ in range(count)]
    unread = [_open_stream(box, token) for _ in range(UNREAD_CONNECTIONS)]
    stop = threading.Event()
    reader = threading.Thread(target=_read_all, args=(viewers, stop))
    reader.start()
    try:
        box.wait_until(lambda: all(viewer.frames for viewer in viewers), "the first frame for everybody", TIMEOUT)
        first = max(viewer.frames[0] for viewer in viewers)
        cpu, begun = cpu_seconds(pid), time.monotonic()
        times = changes.write_all(count_of_changes, CHANGES_PER_SECOND)
        cpu = 100 * (cpu_seconds(pid) - cpu) / (time.monotonic() - begun)
        has_all = lambda viewer: times.keys() <= viewer.marks.keys()  # noqa: E731
        end = time.monotonic() + TIMEOUT
        while not all(map(has_all, viewers)) and time.monotonic() < end:
            time.sleep(0.05)
        memory = resident_megabytes(pid)
    finally:
        stop.set()
        reader.join()
        for line in [*unread, *(viewer.line for viewer in viewers)]:
            line.close()
    note = f"{before:.0f} MB before; CPU {cpu:.0f} % at {CHANGES_PER_SECOND:g} changes a second"
    yield Figure(f"resident memory of the daemon, {count} viewers, {SIZE} sessions", memory, 250, "MB", note=note)
    yield from _compare_viewers(viewers, times, first)


def _compare_viewers(viewers: list[StreamViewer], times: Mapping[int, float], first: int) -> Iterator[Figure]:
    """Yield the figures of missing frames and changes, and of their delays."""
    frames = [[number for number in viewer.frames if number > first] for viewer in viewers]
    all_frames = set().union(*frames)
    missing_count = sum(len(all_frames.difference(viewer_frames)) for viewer_frames in frames)
    missing_count += sum(len(times.keys() - viewer.marks.keys()) for viewer in viewers)
    note = f"{len(all_frames)} frames with {len(times)} changes to each of {len(viewers)}; {UNREAD_CONNECTIONS} more read nothing"
    yield Figure("frames or changes that a viewer did not get", missing_count, 0, "missed", note=note)
    last = [max(viewer.marks[number] for viewer in viewers) - at for number, at in times.items()]
    first_of = [min(viewer.marks[number] for viewer in viewers) - at for number, at in times.items()]
    differences = [slow - quick for slow, quick in zip(last, first_of, strict=True)]
    note = (
        f"p50 {quantile(last, 0.5) * 1e3:.0f} ms, to the first of them {quantile(first_of, 0.5) * 1e3:.0f} ms; "
        f"from the first to the last {quantile(differences, 0.95) * 1e3:.0f} ms (p95)"
    )
    middle = tuple(viewer_frames * 1e3 for viewer_frames in quartiles(last))
    yield Figure(
        f"change → the last of {len(viewers)} viewers (p95)",
        quantile(last, 0.95) * 1e3,
        300,
        "ms",
        note=note,
        stretch=100,
        spread=(middle[0], middle[1]),
    )


def _open_stream(box: Sandbox, token: str) -> socket.socket:
    place = urlsplit(str(box.client().info()["url"]))
    line = socket.create_connection((place.hostname or "", place.port or 0))
    head = f"GET /api/live HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    line.sendall(head.encode())
    return line


def _read_all(viewers: list[StreamViewer], stop: threading.Event) -> None:
    with selectors.DefaultSelector() as ready:
        for viewer in viewers:
            ready.register(viewer.line, selectors.EVENT_READ, viewer)
        while not stop.is_set():
            for key, _ in ready.select(0.1):
                key.data.read()
