"""What is read from raw terminal output: modes, scrollback, visible text, keys."""

from __future__ import annotations

import pytest

from agent_orchestrator.plugins.runtimes.holding.terminal import SCROLLBACK, Modes, Scrollback, without_answers
from agent_orchestrator.plugins.runtimes.keys import encoded
from agent_orchestrator.plugins.runtimes.render import visible_text


def test_modes_are_seen_wherever_the_output_is_split() -> None:
    output = b"a\x1bM\x1b[?2004h\x1b[31mb\x1b[?1;1049hc\x1b[?25l\x1b[?1049l\x1b"
    for size in range(1, len(output) + 1):
        modes = Modes()
        for at in range(0, len(output), size):
            modes.feed(output[at : at + size])
        assert set(modes.on) == {b"2004", b"1"}, size


def test_scrollback_is_bounded_and_remembers_the_modes_of_what_it_forgot() -> None:
    scrollback = Scrollback()
    scrollback.add(b"\x1b[?1049h")
    for number in range(20_000):
        scrollback.add(b"line %d of the output, long enough\r\n" % number)
    replay = scrollback.replay()
    assert len(replay) <= SCROLLBACK + 65_536 + 100
    assert replay.startswith(b"\x1b[?1049hline ")
    assert replay.endswith(b"line 19999 of the output, long enough\r\n")


def test_scrollback_repeats_no_question() -> None:
    scrollback = Scrollback()
    scrollback.add(b"a\x1b[6nb\x1b[cc\x1b[>0qd")
    assert scrollback.replay() == b"abcd"


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        (b"\x1b[12;5R", b""),
        (b"a\x1b[?62;22cb", b"ab"),
        (b"\x1b[0n", b""),
        (b"\x1b[A\x1b[5~", b"\x1b[A\x1b[5~"),
        (b"\x1b[", b"\x1b["),
    ],
)
def test_a_terminals_own_answers_are_no_keystrokes(keys: bytes, left: bytes) -> None:
    assert without_answers(keys) == left


@pytest.mark.parametrize(
    ("key", "sent"),
    [("C-c", b"\x03"), ("C-[", b"\x1b"), ("M-x", b"\x1bx"), ("C-Space", b"\0"), ("ü", "ü".encode()), ("yes", b"yes")],
)
def test_keys_are_sent_as_tmux_would(key: str, sent: bytes) -> None:
    assert encoded(key) == sent


@pytest.mark.anyio
async def test_what_an_emulator_trips_over_costs_no_text() -> None:
    output = b"one\r\n\x1b[>4;2m\x1b[?4m\x1b[?1;2c\x1b[38;2;1;2;3mtwo\x1b]0;title\x07\r\n\xff\xfe three \x1b[999;999;999z\r\nfour"
    lines = (await visible_text(output, 40, 10)).splitlines()
    assert [lines[0], lines[1], lines[3]] == ["one", "two", "four"]
    assert len(lines) == 10
