"""From a terminal's raw output to the text that is visible on it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

TAIL = 262_144
"""Bytes of output that are enough to know what a screen shows."""
_CLEARS = (b"\x1b[2J", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1bc")


async def visible_text(output: bytes, columns: int, rows: int) -> str:
    """What a terminal of this size shows after this output; lines without trailing spaces."""
    return await asyncio.to_thread(_render, output[-TAIL:], columns, rows)


async def text_of_log(log: Path, columns: int = 120, rows: int = 40) -> str:
    """What was last visible, by a terminal's log; nothing if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            output = file.read()
    except OSError:
        return ""
    return await visible_text(output, columns, rows)


def _render(output: bytes, columns: int, rows: int) -> str:
    import pyte

    class Screen(pyte.Screen):
        """Ignores what a text reader need not know and pyte trips over: answers to the program, private styles."""

        def select_graphic_rendition(self, *attributes: int, **private: Any) -> None:
            if not private:
                super().select_graphic_rendition(*attributes)

        def report_device_attributes(self, *_: Any, **__: Any) -> None:
            """Nobody to answer here."""

        def report_device_status(self, *_: Any, **__: Any) -> None:
            """Nobody to answer here."""

    screen = Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    begin = max(0, *(output.rfind(mark) for mark in _CLEARS))
    # A chunk that the emulator cannot stand costs that chunk only.
    for at in range(begin, len(output), 4096):
        try:
            stream.feed(output[at : at + 4096])
        except Exception:
            stream = pyte.ByteStream(screen)
    return "".join(line.rstrip() + "\n" for line in screen.display)
