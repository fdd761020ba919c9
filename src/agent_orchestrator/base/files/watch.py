"""Notification of changes to files, at no cost while there are none.

On Linux by inotify: one descriptor for all watches, read by the event loop, so that a line in a spool is seen
within a millisecond and nothing polls. Elsewhere by `watchfiles`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable
from contextvars import Context
from functools import cache
from pathlib import Path

import structlog

from agent_orchestrator.errors import Temporary

Callback = Callable[[], object]

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_IN_FILE = _MODIFY
_IN_FOLDER = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_OVERFLOW = 0x4000
_EVERY_NAME = ""
INOTIFY_REMEDY = "raise the limit of open files (ulimit -n), or of watchers (sysctl fs.inotify.max_user_instances)"

log = structlog.get_logger()


def stop_nothing() -> None:
    """End the watch of a path that cannot be watched: a no-op."""


class FileWatcher:
    """Calls back on the event loop when a watched path changes."""

    def __init__(self) -> None:
        self._linux = sys.platform == "linux"
        self._descriptor = -1
        self._calls: dict[int, list[tuple[str, Callback]]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def watch_file(self, path: Path, call: Callback) -> Callback:
        """Watch a file that exists and is appended to; return a function that ends the watch."""
        return self._add(path, _IN_FILE, _EVERY_NAME, call)

    def watch_entry(self, path: Path, call: Callback) -> Callback:
        """Watch one name in a folder for being written, replaced, created or removed; return a function that ends the watch."""
        return self._add(path.parent, _IN_FOLDER, path.name, call)

    def watch_folder(self, path: Path, call: Callback) -> Callback:
        """Watch everything directly in a folder; return a function that ends the watch."""
        return self._add(path, _IN_FOLDER, _EVERY_NAME, call)

    def watch_tree(self, path: Path, call: Callback) -> Callback:
        """Watch everything in a folder and below, where the system can do that with one watch (not on Linux); return a
        function that ends it.
        """
        return self._add_with_watchfiles(path, _EVERY_NAME, call, below=True)

    def catch_up(self) -> None:
        """Call back immediately for all changes so far, without waiting for the event loop.

        The callbacks run in a context of their own, as from the event loop: what they start is not done for the caller.
        """
        while self._descriptor >= 0 and Context().run(self._read):
            pass

    def close(self) -> None:
        """End all watches."""
        for task in self._tasks:
            task.cancel()
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        self._calls.clear()

    def _add(self, path: Path, mask: int, name: str, call: Callback) -> Callback:
        """Watch a path for the events in `mask`; with a `name`, only for that entry of the folder. Returns a function
        that ends the watch.
        """
        if not self._linux:
            return self._add_with_watchfiles(path, name, call)
        if self._descriptor < 0:
            self._start_inotify()
        watch = _c_library().inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        if watch < 0:
            if (number := ctypes.get_errno()) != errno.ENOENT:
                log.error("a path cannot be watched: its changes go unseen", path=str(path), error=os.strerror(number))
            return stop_nothing
        item = (name, call)
        self._calls.setdefault(watch, []).append(item)
        return lambda: self._remove(watch, item)

    def _start_inotify(self) -> None:
        """Open the inotify descriptor. Raises `Temporary` if the system has none left."""
        descriptor = _c_library().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            raise Temporary(f"files cannot be watched: {os.strerror(ctypes.get_errno())}", INOTIFY_REMEDY)
        Context().run(asyncio.get_running_loop().add_reader, descriptor, self._read)
        self._descriptor = descriptor

    def _remove(self, watch: int, item: tuple[str, Callback]) -> None:
        """Remove a callback, and the system's watch if it was the last one."""
        calls = self._calls.get(watch, [])
        if item in calls:
            calls.remove(item)
        if not calls and watch in self._calls and self._descriptor >= 0:
            del self._calls[watch]
            _c_library().inotify_rm_watch(self._descriptor, watch)

    def _read(self) -> bool:
        """Read pending events and call back, once per callback; return whether there were any."""
        try:
            data = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return False
        due: dict[Callback, None] = {}
        position = 0
        while position < len(data):
            watch, mask, _cookie, length = struct.unpack_from("iIII", data, position)
            name = os.fsdecode(data[position + 16 : position + 16 + length].rstrip(b"\0"))
            position += 16 + length
            if mask & _OVERFLOW:  # some events were lost: report a change for everything
                due.update((call, None) for calls in self._calls.values() for _, call in calls)
            for watched_name, call in self._calls.get(watch, ()):
                if watched_name in (_EVERY_NAME, name):
                    due[call] = None
        for call in due:
            call()
        return True

    def _add_with_watchfiles(self, path: Path, name: str, call: Callback, *, below: bool = False) -> Callback:
        """Watch a path by `watchfiles`, on systems other than Linux; return a function that ends the watch."""

        async def follow() -> None:
            from watchfiles import awatch

            async for changes in awatch(path, recursive=below, step=20, debounce=50):
                if name == _EVERY_NAME or any(Path(changed_path).name == name for _, changed_path in changes):
                    call()

        task = asyncio.get_running_loop().create_task(follow())
        self._tasks.append(task)
        return lambda: (task.cancel(), None)[1]


class LaunchFileChanges:
    """`protocols.Changes` for several paths, until an agent has ended."""

    def __init__(self, watch: FileWatcher, ended: asyncio.Event) -> None:
        self._watch = watch
        self._ended = ended
        self._changed = asyncio.Event()
        self._stops: dict[Path, tuple[Path, Callable[[], None]]] = {}

    def watch(self, path: Path) -> None:
        """Watch a path, or the nearest folder above it that exists."""
        if path not in self._stops:
            self._watch_nearest(path)

    def _watch_nearest(self, path: Path) -> None:
        """Replace the watch of a path by one of the path itself, or of the nearest folder above it that exists now."""
        nearest = next(parent for parent in (path, *path.parents) if parent.exists())
        current = self._stops.get(path)
        if current and current[0] == nearest:
            return
        if current:
            current[1]()
        stops = [self._watch.watch_folder(nearest, self.wake)] if nearest.is_dir() else []
        if not stops:
            stops = [self._watch.watch_file(nearest, self.wake), self._watch.watch_entry(nearest, self.wake)]
        self._stops[path] = (nearest, lambda: [stop() for stop in stops].clear())
        if nearest != path and path.exists():
            self._watch_nearest(path)  # it was created meanwhile

    async def next(self, within: float | None = None) -> bool:
        """Wait until something changed, `within` seconds have passed, or the agent has ended; return False if it has ended."""
        if not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), within)
        self._changed.clear()
        for path in list(self._stops):
            self._watch_nearest(path)
        return not self._ended.is_set()

    def wake(self) -> None:
        """Note that something changed, and wake `next`."""
        self._changed.set()

    def close(self) -> None:
        """End all watches."""
        for _, stop in self._stops.values():
            stop()
        self._stops.clear()


@cache
def _c_library() -> ctypes.CDLL:
    """Return the C library, for its inotify functions."""
    return ctypes.CDLL(None, use_errno=True)
