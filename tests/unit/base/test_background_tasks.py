"""Background tasks: all end when their owner closes, also those begun meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from agent_orchestrator.base.background_tasks import Tasks

pytestmark = pytest.mark.anyio


async def test_a_task_begun_while_another_is_cancelled_is_cancelled_too() -> None:
    tasks, ended = Tasks(), list[str]()

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    def begin_next(_first: object) -> None:
        tasks.spawn(wait("begun after it"))

    async def begin_while_it_ends() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tasks.spawn(wait("by one that ended"))
            await asyncio.sleep(0)

    tasks.spawn(wait("first")).add_done_callback(begin_next)
    tasks.spawn(begin_while_it_ends())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await tasks.close()
    assert sorted(ended) == ["begun after it", "by one that ended", "first"]


async def test_a_failing_task_does_not_keep_others_from_finishing() -> None:
    tasks, ended = Tasks(), list[str]()

    async def fail() -> None:
        raise LookupError("no")

    async def go_on() -> None:
        await asyncio.sleep(0)
        ended.append("went on")

    tasks.spawn(fail())
    tasks.spawn(go_on())
    await tasks.finish()
    assert ended == ["went on"]
