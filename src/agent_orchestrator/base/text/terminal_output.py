"""What a terminal showed, readable: escape sequences gone, overwritten lines as they ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
    rb"|[\x00-\x07\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
_LEFT = re.compile("[\x1b\x80-\x9f]")
"""Halves of escape sequences, and those of one character: no terminal shall obey them."""
_MOVE = re.compile(rb"\x1b\[(\d{0,4})(?:;\d{0,4})?([ABCEFGHdf])")
_FARTHEST = 200
_GAP = re.compile("\n(?:[ \t]*\n){3,}")
TAIL_BYTES = 256 << 10


def readable(data: bytes) -> str:
    """Terminal bytes as plain lines: what a carriage return overwrote is gone, what was rubbed out too."""
    text = _LEFT.sub("", _Moves().as_text(data).decode(errors="replace"))
    return _GAP.sub("\n\n", "\n".join(_as_seen(line.rstrip("\r")) for line in text.split("\n")))


class _Moves:
    """What a full-screen program writes: it moves the cursor instead of printing spaces and ends of lines."""

    def __init__(self) -> None:
        self._row: bytes | None = None

    def as_text(self, data: bytes) -> bytes:
        """Without sequences: to the right is spaces, to another row is a new line."""
        return _SEQUENCE.sub(self._meaning, data)

    def _meaning(self, found: re.Match[bytes]) -> bytes:
        move = _MOVE.fullmatch(found[0])
        if move is None:
            return b""
        count, way = move[1], move[2]
        if way == b"C":
            return b" " * min(int(count or 1), _FARTHEST)
        if way == b"G" and count in (b"", b"1"):
            return b"\r"
        if way == b"G" or (way in b"Hf" and count == self._row):
            return b" "
        self._row = count if way in b"Hf" else None
        return b"\n"


def _as_seen(line: str) -> str:
    shown = line.rsplit("\r", 1)[-1] if "\r" in line else line
    if "\b" in shown:
        kept: list[str] = []
        for character in shown:
            if character != "\b":
                kept.append(character)
            elif kept:
                kept.pop()
        shown = "".join(kept)
    return shown.rstrip()


def tail(path: Path, limit: int = TAIL_BYTES) -> bytes:
    """The last bytes of a file, from a line's beginning; nothing if it is not there."""
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
    """The last lines that say something."""
    lines = [line for line in readable(tail(path, 16 << 10)).splitlines() if line.strip()]
    return "\n".join(lines[-count:])


def whole(path: Path, chunk: int = 1 << 16) -> Iterator[bytes]:
    """A file in pieces."""
    try:
        with path.open("rb") as file:
            while data := file.read(chunk):
                yield data
    except OSError:
        return
