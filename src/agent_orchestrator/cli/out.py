"""How things look in a terminal: tables, colours, ages, JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.base.http_client import Answer

Row = Sequence[str]

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_WIDE = (
    (0x1100, 0x115F),
    (0x2E80, 0xA4CF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE30, 0xFE6F),
    (0xFF00, 0xFF60),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x3FFFD),
)
_UNSEEN = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""Characters that nobody sees: directions, zero widths, fillers, tags."""
_CONTROL = (
    {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
    | {code: None for first, last in _UNSEEN for code in range(first, last + 1)}
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
)
_CONTROL_ONE_LINE = _CONTROL | dict.fromkeys((9, 10, 13, 0x2028, 0x2029), " ")


def clean(text: object) -> str:
    """Text from outside without control characters, so that it cannot steer the terminal."""
    return str(text).translate(_CONTROL)


def one_line(text: object) -> str:
    """Text from outside as one line, without control characters."""
    return " ".join(str(text).translate(_CONTROL_ONE_LINE).split())


def seen(text: str) -> str:
    """Text from outside in which nothing is hidden: what nobody sees is written as its number. Ends of lines are ends of lines."""
    text = text.replace("\r\n", "\n")
    return text.translate({ord(one): f"⟦U+{ord(one):04X}⟧" for one in set(text) if ord(one) in _CONTROL})


def coloured() -> bool:
    """Whether standard output is to have colours."""
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


def paint(text: str, *styles: str) -> str:
    """Text in a style, where there are colours."""
    if not styles or not text or not coloured():
        return text
    return f"\033[{';'.join(_COLOURS[style] for style in styles)}m{text}\033[0m"


def width() -> int:
    """Columns of the terminal; very many where there is none, so that nothing is cut for a pipe."""
    if not sys.stdout.isatty():
        return 10_000
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


def cells(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    count = 0
    for character in text:
        code = ord(character)
        if not unicodedata.combining(character) and code not in (0x200B, 0x200D, 0xFE0E, 0xFE0F):
            count += 2 if any(low <= code <= high for low, high in _WIDE) else 1
    return count


def fit(text: str, columns: int) -> str:
    """A text cut to so many columns, with … where something is missing."""
    if cells(text) <= columns:
        return text
    room = columns - 1
    for place, character in enumerate(text):
        room -= cells(character)
        if room < 0:
            text = text[:place]
            break
    return text.rstrip() + "…"


def pad(text: str, columns: int) -> str:
    """A text filled up to so many columns."""
    return text + " " * (columns - cells(text))


def columns_for(rows: Iterable[Row], *, shrink: int | None = None, indent: int = 0) -> list[int]:
    """The width of each column so that a row fits the terminal; `shrink` is the column that gives way first."""
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    over = sum(widths) + 2 * (len(widths) - 1) + indent - width()
    order = ([shrink] if shrink is not None else []) + sorted(range(len(widths)), key=lambda index: -widths[index])
    for index in order:
        if over <= 0:
            break
        cut = min(over, max(0, widths[index] - 8))
        widths[index] -= cut
        over -= cut
    return widths


def fitting(
    header: Row, rows: Sequence[Row], drop: Sequence[str], *, shrink: str, least: int = 8, indent: int = 0
) -> tuple[Row, list[Row]]:
    """Header and rows without those of the columns `drop`, one after the other, that the terminal has no room for.

    The column `shrink` may be cut, down to `least`, before another one has to go."""
    kept = [*header]
    for name in drop:
        places = [header.index(one) for one in kept]
        widths = [max(cells(row[place]) for row in (header, *rows)) for place in places]
        if shrink in kept:
            widths[kept.index(shrink)] = min(widths[kept.index(shrink)], least)
        if sum(widths) + 2 * (len(widths) - 1) + indent <= width():
            break
        kept.remove(name)
    places = [header.index(one) for one in kept]
    return kept, [[row[place] for place in places] for row in rows]


def wrapped(text: str, indent: str) -> list[str]:
    """A text in lines as wide as the terminal, each with this in front of it."""
    import textwrap

    return textwrap.wrap(
        text, width(), initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def table(header: Row, rows: Sequence[Row], *, shrink: int | None = None) -> list[str]:
    """Lines of a table as wide as the terminal allows."""
    shown = [[one_line(cell) for cell in row] for row in rows]
    widths = columns_for([header, *shown], shrink=shrink)
    lines = [paint(line(header, widths), "dim")]
    return lines + [line(row, widths) for row in shown]


def line(row: Row, widths: Sequence[int]) -> str:
    """One row of a table."""
    return "  ".join(pad(fit(cell, columns), columns) for cell, columns in zip(row, widths, strict=True)).rstrip()


def show(lines: Iterable[str]) -> None:
    """Print lines."""
    text = "\n".join(lines)
    if text:
        print(text)


def print_json(data: Any) -> None:
    """Print a JSON document: indented for a person, on one line for a program. What would steer a terminal is escaped for it."""
    if sys.stdout.isatty():
        print(escaped(json.dumps(data, indent=2, ensure_ascii=False)))
    else:
        print(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def print_json_line(data: Any) -> None:
    """Print a JSON document of a series, on a line of its own. What would steer a terminal is escaped for it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    print(escaped(text) if sys.stdout.isatty() else text)


def escaped(text: str) -> str:
    """JSON that says the same, without a character that would steer a terminal."""
    strange = {letter for letter in text if ord(letter) in _CONTROL}
    return text.translate({ord(letter): json.dumps(letter)[1:-1] for letter in strange})


def print_body(answer: Answer) -> None:
    """Print an answer's JSON as it came, for a program; indented for a person."""
    if sys.stdout.isatty():
        print_json(answer.json())
    else:
        print(answer.text)


def note(text: str) -> None:
    """Tell the person something that is not the command's result."""
    print(f"ao: {one_line(text)}", file=sys.stderr, flush=True)


def author(each: dict[str, Any]) -> str:
    """Who said something, and whether he is a stranger to the repository."""
    strange = {"no": " (may not write to the repository)", "unknown": " (perhaps may not write to the repository)"}
    return f"{one_line(each['author'])}{strange.get(str(each.get('writeAccess')), '')}"


def age(time: object, now: datetime | None = None) -> str:
    """How long ago a time was: `40 s`, `12 min`, `3 h`, `5 d`; empty if unknown."""
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
    """As one writes it: `30m`, `20s`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def plural(count: int, noun: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
