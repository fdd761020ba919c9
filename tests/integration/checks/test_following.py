"""Following a check's output: everything once, from one run into the next, and no look while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.changes.checks.log import Log
from agent_orchestrator.changes.checks.log_tail import RERUN_NOTICE, follow
from agent_orchestrator.changes.checks.spec import Limits
from agent_orchestrator.protocols import Report

pytestmark = pytest.mark.anyio


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    made = Watch()
    yield made
    made.close()


class Follower:
    """Reads along; `ended` is what it is told when it asks."""

    def __init__(self, path: Path, watch: Watch) -> None:
        self.text, self.asked, self.ended = b"", 0, False
        self.changed = asyncio.Event()
        self.task = asyncio.create_task(self._read(path, watch))

    async def _read(self, path: Path, watch: Watch) -> None:
        async for piece in follow(path, watch, self.changed, self._over):
            self.text += piece

    def _over(self) -> bool:
        self.asked += 1
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


def log_of(path: Path, **limits: int) -> Log:
    report: Report = lambda _line: None  # noqa: E731
    return Log(path, Limits(**limits), report)


async def test_what_is_there_comes_first_and_what_comes_follows(tmp_path: Path, watch: Watch) -> None:
    path = tmp_path / "check.log"
    with log_of(path) as log:
        log.write(b"one\n")
        follower = Follower(path, watch)
        await follower.until(b"one\n")
        log.write(b"two\n")
        await follower.until(b"one\ntwo\n")
        log.write(b"end\n")
    assert await follower.end() == b"one\ntwo\nend\n"


async def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path, watch: Watch) -> None:
    path = tmp_path / "check.log"
    follower = Follower(path, watch)
    await asyncio.sleep(0.05)
    with log_of(path) as log:
        log.write(b"here\n")
        await follower.until(b"here\n")
    assert await follower.end() == b"here\n"


async def test_the_second_run_follows_the_first_and_nothing_of_either_is_missed(tmp_path: Path, watch: Watch) -> None:
    path = tmp_path / "check.log"
    first = log_of(path)
    first.write(b"first ")
    follower = Follower(path, watch)
    await follower.until(b"first ")
    first.write(b"run\n")
    first.close()
    with log_of(path) as second:  # before the follower had a chance to look
        second.write(b"second run, which is longer\n")
    assert await follower.end() == b"first run\n" + RERUN_NOTICE + b"second run, which is longer\n"


async def test_output_that_is_held_back_comes_with_the_end(tmp_path: Path, watch: Watch) -> None:
    path = tmp_path / "check.log"
    with log_of(path, log_head=4, log_tail=4) as log:
        log.write(b"0123456789")
        follower = Follower(path, watch)
        await follower.until(b"0123")
    told = await follower.end()
    assert told.startswith(b"0123\n") and told.endswith(b"6789") and b"left out" in told


async def test_while_nothing_happens_nothing_is_looked_at(tmp_path: Path, watch: Watch) -> None:
    path = tmp_path / "check.log"
    path.write_bytes(b"x")
    follower = Follower(path, watch)
    await follower.until(b"x")
    await asyncio.sleep(0.05)
    asked = follower.asked
    await asyncio.sleep(0.5)
    assert follower.asked == asked
    await follower.end()
    assert not watch._calls, "its watches ended with it"
