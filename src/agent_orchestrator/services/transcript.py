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
TAIL_BYTES = 256 << 10


def readable(data: bytes) -> str:
    """Terminal bytes as plain lines: what a carriage return overwrote is gone, what was rubbed out too."""
    text = _LEFT.sub("", _SEQUENCE.sub(b"", data).decode(errors="replace"))
    return "\n".join(_as_seen(line.rstrip("\r")) for line in text.split("\n"))


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


def whole(path: Path, chunk: int = 1 << 20) -> Iterator[bytes]:
    """A file in pieces."""
    try:
        with path.open("rb") as file:
            while data := file.read(chunk):
                yield data
    except OSError:
        return
