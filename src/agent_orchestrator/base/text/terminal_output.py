"""Converts what a terminal showed to plain text: without escape sequences, overwritten lines in their final state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
    rb"|[\x00-\x07\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
_LEFTOVER_CONTROLS = re.compile("[\x1b\x80-\x9f]")
"""Incomplete escape sequences and one-character controls, which must not reach another terminal."""
_MOVE = re.compile(rb"\x1b\[(\d{0,4})(?:;\d{0,4})?([ABCEFGHdf])")
_MAX_SPACES = 200
_GAP = re.compile("\n(?:[ \t]*\n){3,}")
TAIL_BYTES = 256 << 10
"""Bytes that `tail` reads by default."""


def to_plain_text(data: bytes) -> str:
    """Return terminal output as plain lines, without text that a carriage return or backspace overwrote."""
    text = _LEFTOVER_CONTROLS.sub("", _CursorMoves().as_text(data).decode(errors="replace"))
    return _GAP.sub("\n\n", "\n".join(_resolve_overwrites(line.rstrip("\r")) for line in text.split("\n")))


class _CursorMoves:
    """Replaces the cursor movements of a full-screen program, which it uses instead of spaces and line ends."""

    def __init__(self) -> None:
        self._row: bytes | None = None

    def as_text(self, data: bytes) -> bytes:
        """Return the data without escape sequences: a move to the right becomes spaces, a move to another row a new line."""
        return _SEQUENCE.sub(self._replacement, data)

    def _replacement(self, sequence: re.Match[bytes]) -> bytes:
        """Return the replacement for one escape sequence or control character."""
        move = _MOVE.fullmatch(sequence[0])
        if move is None:
            return b""
        count, direction = move[1], move[2]
        if direction == b"C":
            return b" " * min(int(count or 1), _MAX_SPACES)
        if direction == b"G" and count in (b"", b"1"):
            return b"\r"
        if direction == b"G" or (direction in b"Hf" and count == self._row):
            return b" "
        self._row = count if direction in b"Hf" else None
        return b"\n"


def _resolve_overwrites(line: str) -> str:
    """Return what a line finally shows, after carriage returns and backspaces."""
    visible = line.rsplit("\r", 1)[-1] if "\r" in line else line
    if "\b" in visible:
        characters: list[str] = []
        for character in visible:
            if character != "\b":
                characters.append(character)
            elif characters:
                characters.pop()
        visible = "".join(characters)
    return visible.rstrip()


def tail(path: Path, limit: int = TAIL_BYTES) -> bytes:
    """Return the last bytes of a file, from the beginning of a line; b"" if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            data = file.read()
    except OSError:
        return b""
    _, newline, rest = data.partition(b"\n")
    return rest if size > limit and newline else data


def last_lines(path: Path, count: int = 20) -> str:
    """Return the last lines of a terminal's log that are not blank."""
    lines = [line for line in to_plain_text(tail(path, 16 << 10)).splitlines() if line.strip()]
    return "\n".join(lines[-count:])


def read_chunks(path: Path, chunk: int = 1 << 16) -> Iterator[bytes]:
    """Yield a file in chunks; nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            while data := file.read(chunk):
                yield data
    except OSError:
        return
