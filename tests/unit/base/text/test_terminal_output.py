"""Reading raw terminal output: modes, scrollback, visible text, keys."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.plugins.runtimes import screen_text
from agent_orchestrator.plugins.runtimes.keys import encode
from agent_orchestrator.plugins.runtimes.pty_holder.terminal import (
    MAX_SCROLLBACK_BYTES,
    Modes,
    Scrollback,
    without_answers,
)
from agent_orchestrator.plugins.runtimes.screen_text import MAX_ACCENTS, visible_text
from agent_orchestrator.views.session_details import SessionDetails
from tests.parts import make_core


def test_modes_are_recognized_wherever_the_output_is_split() -> None:
    output = b"a\x1bM\x1b[?2004h\x1b[31mb\x1b[?1;1049hc\x1b[?25l\x1b[?1049l\x1b"
    for size in range(1, len(output) + 1):
        modes = Modes()
        for at in range(0, len(output), size):
            modes.feed(output[at : at + size])
        assert set(modes.active) == {b"2004", b"1"}, size


def test_scrollback_is_bounded_and_keeps_the_modes_of_dropped_output() -> None:
    scrollback = Scrollback()
    scrollback.add(b"\x1b[?1049h")
    for number in range(20_000):
        scrollback.add(b"line %d of the output, long enough\r\n" % number)
    replay = scrollback.replay()
    assert len(replay) <= MAX_SCROLLBACK_BYTES + 65_536 + 100
    assert replay.startswith(b"\x1b[?1049hline ")
    assert replay.endswith(b"line 19999 of the output, long enough\r\n")


def test_scrollback_omits_terminal_queries() -> None:
    scrollback = Scrollback()
    scrollback.add(b"a\x1b[6nb\x1b[cc\x1b[>0qd")
    assert scrollback.replay() == b"abcd"


@pytest.mark.parametrize(
    ("keys", "remaining"),
    [
        (b"\x1b[12;5R", b""),
        (b"a\x1b[?62;22cb", b"ab"),
        (b"\x1b[0n", b""),
        (b"\x1b[A\x1b[5~", b"\x1b[A\x1b[5~"),
        (b"\x1b[", b"\x1b["),
    ],
)
def test_a_terminals_own_answers_are_no_keystrokes(keys: bytes, remaining: bytes) -> None:
    assert without_answers(keys) == remaining


@pytest.mark.parametrize(
    ("key", "sent"),
    [("C-c", b"\x03"), ("C-[", b"\x1b"), ("M-x", b"\x1bx"), ("C-Space", b"\0"), ("ü", "ü".encode()), ("yes", b"yes")],
)
def test_keys_are_sent_as_tmux_would(key: str, sent: bytes) -> None:
    assert encode(key) == sent


@pytest.mark.anyio
async def test_unknown_sequences_lose_no_text() -> None:
    output = b"one\r\n\x1b[>4;2m\x1b[?4m\x1b[?1;2c\x1b[38;2;1;2;3mtwo\x1b]0;title\x07\r\n\xff\xfe three \x1b[999;999;999z\r\nfour"
    lines = (await visible_text(output, 40, 10)).splitlines()
    assert [lines[0], lines[1], lines[3]] == ["one", "two", "four"]
    assert len(lines) == 10


@pytest.mark.anyio
@pytest.mark.parametrize("between", ["", "\x1b[m", "\x1b[0;31m"])
async def test_the_number_of_accents_per_character_is_limited(between: str) -> None:
    for before in ("x\u0301", "x" * 40):
        output = f"{before}{(chr(0x301) + between) * 2000}\r\nnext".encode()
        lines = (await visible_text(output, 40, 10)).splitlines()
        assert "next" in lines and max(map(len, lines)) <= 40 + MAX_ACCENTS


def test_excess_accents_are_dropped_before_rendering() -> None:
    assert len("".join(screen_text._with_few_marks(("a" + "\u0301" * 500) * 3))) == 3 * (1 + MAX_ACCENTS)


PIECES = st.one_of(
    st.sampled_from(
        [b"\r\n", b"\r\n" * 3, b"\r\n" * 7, b"\n", b"\r", b"\t", b"\x08", b"\x1b[31m", b"\x1b[0m", b"\x1b[?25l", b"\x1b[?2004h"]
    ),
    st.sampled_from([b"\x1b[2A", b"\x1b[1;1H", b"\x1b[K", b"\x1b[J", b"\x1b[2J", b"\x1bM", b"\x1b[2L", b"\x1b[?1049h", b"\x1b[2;3r"]),
    st.sampled_from([b"\x1b[4h", b"\x1b[?7l", b"\x1b[?6h", b"\x1b(0", b"\x0e", b"\x1b7", b"\x1b8", b"\x1b]0;title\x07", b"\x1b[20h"]),
    st.text("abcdefghij ", min_size=1, max_size=20).map(str.encode),
    st.integers(1, 30).map(lambda count: b"".join(b"line %d\r\n" % number for number in range(count))),
)  # fmt: skip


@given(st.lists(PIECES, max_size=40))
def test_a_screen_is_the_same_wherever_its_reading_begins(pieces: list[bytes]) -> None:
    output = b"".join(pieces)
    begin = max(0, *(output.rfind(mark) for mark in screen_text._CLEARS))
    with pytest.MonkeyPatch.context() as patch:
        screen = screen_text._render(output, 12, 4)
        patch.setattr(screen_text, "_render_start", lambda *_: begin)
        assert screen == screen_text._render(output, 12, 4)


def test_only_the_visible_end_of_a_long_output_is_emulated() -> None:
    output = b"".join(b"\x1b[32mline %d\x1b[0m\r\n" % number for number in range(10_000)) + b"\x1b[2Aabove\x1b[2B\r\n> "
    assert len(output) - screen_text._render_start(output, 40) < 4000


def test_a_rendered_screen_leaves_no_cells_for_the_garbage_collector() -> None:
    from pyte.screens import StaticDefaultDict

    def cells() -> int:
        return sum(isinstance(value, StaticDefaultDict) for value in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = cells()
        assert screen_text._render(b"some\r\nlines\r\n", 120, 40).startswith("some\nlines\n")
        assert cells() == before
    finally:
        gc.enable()


@pytest.mark.anyio
async def test_a_very_long_line_is_streamed_in_pieces(tmp_path: Path) -> None:
    core, nothing = make_core(tmp_path), cast(Any, None)
    log = core.home.terminal_log("app-x")
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * (5 << 20) + b"\nend\nno end")
    inspection = SessionDetails(core, nothing, nothing, nothing)
    pieces = [piece async for piece in inspection.log("app-x", raw=False, tail_lines=None, follow=False)]
    assert b"".join(pieces) == log.read_bytes()
    assert max(map(len, pieces)) <= 1 << 20
