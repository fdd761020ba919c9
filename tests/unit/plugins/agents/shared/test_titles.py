"""Window titles, read from what a terminal logged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_orchestrator.plugins.agents.shared.window_titles import WindowTitleReader
from agent_orchestrator.protocols import RunningLaunch
from tests.unit.plugins.agents.played_launch import NudgedChanges

pytestmark = pytest.mark.anyio


def titles(log: Path, cursors: Mapping[str, int] | None = None, begin: int = 0) -> WindowTitleReader:
    async def screen() -> str:
        return ""

    ended = asyncio.Event()
    run = RunningLaunch(
        "s", 1, 1, "1", log.parent, log.parent, log, None, {}, cursors or {}, NudgedChanges(ended), screen, ended
    )
    return WindowTitleReader(run, begin)


async def test_titles_are_read_once_also_when_cut_in_two(tmp_path: Path) -> None:
    log = tmp_path / "terminal.log"
    log.write_bytes(b"hello \x1b]0;one  \x07 text \x1b]2;two\x1b\\ more \x1b]0;thr")
    reader = titles(log)
    assert [title.text for title in reader.read()] == ["one", "two"]
    with log.open("ab") as file:
        file.write("ee …\x07".encode() + b"\x1b")
    (third,) = reader.read()
    assert third.text == "three …"
    with log.open("ab") as file:
        file.write(b"]0;four\x07")
    (fourth,) = reader.read()
    heard = reader.make_batch(fourth)
    assert (heard.source_id, heard.end) == ("title", log.stat().st_size)
    assert list(reader.read()) == []
    assert [title.text for title in titles(log, {"title": third.end}).read()] == ["four"]
    assert list(titles(log, begin=log.stat().st_size).read()) == []


async def test_a_log_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert list(titles(tmp_path / "none").read()) == []
