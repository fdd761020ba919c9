"""Following a check's output: every byte once, across runs, without polling while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.changes.checks.log import Log
from agent_orchestrator.changes.checks.log_follower import RERUN_NOTICE, follow_log
from agent_orchestrator.changes.checks.spec import Limits
from agent_orchestrator.protocols import LineCallback

pytestmark = pytest.mark.anyio


@pytest.fixture
async def watch() -> AsyncIterator[FileWatcher]:
    file_watch = FileWatcher()
    yield file_watch
    file_watch.close()


class Follower:
    """Reads a log while it is written; `ended` is the answer when it polls for the end."""

    def __init__(self, path: Path, watch: FileWatcher) -> None:
        self.text, self.poll_count, self.ended = b"", 0, False
        self.changed = asyncio.Event()
        self.task = asyncio.create_task(self._read(path, watch))

    async def _read(self, path: Path, watch: FileWatcher) -> None:
        async for chunk in follow_log(path, watch, self.changed, self._is_over):
            self.text += chunk

    def _is_over(self) -> bool:
        self.poll_count += 1
        return self.ended

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(60):
            while self.text != text:
                await asyncio.sleep(0.005)

    async def end(self) -> bytes:
        self.ended = True
        self.changed.set()
        async with asyncio.timeout(60):
            await self.task
        return self.text


def open_log(path: Path, **limits: int) -> Log:
    report: LineCallback = lambda _line: None  # noqa: E731
    return Log(path, Limits(**limits), report)


async def test_existing_output_is_read_first_and_new_output_follows(tmp_path: Path, watch: FileWatcher) -> None:
    path = tmp_path / "check.log"
    with open_log(path) as log:
        log.write(b"one\n")
        follower = Follower(path, watch)
        await follower.until(b"one\n")
        log.write(b"two\n")
        await follower.until(b"one\ntwo\n")
        log.write(b"end\n")
    assert await follower.end() == b"one\ntwo\nend\n"


async def test_following_waits_for_a_missing_log(tmp_path: Path, watch: FileWatcher) -> None:
    path = tmp_path / "check.log"
    follower = Follower(path, watch)
    await asyncio.sleep(0.05)
    with open_log(path) as log:
        log.write(b"here\n")
        await follower.until(b"here\n")
    assert await follower.end() == b"here\n"


async def test_following_continues_into_the_second_run_without_loss(tmp_path: Path, watch: FileWatcher) -> None:
    path = tmp_path / "check.log"
    first = open_log(path)
    first.write(b"first ")
    follower = Follower(path, watch)
    await follower.until(b"first ")
    first.write(b"run\n")
    first.close()
    with open_log(path) as second:  # before the follower can read
        second.write(b"second run, which is longer\n")
    assert await follower.end() == b"first run\n" + RERUN_NOTICE + b"second run, which is longer\n"


async def test_held_back_output_arrives_at_the_end(tmp_path: Path, watch: FileWatcher) -> None:
    path = tmp_path / "check.log"
    with open_log(path, log_head=4, log_tail=4) as log:
        log.write(b"0123456789")
        follower = Follower(path, watch)
        await follower.until(b"0123")
    output = await follower.end()
    assert output.startswith(b"0123\n") and output.endswith(b"6789") and b"left out" in output


async def test_an_unchanged_log_is_not_polled(tmp_path: Path, watch: FileWatcher) -> None:
    path = tmp_path / "check.log"
    path.write_bytes(b"x")
    follower = Follower(path, watch)
    await follower.until(b"x")
    await asyncio.sleep(0.05)
    polls_before = follower.poll_count
    await asyncio.sleep(0.5)
    assert follower.poll_count == polls_before
    await follower.end()
    assert not watch._calls, "its watches ended with it"
