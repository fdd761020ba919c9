"""`ao top`'s screens as text, compared with those in `screens/`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from textual.pilot import Pilot

from agent_orchestrator.cli.top.app import Top
from tests.unit.cli.scripted import Daemon, Reply, session
from tests.unit.cli.top.top_screen import DIFF, PULL, REVIEW, SCREENS, Board, shown, styled, text, top, until

pytestmark = pytest.mark.anyio

FIRST = "Needs you (3)"


async def same(pilot: Pilot[None], name: str, board: Top, folder: Path) -> None:
    """Wait for what is kept; what came instead is written down, to be looked at and, if it is right, to be kept."""
    kept = SCREENS / f"{name}.txt"
    now, wanted = folder / kept.name, kept.read_text(encoding="utf-8") if kept.exists() else ""

    def came() -> str:
        return "".join(f"{line}\n" for line in text(board))

    with contextlib.suppress(AssertionError):  # told with the screen, below
        await until(pilot, lambda: came() == wanted)
    now.write_text(came(), encoding="utf-8")
    assert came() == wanted, f"if it is right so: cp {now} {kept}"


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
async def test_screen(
    daemon: Daemon, tmp_path: Path, name: str, size: tuple[int, int], keys: list[str], words: list[str]
) -> None:
    Board(daemon)
    daemon.route("GET", "/api/sessions/app-docs/diff", DIFF)
    daemon.route("GET", "/api/sessions/app-docs/review", REVIEW)
    board = top()
    async with board.run_test(size=size) as pilot:
        await shown(pilot, FIRST)
        await pilot.press(*keys)
        await shown(pilot, *words)
        await same(pilot, name, board, tmp_path)


async def test_many_sessions_scroll(daemon: Daemon, tmp_path: Path) -> None:
    many = [session(f"s{n:02}", createdAt=f"2026-01-02T03:00:{n:02}Z", pr=PULL if n % 2 else None) for n in range(30)]
    Board(daemon, many)
    daemon.route("GET", ".*/screen", Reply(b""))
    for name, size in (("many-80x24", (80, 24)), ("many-120x40", (120, 40))):
        board = top()
        async with board.run_test(size=size) as pilot:
            await shown(pilot, "Working (30)")
            await pilot.press(*["down"] * 19, "up")
            await shown(pilot, "app-s18")
            await same(pilot, name, board, tmp_path)


async def test_without_sessions(daemon: Daemon, tmp_path: Path) -> None:
    Board(daemon, [])
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await shown(pilot, "No sessions here.")
        await same(pilot, "empty-80x24", board, tmp_path)


async def test_the_daemon_is_away(daemon: Daemon, tmp_path: Path) -> None:
    Board(daemon)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await shown(pilot, FIRST, "ran 41 tests")
        daemon.stop()
        await shown(pilot, "is away: it is not running")
        await same(pilot, "away-80x24", board, tmp_path)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_without_colour_the_same_is_said(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    Board(daemon)
    monkeypatch.setenv("NO_COLOR", "1")
    board = top()
    name = "list-80x24" if size == (80, 24) else "board-120x40"
    async with board.run_test(size=size) as pilot:
        await shown(pilot, FIRST, "ran 41 tests")
        await same(pilot, name, board, tmp_path)
        drawn = [(part, style) for line in styled(board) for part, style in line]
        assert not [style for _, style in drawn if style.color and not style.color.is_default]
        assert next(part.strip() for part, style in drawn if style.reverse).startswith("! clean-up")


async def test_with_colour_they_are_the_terminals_own(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    Board(daemon)
    monkeypatch.delenv("NO_COLOR", raising=False)
    board = top()
    async with board.run_test(size=(80, 24)) as pilot:
        await shown(pilot, FIRST)
        styles = {part.strip(): style for line in styled(board) for part, style in line}
        assert styles["Needs you (3)"].color is not None and styles["Needs you (3)"].color.name == "yellow"
        assert styles["Working (2)"].bold
