"""`ao logs --daemon`: the daemon's log, read from its file without the daemon."""

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

DEFAULT_LINES = 100
"""Number of lines that are shown by default."""
_POLL_INTERVAL = 0.2
"""Seconds between two reads of a file that is followed."""
_FIELD = re.compile(r'([^\s="]+)=("(?:[^"\\]|\\.)*"|\S*)')
_ESCAPED = re.compile(r"\\(.)")
_COLOURS = {"warning": "yellow", "error": "red", "critical": "red"}


def show_log(path: str, session: str | None, lines: int | None, follow: bool, as_json: bool) -> None:
    """Print the last lines of the log, and with `follow` all new ones; with a session only those about it."""
    files = _open_rotated(path)
    if not files:
        raise NotFound(f"there is no log of the daemon: {path}", "ao start; in the foreground it logs there")
    line_count = DEFAULT_LINES if lines is None else lines
    last_lines: deque[str] = deque()
    for file in files:
        matching = deque((line for line in file if _is_about(line, session)), line_count - len(last_lines))
        last_lines.extendleft(reversed(matching))
        if len(last_lines) >= line_count:
            break
    for line in last_lines:
        _print(line, as_json)
    for file in files[1:] if follow else files:
        file.close()
    if not follow:
        return
    for line in _follow_lines(path, files[0]):
        if _is_about(line, session):
            _print(line, as_json)
            sys.stdout.flush()


def _open_rotated(path: str) -> list[TextIO]:
    """Return the open log files, newest first; a file that is rotated meanwhile is returned once."""
    files: dict[int, TextIO] = {}
    number, name = 0, path
    while not number or os.path.exists(name):
        with suppress(FileNotFoundError):  # the next one is not made yet, or this one was the last that is kept
            file = _open(name)
            if files.setdefault(_inode(file), file) is not file:
                file.close()
        number, name = number + 1, f"{path}.{number + 1}"
    return list(files.values())


def _open(path: str) -> TextIO:
    """Open a log file in which only a line feed ends a line."""
    return open(path, encoding="utf-8", errors="replace", newline="\n")


def _inode(file: TextIO) -> int:
    """Return the number that identifies a file whatever its name."""
    return os.fstat(file.fileno()).st_ino


def _follow_lines(path: str, file: TextIO) -> Iterator[str]:
    """Yield new whole lines for ever, also after the file was rotated, truncated or replaced."""
    newer: list[TextIO] = []
    partial = ""
    sys.stdout.flush()
    while True:
        while chunk := file.readline():
            partial += chunk
            if partial.endswith("\n"):
                yield partial
                partial = ""
        if newer:
            file.close()
            file, partial = newer.pop(), ""
            continue
        time.sleep(_POLL_INTERVAL)
        if newer := _newer_files(path, file):
            time.sleep(_POLL_INTERVAL)  # who had it open this moment may have said something more


def _newer_files(path: str, file: TextIO) -> list[TextIO]:
    """Return the log files after this one, newest first; empty if this one is still written to."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return []
    if status.st_ino == _inode(file) and status.st_size >= file.tell():
        return []
    files = _open_rotated(path)
    index = [_inode(old_file) for old_file in files].index(_inode(file)) if _inode(file) in map(_inode, files) else 0
    for old_file in files[index or 1 :]:
        old_file.close()
    return files[: index or 1]


def parse_fields(line: str) -> dict[str, str]:
    """Return a line's fields without control characters; a line of another form becomes the `event`."""
    text = out.clean(line).strip()
    parsed = {key: _unquote(value) for key, value in _FIELD.findall(text)}
    return parsed if text.startswith("timestamp=") and "event" in parsed else {"event": text}


def _unquote(value: str) -> str:
    if not value.startswith('"'):
        return value.replace("\\n", "\n")
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], value[1:-1])


def _is_about(line: str, session: str | None) -> bool:
    if session is None:
        return True
    name = parse_fields(line).get("session", "")
    return name == session or name.endswith(f"-{session}")


def _print(line: str, as_json: bool) -> None:
    entry = parse_fields(line)
    if as_json:
        out.print_json_line(entry)
        return
    if "timestamp" not in entry:
        print(out.clean(entry["event"]))
        return
    time, level = entry.pop("timestamp")[:19].replace("T", " "), entry.pop("level", "")
    event = out.one_line(entry.pop("event"))
    traceback = entry.pop("exception", "")
    details = " ".join(f"{key}={out.one_line(value)}" for key, value in entry.items())
    print(f"{time}  {out.paint(f'{level:<7}', *_style(level))}  {event}  {details}".rstrip())
    for trace_line in traceback.splitlines():
        print(f"    {out.clean(trace_line)}")


def _style(level: str) -> tuple[str, ...]:
    return (_COLOURS[level],) if level in _COLOURS else ()
