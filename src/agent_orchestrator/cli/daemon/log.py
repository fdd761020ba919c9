"""`ao logs --daemon`: the daemon's log, read from its file, so that it can be read while no daemon runs."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

from agent_orchestrator.cli import out
from agent_orchestrator.errors import NotFound

LINES = 100
"""Shown where nobody says how many."""
_LOOK = 0.2
"""Seconds between two looks at a file that is followed."""
_FIELD = re.compile(r'([^\s="]+)=("(?:[^"\\]|\\.)*"|\S*)')
_ESCAPED = re.compile(r"\\(.)")
_COLOURS = {"warning": "yellow", "error": "red", "critical": "red"}


def show(path: str, session: str | None, lines: int | None, follow: bool, as_json: bool) -> None:
    """The last lines of it, and with `follow` whatever comes; with a session only what is about that one."""
    files = _opened(path)
    if not files:
        raise NotFound(f"there is no log of the daemon: {path}", "ao start; in the foreground it logs there")
    wanted = LINES if lines is None else lines
    found: deque[str] = deque()
    for file in files:
        part = deque((line for line in file if _about(line, session)), wanted - len(found))
        found.extendleft(reversed(part))
        if len(found) >= wanted:
            break
    for line in found:
        _print(line, as_json)
    for file in files[1:] if follow else files:
        file.close()
    if not follow:
        return
    for line in _grown(path, files[0]):
        if _about(line, session):
            _print(line, as_json)
            sys.stdout.flush()


def _opened(path: str) -> list[TextIO]:
    """The file and those that were turned over before it, the newest first; one that is turned over meanwhile is there once."""
    files: dict[int, TextIO] = {}
    number, name = 0, path
    while not number or os.path.exists(name):
        with suppress(FileNotFoundError):  # the next one is not made yet, or this one was the last that is kept
            file = _open(name)
            if files.setdefault(_number(file), file) is not file:
                file.close()
        number, name = number + 1, f"{path}.{number + 1}"
    return list(files.values())


def _open(path: str) -> TextIO:
    """An entry ends where its line does: at no other character that somebody may have put into one."""
    return open(path, encoding="utf-8", errors="replace", newline="\n")


def _number(file: TextIO) -> int:
    """What tells a file from another, whatever its name is by now."""
    return os.fstat(file.fileno()).st_ino


def _grown(path: str, file: TextIO) -> Iterator[str]:
    """Whole lines as they come, for ever: of this file, and when it was turned over, emptied or replaced, of those after it."""
    after: list[TextIO] = []
    begun = ""
    sys.stdout.flush()
    while True:
        while piece := file.readline():
            begun += piece
            if begun.endswith("\n"):
                yield begun
                begun = ""
        if after:
            file.close()
            file, begun = after.pop(), ""
            continue
        time.sleep(_LOOK)
        if after := _newer(path, file):
            time.sleep(_LOOK)  # who had it open this moment may have said something more


def _newer(path: str, file: TextIO) -> list[TextIO]:
    """Those after this file, the newest first; none: it is still the one that is written to."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return []
    if now.st_ino == _number(file) and now.st_size >= file.tell():
        return []
    files = _opened(path)
    place = [_number(each) for each in files].index(_number(file)) if _number(file) in map(_number, files) else 0
    for each in files[place or 1 :]:
        each.close()
    return files[: place or 1]


def fields(line: str) -> dict[str, str]:
    """A line's fields, without what would steer a terminal; what is not written in them is the `event` as a whole."""
    text = out.clean(line).strip()
    found = {key: _unquoted(value) for key, value in _FIELD.findall(text)}
    return found if text.startswith("timestamp=") and "event" in found else {"event": text}


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value.replace("\\n", "\n")
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value[1:-1])


def _about(line: str, session: str | None) -> bool:
    if session is None:
        return True
    of = fields(line).get("session", "")
    return of == session or of.endswith(f"-{session}")


def _print(line: str, as_json: bool) -> None:
    entry = fields(line)
    if as_json:
        out.print_json_line(entry)
        return
    if "timestamp" not in entry:
        print(out.clean(entry["event"]))
        return
    when, level = entry.pop("timestamp")[:19].replace("T", " "), entry.pop("level", "")
    said = out.one_line(entry.pop("event"))
    traceback = entry.pop("exception", "")
    rest = " ".join(f"{key}={out.one_line(value)}" for key, value in entry.items())
    print(f"{when}  {out.paint(f'{level:<7}', *_style(level))}  {said}  {rest}".rstrip())
    for each in traceback.splitlines():
        print(f"    {out.clean(each)}")


def _style(level: str) -> tuple[str, ...]:
    return (_COLOURS[level],) if level in _COLOURS else ()
