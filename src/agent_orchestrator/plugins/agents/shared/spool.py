"""What agents report: JSON lines appended to `$AO_SPOOL`, read from bytes to typed reports.

`SpoolReader` finds complete lines, `parse` turns one line into one report and never raises: what it cannot use becomes an
`InvalidReport` that says why. All keys but `event` are optional.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import NotPlain, plain
from agent_orchestrator.core.verdicts import VERDICTS, review_of
from agent_orchestrator.errors import machine_short
from agent_orchestrator.protocols import Activity
from agent_orchestrator.protocols.reports import (
    AckReport,
    ActivityReport,
    AskReport,
    ConversationReport,
    DoneReport,
    InvalidReport,
    LimitReport,
    OtherReport,
    PermissionReport,
    ProgressReport,
    ReplyReport,
    Report,
    ReviewReport,
    TookReport,
    TurnReport,
    UsageReport,
)
from agent_orchestrator.protocols.text import clean_text as clean_text

MAX_LINE = 256 * 1024
MAX_READ = 64 * 1024
"""Bytes that are read and recorded at once: others wait no longer than that takes."""
MAX_LINES = 500
"""Lines, likewise: the shortest are so many in as many bytes that others would wait long."""
MAX_UNREAD = 64
"""So many of the longest lines may wait to be read; more at once is a flood, or a file with nothing in it but a size."""
MAX_TEXT = 20_000
MAX_DEPTH = 16
MAX_NUMBER = 2**53

REPORTED = frozenset(Activity) - {Activity.EXITED, Activity.UNKNOWN}
"""The states an agent may report of itself; that it exited is its process's word."""


def parse(line: bytes) -> Report:
    """Turn one line of a spool into the report it is."""
    try:
        if len(line) > MAX_LINE:
            raise _Unusable(f"longer than {MAX_LINE} bytes")
        data = _decode(line)
        event = data.get("event")
        if not isinstance(event, str) or not event:
            raise _Unusable("has no `event`")
        fields = _Fields(data)
        read = _READERS.get(event)
        return read(fields) if read else OtherReport(_cut(event, 200), _tidy_object(data), fields.moment("time"))
    except _Unusable as problem:
        return InvalidReport(str(problem), _cut(line[:400].decode(errors="replace"), 200))


class _Unusable(Exception):
    """Why a line cannot be used."""


def _decode(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line, parse_constant=_no_constant)
    except RecursionError:
        raise _Unusable("is nested too deeply") from None
    except ValueError:
        raise _Unusable("is not JSON") from None
    if not isinstance(data, dict):
        raise _Unusable("is not a JSON object")
    return data


def _no_constant(name: str) -> None:
    raise _Unusable(f"has the number {name}")


class _Fields:
    """A line's keys, each read as the type it must have; absent and null are the same."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    @property
    def data(self) -> Mapping[str, Any]:
        """All of them as they came."""
        return self._data

    def text(self, key: str) -> str:
        value = self._data.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise _Unusable(f"`{key}` is not text")
        return _cut(value, MAX_TEXT)

    def exact(self, key: str) -> str:
        """A text with nothing taken out: what is decided about is what is run."""
        self.text(key)
        return str(self._data.get(key) or "")

    def number(self, key: str) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Unusable(f"`{key}` is not a number")
        if not 0 <= value <= MAX_NUMBER:
            raise _Unusable(f"`{key}` is out of range")
        return value

    def count(self, key: str) -> int | None:
        value = self.number(key)
        if value is not None and value != int(value):
            raise _Unusable(f"`{key}` is not a whole number")
        return None if value is None else int(value)

    def moment(self, key: str) -> datetime | None:
        """RFC 3339, or seconds since the epoch; without a zone it is UTC."""
        value = self._data.get(key)
        try:
            if isinstance(value, str):
                parsed = datetime.fromisoformat(value)
                return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
            seconds = self.number(key)
            return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            raise _Unusable(f"`{key}` is not a time") from None


def _cut(text: str, limit: int) -> str:
    text = clean_text(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _tidy_object(data: Mapping[str, Any]) -> dict[str, Any]:
    return {_cut(key, 200): _tidy(value, MAX_DEPTH) for key, value in data.items()}


def _tidy(value: object, depth: int) -> object:
    if depth == 0:
        raise _Unusable("is nested too deeply")
    if isinstance(value, str):
        return _cut(value, MAX_TEXT)
    if isinstance(value, float) and not math.isfinite(value):
        raise _Unusable("has a number that is out of range")
    if isinstance(value, list):
        return [_tidy(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {_cut(key, 200): _tidy(item, depth - 1) for key, item in value.items()}
    return value


def _activity(fields: _Fields) -> Report:
    state = fields.text("state") or Activity.ACTIVE
    if state not in REPORTED:
        raise _Unusable(f"`state` is {state[:40]!r}, not one of {', '.join(sorted(REPORTED))}")
    return ActivityReport(Activity(state), fields.text("detail"), fields.moment("time"))


def _ack(fields: _Fields) -> Report:
    return AckReport(fields.text("message") or None, fields.moment("time"))


def _progress(fields: _Fields) -> Report:
    return ProgressReport(
        fields.count("done"),
        fields.count("total"),
        fields.text("step"),
        fields.count("tests_passed"),
        fields.moment("time"),
    )


def _usage(fields: _Fields) -> Report:
    return UsageReport(
        fields.text("model"),
        fields.count("input") or 0,
        fields.count("output") or 0,
        fields.count("cache_read") or 0,
        fields.count("cache_write") or 0,
        fields.number("usd"),
        fields.moment("time"),
        fields.count("forge") or 0,
    )


def _reply(fields: _Fields) -> Report:
    text = fields.text("text").strip()
    if not text:
        raise _Unusable("`text` is empty")
    return ReplyReport(text, fields.text("comment") or None, fields.moment("time"))


def _review(fields: _Fields) -> Report:
    found = review_of(fields.data)
    if found is None:
        raise _Unusable(f"`verdict` is not one of {', '.join(VERDICTS)}")
    comments = tuple({key: _tidy(value, 2) for key, value in one.items()} for one in found.comments)
    return ReviewReport(found.verdict, _cut(found.body, MAX_TEXT), comments, fields.moment("time"))


def _permission(fields: _Fields) -> Report:
    return PermissionReport(
        fields.text("tool") or "a tool",
        fields.exact("command"),
        fields.text("reason"),
        fields.text("request"),
        fields.moment("time"),
    )


def _conversation(fields: _Fields) -> Report:
    conversation = fields.text("conversation")
    if not conversation:
        raise _Unusable("`conversation` is empty")
    return ConversationReport(conversation, fields.moment("time"))


_READERS: dict[str, Callable[[_Fields], Report]] = {
    "activity": _activity,
    "ack": _ack,
    "progress": _progress,
    "usage": _usage,
    "limit": lambda fields: LimitReport(fields.moment("resets_at"), fields.moment("time"), fields.text("model")),
    "ask": lambda fields: AskReport(fields.text("question"), fields.moment("time")),
    "done": lambda fields: DoneReport(fields.text("summary"), fields.moment("time")),
    "reply": _reply,
    "review": _review,
    "turn": lambda fields: TurnReport(fields.text("text"), fields.moment("time")),
    "took": lambda fields: TookReport(fields.text("text"), fields.moment("time")),
    "permission": _permission,
    "conversation": _conversation,
}


def line(report: Report) -> bytes:
    """A report as the line that `parse` reads."""
    if isinstance(report, OtherReport | InvalidReport):
        raise TypeError(f"{report} is not something to report")
    name = next(name for kind, name in _NAMES.items() if isinstance(report, kind))
    data: dict[str, Any] = {"event": name}
    for field in fields(report):
        value = getattr(report, field.name)
        if value is not None and value != "":
            data[field.name] = value.isoformat() if isinstance(value, datetime) else value
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"


_NAMES = {
    ActivityReport: "activity",
    AckReport: "ack",
    ProgressReport: "progress",
    UsageReport: "usage",
    LimitReport: "limit",
    AskReport: "ask",
    DoneReport: "done",
    ReplyReport: "reply",
    ReviewReport: "review",
    TurnReport: "turn",
    TookReport: "took",
    PermissionReport: "permission",
    ConversationReport: "conversation",
}


class SpoolReader:
    """Reads a spool from where it was left, complete lines only, at most `MAX_READ` bytes and `MAX_LINES` a call.

    `offset` is where the next line begins: store it with what was made of the lines and give it to the next reader. It never goes
    back. When the file was cut or replaced, what now stands in it is passed over (it may have been read before) and
    `take_problems` says so; lines appended later get offsets that no earlier line had.
    """

    def __init__(self, path: Path, offset: int = 0, longest: int = MAX_LINE) -> None:
        self.path = path
        self.offset = offset
        self.longest = longest
        self.more = False
        """There is more to read at once."""
        self.end = offset
        """Where the file ended when it was read last."""
        self._shift = 0
        self._pending = bytearray()
        self._scanned = offset
        self._inode: int | None = None
        self._problems: list[str] = []

    def read(self, *, final: bool = False) -> list[tuple[int, bytes]]:
        """The next lines, each with the offset of its beginning; `final`: nobody writes any more, the rest is a line too.

        A line over `longest` comes as its beginning, which `parse` calls invalid. So does a flood of them.
        """
        self.more = False
        try:
            with plain(self.path) as file:
                if flood := self._flood(file.fileno()):
                    return [flood]
                chunk = self._chunk(file.fileno())
        except NotPlain as error:
            self._note(str(error))
            return []
        except OSError as error:
            if short := machine_short(error):
                raise short from None  # what is in it is to be read later
            return []
        lines = self._split(chunk)
        if final and not self.more and self._pending:
            lines.append(self._end_line(self._scanned))
        return lines

    def take_problems(self) -> list[str]:
        """What went wrong with the file since the last call."""
        problems, self._problems = self._problems, []
        return problems

    def _chunk(self, descriptor: int) -> bytes:
        status = os.fstat(descriptor)
        known, self._inode = self._inode, status.st_ino
        position = self._scanned - self._shift
        if status.st_size < position:
            self._pass_over(f"was cut to {status.st_size} bytes", status.st_size)
        elif position and known not in (None, status.st_ino):
            self._pass_over("was replaced", status.st_size)
        else:
            os.lseek(descriptor, position, os.SEEK_SET)
            chunk = _first_lines(os.read(descriptor, MAX_READ))
            self.more = position + len(chunk) < status.st_size
            self.end = status.st_size + self._shift
            return chunk
        return b""

    def _flood(self, descriptor: int) -> tuple[int, bytes] | None:
        """More than anybody has to say: all of it counts as one line that is too long."""
        status = os.fstat(descriptor)
        unread = status.st_size - (self._scanned - self._shift)
        if unread <= MAX_UNREAD * self.longest:
            return None
        self._note(f"{self.path} grew by {unread} bytes at once, which are not read")
        os.lseek(descriptor, self._scanned - self._shift, os.SEEK_SET)
        self._keep(os.read(descriptor, self.longest + 1))
        self._inode, self._scanned = status.st_ino, self._scanned + unread
        return self._end_line(self._scanned)

    def _pass_over(self, what: str, size: int) -> None:
        self._note(f"{self.path} {what} after {self.offset} bytes were read; what stands in it now is not read")
        self.offset = self._scanned
        self._shift = self._scanned - size
        self._pending = bytearray()

    def _note(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    def _split(self, chunk: bytes) -> list[tuple[int, bytes]]:
        lines = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._keep(chunk[start:end])
            lines.append(self._end_line(self._scanned + end + 1))
            start = end + 1
        self._keep(chunk[start:])
        self._scanned += len(chunk)
        return [(offset, line) for offset, line in lines if line.strip()]

    def _keep(self, part: bytes) -> None:
        self._pending += part[: self.longest + 1 - len(self._pending)]

    def _end_line(self, following: int) -> tuple[int, bytes]:
        line = (self.offset, bytes(self._pending))
        self.offset, self._pending = following, bytearray()
        return line


def _first_lines(chunk: bytes) -> bytes:
    end = 0
    for _ in range(MAX_LINES):
        end = chunk.find(b"\n", end) + 1
        if not end:
            return chunk
    return chunk[:end]
