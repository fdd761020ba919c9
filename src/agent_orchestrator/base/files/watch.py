"""Told when a file changes, at no cost while none does.

Linux: inotify, one descriptor for all, straight into the event loop (a line in a spool is seen within a millisecond, and nothing
wakes up in between). Elsewhere: `watchfiles`.
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
from functools import cache
from pathlib import Path

import structlog

from agent_orchestrator.errors import Temporary

Callback = Callable[[], None]

_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_IN_FILE = _MODIFY
_IN_FOLDER = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_OVERFLOW = 0x4000
_ANY_NAME = ""
NO_INOTIFY = "raise the limit of open files (ulimit -n), or of watchers (sysctl fs.inotify.max_user_instances)"

log = structlog.get_logger()


def unseen() -> None:
    """Ends the watch of a path that cannot be watched."""


class Watch:
    """Calls back on the event loop when a watched path changes."""

    def __init__(self) -> None:
        self._linux = sys.platform == "linux"
        self._descriptor = -1
        self._calls: dict[int, list[tuple[str, Callback]]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def file(self, path: Path, call: Callback) -> Callback:
        """Watch a file that exists and is appended to; returns what ends the watch."""
        return self._add(path, _IN_FILE, _ANY_NAME, call)

    def entry(self, path: Path, call: Callback) -> Callback:
        """Watch one name in a folder: written, replaced, made or removed."""
        return self._add(path.parent, _IN_FOLDER, path.name, call)

    def folder(self, path: Path, call: Callback) -> Callback:
        """Watch everything directly in a folder."""
        return self._add(path, _IN_FOLDER, _ANY_NAME, call)

    def tree(self, path: Path, call: Callback) -> Callback:
        """Watch everything in a folder and below, where the system can do that at one go (not on Linux)."""
        return self._add_elsewhere(path, _ANY_NAME, call, below=True)

    def catch_up(self) -> None:
        """Call back now for what has changed so far, instead of when the event loop comes to it."""
        while self._descriptor >= 0 and self._read():
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
        if not self._linux:
            return self._add_elsewhere(path, name, call)
        if self._descriptor < 0:
            self._begin()
        watch = _libc().inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        if watch < 0:
            if (number := ctypes.get_errno()) != errno.ENOENT:
                log.error("a path cannot be watched: its changes go unseen", path=str(path), error=os.strerror(number))
            return unseen
        item = (name, call)
        self._calls.setdefault(watch, []).append(item)
        return lambda: self._remove(watch, item)

    def _begin(self) -> None:
        descriptor = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            raise Temporary(f"files cannot be watched: {os.strerror(ctypes.get_errno())}", NO_INOTIFY)
        asyncio.get_running_loop().add_reader(descriptor, self._read)
        self._descriptor = descriptor

    def _remove(self, watch: int, item: tuple[str, Callback]) -> None:
        calls = self._calls.get(watch, [])
        if item in calls:
            calls.remove(item)
        if not calls and watch in self._calls and self._descriptor >= 0:
            del self._calls[watch]
            _libc().inotify_rm_watch(self._descriptor, watch)

    def _read(self) -> bool:
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
            if mask & _OVERFLOW:  # some changes were not told: look at everything
                due.update((call, None) for calls in self._calls.values() for _, call in calls)
            for wanted, call in self._calls.get(watch, ()):
                if wanted in (_ANY_NAME, name):
                    due[call] = None
        for call in due:
            call()
        return True

    def _add_elsewhere(self, path: Path, name: str, call: Callback, *, below: bool = False) -> Callback:
        async def follow() -> None:
            from watchfiles import awatch

            async for changes in awatch(path, recursive=below, step=20, debounce=50):
                if name == _ANY_NAME or any(Path(changed).name == name for _, changed in changes):
                    call()

        task = asyncio.get_running_loop().create_task(follow())
        self._tasks.append(task)
        return lambda: (task.cancel(), None)[1]


class FileChanges:
    """`protocols.Changes`: several paths, until an agent has ended."""

    def __init__(self, watch: Watch, ended: asyncio.Event) -> None:
        self._watch = watch
        self._ended = ended
        self._changed = asyncio.Event()
        self._stops: dict[Path, tuple[Path, Callable[[], None]]] = {}

    def watch(self, path: Path) -> None:
        """Look at it, or at the folder nearest to it that exists."""
        if path not in self._stops:
            self._arm(path)

    def _arm(self, path: Path) -> None:
        seen = next(parent for parent in (path, *path.parents) if parent.exists())
        kept = self._stops.get(path)
        if kept and kept[0] == seen:
            return
        if kept:
            kept[1]()
        ends = [self._watch.folder(seen, self.wake)] if seen.is_dir() else []
        if not ends:
            ends = [self._watch.file(seen, self.wake), self._watch.entry(seen, self.wake)]
        self._stops[path] = (seen, lambda: [end() for end in ends].clear())
        if seen != path and path.exists():
            self._arm(path)  # it came to be meanwhile

    async def next(self, within: float | None = None) -> bool:
        """Until something changed, the time is up, or the agent has ended."""
        if not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), within)
        self._changed.clear()
        for path in list(self._stops):
            self._arm(path)
        return not self._ended.is_set()

    def wake(self) -> None:
        """Something changed."""
        self._changed.set()

    def close(self) -> None:
        """Look no more."""
        for _, stop in self._stops.values():
            stop()
        self._stops.clear()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
