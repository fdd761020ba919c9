"""The screens of `ao top` as text, compared with those in `screens/`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from textual.pilot import Pilot

from agent_orchestrator.cli.top.app import Top
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon, session
from tests.unit.cli.top.top_screen import (
    DIFF,
    PULL,
    REVIEW,
    SCREENS,
    ScriptedBoard,
    screen_lines,
    styled_lines,
    top,
    wait_for_text,
    wait_until,
)

pytestmark = pytest.mark.anyio

FIRST = "Needs you (3)"


async def assert_screen(pilot: Pilot[None], name: str, board: Top, folder: Path) -> None:
    """Wait until the screen equals the stored one; otherwise write the actual screen for review."""
    stored = SCREENS / f"{name}.txt"
    actual, expected = folder / stored.name, stored.read_text(encoding="utf-8") if stored.exists() else ""

    def screen_text() -> str:
        return "".join(f"{line}\n" for line in screen_lines(board))

    with contextlib.suppress(AssertionError):  # reported with the screen, below
        await wait_until(pilot, lambda: screen_text() == expected)
    actual.write_text(screen_text(), encoding="utf-8")
    assert screen_text() == expected, f"to accept it: cp {actual} {stored}"


@pytest.mark.parametrize(
    ("name", "size", "keys", "words"),
    [
        ("list-80x24", (80, 24), [], [FIRST, "ran 41 tests"]),
        ("board-120x40", (120, 40), [], [FIRST, "ran 41 tests"]),
        ("narrow-40x12", (40, 12), ["down", "right"], ["app-login", "\n>"]),
        ("answer-80x24", (80, 24), ["a"], ["why: it is stale", "ran 41 tests"]),
        ("question-80x24", (80, 24), ["down", "a", "m", "y"], ["I need one.", "│ my ", "ran 41 tests"]),
        ("change-80x24", (80, 24), ["right", "right", "d"], ["+new"]),
        ("merge-80x24", (80, 24), ["right", "right", "m"], ["Merge the change", "ran 41 tests"]),
        ("keys-80x24", (80, 24), ["question_mark"], ["these keys", "ran │"]),
        ("filter-80x24", (80, 24), ["slash", "d", "o", "c"], ["In review (1)", "filter: doc", "ran 41 tests"]),
        ("filtered-nothing-80x24", (80, 24), ["slash", "x", "y", "enter"], ["Nothing matches"]),
    ],
)
async def test_a_screen_equals_the_stored_one(
    daemon: ScriptedDaemon, tmp_path: Path, name: str, size: tuple[int, int], keys: list[str], words: list[str]
) -> None:
    ScriptedBoard(daemon)
    daemon.route("GET", "/api/sessions/app-docs/diff", DIFF)
    daemon.route("GET", "/api/sessions/app-docs/review", REVIEW)
    board = top()
    async with board.run_test(size=size) as pilot:
        await wait_for_text(pilot, FIRST)
        await pilot.press(*keys)
        await wait_for_text(pilot, *words)
        await assert_screen(pilot, name, board, tmp_path)


async def test_many_sessions_can_be_scrolled(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    many = [session(f"s{n:02}", createdAt=f"2026-01-02T03:00:{n:02}Z", pr=PULL if n % 2 else None) for n in range(30)]
    ScriptedBoard(daemon, many)
    daemon.route("GET", ".*/screen", DaemonReply(b""))
    for name, size in (("many-80x24", (80, 24)), ("many-120x40", (120, 40))):
        board = top()
        async with board.run_test(size=size) as pilot:
            await wait_for_text(pilot, "Working (30)")
            await pilot.press(*["down"] * 19, "up")
            await wait_for_text(pilot, "app-s18")
            await assert_screen(pilot, name, board, tmp_path)


async def test_an_empty_board_is_shown(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    ScriptedBoard(daemon, [])
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "No sessions here.")
        await assert_screen(pilot, "empty-80x24", board, tmp_path)


async def test_an_unreachable_daemon_is_shown(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    ScriptedBoard(daemon)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, FIRST, "ran 41 tests")
        daemon.stop()
        await wait_for_text(pilot, "is away: it is not running")
        await assert_screen(pilot, "away-80x24", board, tmp_path)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_without_colours_the_text_is_the_same(
    daemon: ScriptedDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    ScriptedBoard(daemon)
    monkeypatch.setenv("NO_COLOR", "1")
    board = top()
    name = "list-80x24" if size == (80, 24) else "board-120x40"
    async with board.run_test(size=size) as pilot:
        await wait_for_text(pilot, FIRST, "ran 41 tests")
        await assert_screen(pilot, name, board, tmp_path)
        drawn = [(part, style) for line in styled_lines(board) for part, style in line]
        assert not [style for _, style in drawn if style.color and not style.color.is_default]
        assert next(part.strip() for part, style in drawn if style.reverse).startswith("! clean-up")


async def test_colours_are_those_of_the_terminal(daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    ScriptedBoard(daemon)
    monkeypatch.delenv("NO_COLOR", raising=False)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, FIRST)
        styles = {part.strip(): style for line in styled_lines(board) for part, style in line}
        assert styles["Needs you (3)"].color is not None and styles["Needs you (3)"].color.name == "yellow"
        assert styles["Working (2)"].bold
