"""File watches on real files: appends, replacements, creations and removals are reported until the watch ends."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.core.actor import acting_as, current_actor

pytestmark = pytest.mark.anyio

linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


@pytest.fixture
async def watch() -> AsyncIterator[FileWatcher]:
    watch = FileWatcher()
    yield watch
    watch.close()


class CallCounter:
    """Counts calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1

    async def is_called_after(self, change: Callable[[], object]) -> bool:
        """Make a change and return whether the counter was called within a few seconds."""
        before = self.count
        change()
        for _ in range(500):
            if self.count > before:
                return True
            await asyncio.sleep(0.01)
        return False


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("line\n")


def replace_by_rename(path: Path) -> None:
    other = path.with_name("new")
    other.write_text("new")
    other.replace(path)


async def test_an_appended_line_is_reported(watch: FileWatcher, tmp_path: Path) -> None:
    path, counter = tmp_path / "spool", CallCounter()
    path.touch()
    watch.watch_file(path, counter)
    assert await counter.is_called_after(lambda: append(path))
    assert await counter.is_called_after(lambda: append(path))


async def test_creation_replacement_and_removal_of_an_entry_are_reported(watch: FileWatcher, tmp_path: Path) -> None:
    path, counter, folder_counter = tmp_path / "config", CallCounter(), CallCounter()
    watch.watch_entry(path, counter)
    watch.watch_folder(tmp_path, folder_counter)
    for change in (path.touch, lambda: replace_by_rename(path), path.unlink):
        assert await counter.is_called_after(change)
    before = counter.count
    assert await folder_counter.is_called_after((tmp_path / "other").touch)
    assert counter.count == before


async def test_only_remaining_watchers_are_called(watch: FileWatcher, tmp_path: Path) -> None:
    path, removed, remaining = tmp_path / "spool", CallCounter(), CallCounter()
    path.touch()
    unwatch = watch.watch_file(path, removed)
    watch.watch_file(path, remaining)
    unwatch()
    unwatch()
    assert await remaining.is_called_after(lambda: append(path))
    assert removed.count == 0


@linux
async def test_removing_the_last_watcher_ends_the_watch_until_the_next_one(watch: FileWatcher, tmp_path: Path) -> None:
    path, counter = tmp_path / "spool", CallCounter()
    path.touch()
    watch.watch_file(path, counter)()
    assert watch._calls == {}
    watch.watch_file(path, counter)
    assert await counter.is_called_after(lambda: append(path))


async def test_watching_a_missing_file_does_nothing(watch: FileWatcher, tmp_path: Path) -> None:
    watch.watch_file(tmp_path / "missing", lambda: None)()


@linux
async def test_an_overflow_of_the_kernels_queue_calls_all_watchers(watch: FileWatcher, tmp_path: Path) -> None:
    counter = CallCounter()
    watch.watch_folder(tmp_path, counter)
    reading, writing = os.pipe()
    os.write(writing, struct.pack("iIII", -1, 0x4000, 0, 0))
    real, watch._descriptor = watch._descriptor, reading
    watch._read()
    watch._descriptor = real
    os.close(reading)
    os.close(writing)
    assert counter.count == 1


@linux
async def test_what_a_change_starts_is_not_done_for_who_catches_up_or_watches(
    watch: FileWatcher, tmp_path: Path
) -> None:
    path, actors = tmp_path / "spool", [""]
    path.touch()
    with acting_as("token reader"):
        watch.watch_file(path, lambda: actors.append(str(current_actor())))
        append(path)
        watch.catch_up()
        assert actors == ["", "None"]
        append(path)
        for _ in range(500):
            if len(actors) > 2:
                break
            await asyncio.sleep(0.01)
    assert actors == ["", "None", "None"]
