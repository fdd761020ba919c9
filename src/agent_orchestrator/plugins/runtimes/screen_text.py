"""Turns a terminal's raw output into the text that is visible on it."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TAIL_BYTES = 262_144
"""Bytes of output that are enough to know what a screen shows."""
MAX_ACCENTS = 8
"""Most accents on one character: the time to set each grows with their number."""
_EXECUTOR = ThreadPoolExecutor(1, "screens")
"""Renders one screen at a time, so that many changing screens do not occupy the daemon's other threads."""
_CLEARS = (b"\x1b[2J", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1bc")
_NON_PRINTING = re.compile(rb"\x1b(?!\[[\d;:]*m|\[\?(?:12|25|1004|2004|2026)[hl])|[\x0b\x0c\x0e\x0f]|\xc2[\x80-\x9f]")
"""Matches what may do more than print: any sequence except colours, cursor styles and paste modes."""
_LASTING_CHANGE = re.compile(rb"\x1b\[[\d;]*[rg]|\x1b\[\??[\d;]*[hl]|\x1b[()*+#%H78sc]|[\x0e\x0f]|\xc2[\x80-\x9f]")
"""Matches what may change how later output is printed, wherever it is printed."""
_HARMLESS_MODE = re.compile(rb"\x1b\[\?(?:1|9|12|25|47|66|100[0-6]|1015|1016|1049|2004|2026|2031)[hl]")
"""Matches modes that do not change how text is printed."""


async def visible_text(output: bytes, columns: int, rows: int) -> str:
    """Return what a terminal of this size shows after this output; lines without trailing spaces."""
    return await asyncio.get_running_loop().run_in_executor(_EXECUTOR, _render, output[-TAIL_BYTES:], columns, rows)


async def text_of_log(log: Path, columns: int = 120, rows: int = 40) -> str:
    """Return what was last visible, from a terminal's log; "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            output = file.read()
    except OSError:
        return ""
    return await visible_text(output, columns, rows)


def _render(output: bytes, columns: int, rows: int) -> str:
    """Return what an emulated terminal of this size shows after this output."""
    import pyte

    class EmulatedScreen(pyte.Screen):
        """Ignores sequences that do not change the text and make pyte fail: device reports and private styles."""

        def draw(self, data: str) -> None:
            super().draw(data if data.isascii() else "".join(_with_few_marks(data)))
            x, y = (self.cursor.x - 1, self.cursor.y) if self.cursor.x else (self.columns - 1, self.cursor.y - 1)
            cell = self.buffer[y][x] if y in self.buffer else None
            if cell is not None and len(cell.data) > MAX_ACCENTS:
                self.buffer[y][x] = cell._replace(data=cell.data[:MAX_ACCENTS])

        def select_graphic_rendition(self, *attributes: int, **private: Any) -> None:
            if not private:
                super().select_graphic_rendition(*attributes)

        def report_device_attributes(self, *_: Any, **__: Any) -> None:
            """Do nothing: no program waits for the report."""

        def report_device_status(self, *_: Any, **__: Any) -> None:
            """Do nothing: no program waits for the report."""

    screen = EmulatedScreen(columns, rows)
    stream = pyte.ByteStream(screen)
    begin = _render_start(output, rows)
    # An error of the emulator loses only the rest of this chunk.
    for offset in range(begin, len(output), 4096):
        try:
            stream.feed(output[offset : offset + 4096])
        except Exception:
            stream = pyte.ByteStream(screen)
    text = "".join(line.rstrip() + "\n" for line in screen.display)
    screen.buffer.clear()  # thousands of cells in a reference cycle with the emulator: freed now, not by the garbage collector
    return text


def _with_few_marks(text: str) -> Iterator[str]:
    """Yield the text's characters, with at most `MAX_ACCENTS` accents in a row."""
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MAX_ACCENTS:
            yield character


def _render_start(output: bytes, rows: int) -> int:
    """Return the offset at which rendering can begin with the same result as from the start.

    It is the last clear, or later if so many plain lines follow that nothing before them is left on the screen: an emulator takes a
    second for what an agent prints in a minute.
    """
    begin = max(0, *(output.rfind(mark) for mark in _CLEARS))
    end, line_limit = len(output), 2 * rows + 1
    for position in reversed([begin, *(match.end() for match in _NON_PRINTING.finditer(output, begin))]):
        if output.count(b"\r\n", position, end) > line_limit:
            start = end
            for _ in range(line_limit):
                start = output.rfind(b"\r\n", position, start)
            lasting_changes = (match for match in _LASTING_CHANGE.finditer(output, begin, start))
            return start + 2 if all(_HARMLESS_MODE.match(output, match.start()) for match in lasting_changes) else begin
        end = position
    return begin
