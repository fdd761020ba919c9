"""Reading journals of any length without blocking other tasks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agent_orchestrator.plugins.agents.shared.journals import LINES_PER_STEP, Journal
from agent_orchestrator.plugins.agents.shared.spool import MAX_READ_BYTES
from tests.unit.plugins.agents.stepped_run import make_run

pytestmark = pytest.mark.anyio


async def turns_while_read(path: Path) -> tuple[int, int]:
    """Return the number of lines of a journal, and how often another task ran meanwhile."""
    turns, over = 0, False

    async def others() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    lines = [line async for line in Journal(path, make_run(path.parent)).lines()]
    over = True
    await task
    return len(lines), turns


async def test_other_tasks_run_between_many_short_lines(tmp_path: Path) -> None:
    path, many = tmp_path / "journal.jsonl", LINES_PER_STEP * 20
    path.write_text("{}\n" * many)
    lines, turns = await turns_while_read(path)
    assert lines == many and turns >= 20


async def test_other_tasks_run_while_an_endless_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("{}\n")
    os.truncate(path, MAX_READ_BYTES * 21)
    lines, turns = await turns_while_read(path)
    assert lines == 1 and turns >= 20
