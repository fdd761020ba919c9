"""From a terminal's raw output to the text that is visible on it."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TAIL = 262_144
"""Bytes of output that are enough to know what a screen shows."""
MOST_MARKS = 8
"""Accents on one character: each is set in a time that grows with how many there are."""
_READING = ThreadPoolExecutor(1, "screens")
"""One screen at a time: a daemon with many that change has its other threads for other things."""
_CLEARS = (b"\x1b[2J", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1bc")
_MOVES = re.compile(rb"\x1b(?!\[[\d;:]*m|\[\?(?:12|25|1004|2004|2026)[hl])|[\x0b\x0c\x0e\x0f]|\xc2[\x80-\x9f]")
"""What may do more than print: any sequence but those for colours, the cursor's looks and pasting."""
_LASTS = re.compile(rb"\x1b\[[\d;]*[rg]|\x1b\[\??[\d;]*[hl]|\x1b[()*+#%H78sc]|[\x0e\x0f]|\xc2[\x80-\x9f]")
"""What may change how later output is printed, wherever it is printed."""
_HARMLESS = re.compile(rb"\x1b\[\?(?:1|9|12|25|47|66|100[0-6]|1015|1016|1049|2004|2026|2031)[hl]")


async def visible_text(output: bytes, columns: int, rows: int) -> str:
    """What a terminal of this size shows after this output; lines without trailing spaces."""
    return await asyncio.get_running_loop().run_in_executor(_READING, _render, output[-TAIL:], columns, rows)


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

        def draw(self, data: str) -> None:
            super().draw(data if data.isascii() else "".join(_with_few_marks(data)))
            x, y = (self.cursor.x - 1, self.cursor.y) if self.cursor.x else (self.columns - 1, self.cursor.y - 1)
            cell = self.buffer[y][x] if y in self.buffer else None
            if cell is not None and len(cell.data) > MOST_MARKS:
                self.buffer[y][x] = cell._replace(data=cell.data[:MOST_MARKS])

        def select_graphic_rendition(self, *attributes: int, **private: Any) -> None:
            if not private:
                super().select_graphic_rendition(*attributes)

        def report_device_attributes(self, *_: Any, **__: Any) -> None:
            """Nobody to answer here."""

        def report_device_status(self, *_: Any, **__: Any) -> None:
            """Nobody to answer here."""

    screen = Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    begin = _beginning(output, rows)
    # A chunk that the emulator cannot stand costs that chunk only.
    for at in range(begin, len(output), 4096):
        try:
            stream.feed(output[at : at + 4096])
        except Exception:
            stream = pyte.ByteStream(screen)
    text = "".join(line.rstrip() + "\n" for line in screen.display)
    screen.buffer.clear()  # thousands of cells, in a circle with the emulator: not left for the collector to find
    return text


def _with_few_marks(text: str) -> Iterator[str]:
    """A text with so many accents in a row at most."""
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MOST_MARKS:
            yield character


def _beginning(output: bytes, rows: int) -> int:
    """Where to begin, to see the same as from the start: at the last clear, or later where so many plain lines follow that nothing
    of before is left on the screen. An emulator takes a second for what an agent prints in a minute.
    """
    begin = max(0, *(output.rfind(mark) for mark in _CLEARS))
    end, most = len(output), 2 * rows + 1
    for move in reversed([begin, *(found.end() for found in _MOVES.finditer(output, begin))]):
        if output.count(b"\r\n", move, end) > most:
            start = end
            for _ in range(most):
                start = output.rfind(b"\r\n", move, start)
            lasting = (found for found in _LASTS.finditer(output, begin, start))
            return start + 2 if all(_HARMLESS.match(output, found.start()) for found in lasting) else begin
        end = move
    return begin
