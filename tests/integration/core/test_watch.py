"""Real files: what is appended, replaced, made and removed is told; what is not watched any more is not."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent_orchestrator.base.files.watch import Watch

pytestmark = pytest.mark.anyio

linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    watch = Watch()
    yield watch
    watch.close()


class Told:
    """Counts calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1

    async def after(self, change: Callable[[], object]) -> bool:
        """Is it told of this change, within a few seconds?"""
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


async def test_a_line_appended_is_seen(watch: Watch, tmp_path: Path) -> None:
    path, told = tmp_path / "spool", Told()
    path.touch()
    watch.file(path, told)
    assert await told.after(lambda: append(path))
    assert await told.after(lambda: append(path))


async def test_an_entry_is_seen_made_replaced_and_removed_and_no_other(watch: Watch, tmp_path: Path) -> None:
    path, told, folder = tmp_path / "config", Told(), Told()
    watch.entry(path, told)
    watch.folder(tmp_path, folder)
    for change in (path.touch, lambda: replace_by_rename(path), path.unlink):
        assert await told.after(change)
    before = told.count
    assert await folder.after((tmp_path / "other").touch)
    assert told.count == before


async def test_who_has_left_is_not_told_and_who_stays_is(watch: Watch, tmp_path: Path) -> None:
    path, gone, stays = tmp_path / "spool", Told(), Told()
    path.touch()
    leave = watch.file(path, gone)
    watch.file(path, stays)
    leave()
    leave()
    assert await stays.after(lambda: append(path))
    assert gone.count == 0


@linux
async def test_the_last_to_leave_ends_the_watch_and_it_can_begin_anew(watch: Watch, tmp_path: Path) -> None:
    path, told = tmp_path / "spool", Told()
    path.touch()
    watch.file(path, told)()
    assert watch._calls == {}
    watch.file(path, told)
    assert await told.after(lambda: append(path))


async def test_what_is_not_there_cannot_be_watched_and_does_no_harm(watch: Watch, tmp_path: Path) -> None:
    watch.file(tmp_path / "missing", lambda: None)()


@linux
async def test_changes_that_the_kernel_did_not_tell_are_looked_for(watch: Watch, tmp_path: Path) -> None:
    told = Told()
    watch.folder(tmp_path, told)
    reading, writing = os.pipe()
    os.write(writing, struct.pack("iIII", -1, 0x4000, 0, 0))
    real, watch._descriptor = watch._descriptor, reading
    watch._read()
    watch._descriptor = real
    os.close(reading)
    os.close(writing)
    assert told.count == 1
