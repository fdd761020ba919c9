"""`ao logs --daemon`: the daemon's log, read from its file, so that it can be read while no daemon runs."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator
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
    try:
        file = _opened(path)
    except FileNotFoundError:
        raise NotFound(f"there is no log of the daemon: {path}", "ao start; in the foreground it logs there") from None
    wanted = (line for line in file if _about(line, session))
    for line in deque(wanted, LINES if lines is None else lines):
        _print(line, as_json)
    if not follow:
        file.close()
        return
    for line in _grown(path, file):
        if _about(line, session):
            _print(line, as_json)
            sys.stdout.flush()


def _opened(path: str) -> TextIO:
    """An entry ends where its line does: at no other character that somebody may have put into one."""
    return open(path, encoding="utf-8", errors="replace", newline="\n")


def _grown(path: str, file: TextIO) -> Iterator[str]:
    """Whole lines as they come, for ever; a file that was emptied or replaced is read from its beginning."""
    begun = ""
    sys.stdout.flush()
    while True:
        while piece := file.readline():
            begun += piece
            if begun.endswith("\n"):
                yield begun
                begun = ""
        time.sleep(_LOOK)
        try:
            now, mine = os.stat(path), os.fstat(file.fileno())
        except FileNotFoundError:
            continue
        if now.st_ino != mine.st_ino or now.st_size < file.tell():
            file.close()
            file, begun = _opened(path), ""


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
        print(json.dumps(entry, ensure_ascii=False))
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
