"""Terminal output: tables, colours, ages, JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.base.http_client import CompleteResponse

Row = Sequence[str]

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_WIDE_RANGES = (
    (0x1100, 0x115F),
    (0x2E80, 0xA4CF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE6F),
    (0xFF00, 0xFF60),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x3FFFD),
)
_INVISIBLE = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""Invisible characters: directions, zero widths, fillers, tags."""
_CONTROL = (
    {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
    | {code: None for first, last in _INVISIBLE for code in range(first, last + 1)}
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
)
_CONTROL_ONE_LINE = _CONTROL | dict.fromkeys((9, 10, 13, 0x2028, 0x2029), " ")


def clean(text: object) -> str:
    """Remove control characters from untrusted text, so that it cannot control the terminal."""
    return str(text).translate(_CONTROL)


def one_line(text: object) -> str:
    """Return untrusted text as one line without control characters."""
    return " ".join(str(text).translate(_CONTROL_ONE_LINE).split())


def reveal_hidden(text: str) -> str:
    """Return untrusted text with invisible characters written as code points; line ends are kept."""
    text = text.replace("\r\n", "\n")
    return text.translate(
        {ord(character): f"⟦U+{ord(character):04X}⟧" for character in set(text) if ord(character) in _CONTROL}
    )


def has_colours() -> bool:
    """Return whether standard output should have colours."""
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def paint(text: str, *styles: str) -> str:
    """Return the text in a style, or unchanged if there are no colours."""
    if not styles or not text or not has_colours():
        return text
    return f"\033[{';'.join(_COLOURS[style] for style in styles)}m{text}\033[0m"


def terminal_width() -> int:
    """Return the terminal's columns; a very large number without a terminal, so that nothing is cut."""
    if not sys.stdout.isatty():
        return 10_000
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


def display_width(text: str) -> int:
    """Return the number of columns that a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    count = 0
    for character in text:
        code = ord(character)
        if not unicodedata.combining(character) and code not in (0x200B, 0x200D, 0xFE0E, 0xFE0F):
            count += 2 if any(first <= code <= last for first, last in _WIDE_RANGES) else 1
    return count


def truncate(text: str, columns: int) -> str:
    """Cut a text to that many columns, with … at the cut."""
    if display_width(text) <= columns:
        return text
    remaining = columns - 1
    for index, character in enumerate(text):
        remaining -= display_width(character)
        if remaining < 0:
            text = text[:index]
            break
    return text.rstrip() + "…"


def pad(text: str, columns: int) -> str:
    """Pad a text with spaces to that many columns."""
    return text + " " * (columns - display_width(text))


def columns_for(rows: Iterable[Row], *, shrink: int | None = None, indent: int = 0) -> list[int]:
    """Return the column widths with which a row fits the terminal; the column `shrink` is cut first."""
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) + indent - terminal_width()
    cut_order = ([shrink] if shrink is not None else []) + sorted(range(len(widths)), key=lambda index: -widths[index])
    for index in cut_order:
        if excess <= 0:
            break
        cut = min(excess, max(0, widths[index] - 8))
        widths[index] -= cut
        excess -= cut
    return widths


def drop_columns(
    header: Row, rows: Sequence[Row], drop: Sequence[str], *, shrink: str, min_width: int = 8, indent: int = 0
) -> tuple[Row, list[Row]]:
    """Return header and rows without as many of the columns `drop`, in their order, as do not fit the terminal.

    The column `shrink` may be cut down to `min_width` before another column is dropped.
    """
    kept_columns = [*header]
    for name in drop:
        indexes = [header.index(column) for column in kept_columns]
        widths = [max(display_width(row[index]) for row in (header, *rows)) for index in indexes]
        if shrink in kept_columns:
            widths[kept_columns.index(shrink)] = min(widths[kept_columns.index(shrink)], min_width)
        if sum(widths) + 2 * (len(widths) - 1) + indent <= terminal_width():
            break
        kept_columns.remove(name)
    indexes = [header.index(column) for column in kept_columns]
    return kept_columns, [[row[index] for index in indexes] for row in rows]


def wrap(text: str, indent: str) -> list[str]:
    """Wrap a text to the terminal's width, each line with the indent."""
    import textwrap

    return textwrap.wrap(
        text,
        terminal_width(),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(header: Row, rows: Sequence[Row], *, shrink: int | None = None) -> list[str]:
    """Return the lines of a table as wide as the terminal allows."""
    clean_rows = [[one_line(cell) for cell in row] for row in rows]
    widths = columns_for([header, *clean_rows], shrink=shrink)
    lines = [paint(table_row(header, widths), "dim")]
    return lines + [table_row(row, widths) for row in clean_rows]


def table_row(row: Row, widths: Sequence[int]) -> str:
    """Return one row of a table."""
    return "  ".join(pad(truncate(cell, columns), columns) for cell, columns in zip(row, widths, strict=True)).rstrip()


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    text = "\n".join(lines)
    if text:
        print(text)


def print_json(data: Any) -> None:
    """Print a JSON document: indented on a terminal, else on one line. Control characters are escaped on a terminal."""
    if sys.stdout.isatty():
        print(escape_json(json.dumps(data, indent=2, ensure_ascii=False)))
    else:
        print(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def print_json_line(data: Any) -> None:
    """Print a JSON document on one line. Control characters are escaped on a terminal."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    print(escape_json(text) if sys.stdout.isatty() else text)


def escape_json(text: str) -> str:
    """Return equivalent JSON without characters that control a terminal."""
    unsafe = {character for character in text if ord(character) in _CONTROL}
    return text.translate({ord(character): json.dumps(character)[1:-1] for character in unsafe})


def print_body(answer: CompleteResponse) -> None:
    """Print an answer's JSON unchanged, or indented on a terminal."""
    if sys.stdout.isatty():
        print_json(answer.json())
    else:
        print(answer.text)


def print_note(text: str) -> None:
    """Print a message for the person on standard error, apart from the command's result."""
    print(f"ao: {one_line(text)}", file=sys.stderr, flush=True)


def author_text(item: dict[str, Any]) -> str:
    """Return the author, with a note if it may not or perhaps may not write to the repository."""
    notes = {"no": " (may not write to the repository)", "unknown": " (perhaps may not write to the repository)"}
    return f"{one_line(item['author'])}{notes.get(str(item.get('writeAccess')), '')}"


def age(time: object, now: datetime | None = None) -> str:
    """Return how long ago a time was: `40 s`, `12 min`, `3 h`, `5 d`; empty if it is unknown."""
    if not isinstance(time, str):
        return ""
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return ""
    seconds = int(((now or datetime.now(UTC)) - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (2 * size if unit == "d" else size):
            return f"{seconds // size} {unit}"
    return f"{max(seconds, 0)} s"


def duration(seconds: float) -> str:
    """Return a duration in its largest whole unit: `30m`, `20s`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def plural(count: int, noun: str) -> str:
    """Return the count with its noun: `1 session`, `2 sessions`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
