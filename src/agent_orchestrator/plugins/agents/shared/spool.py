"""Parses what agents report: JSON lines appended to `$AO_SPOOL`, read as bytes and returned as typed reports.

`SpoolReader` returns complete lines; `parse` turns a line into a report and never raises: a line that it cannot use becomes an
`InvalidReport` with the reason. All keys but `event` are optional. Look here when a report is refused or missing.
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

from agent_orchestrator.base.files.safe import UnsafePath, open_regular_file
from agent_orchestrator.core.turn_text.review_parser import VERDICTS, parse_review
from agent_orchestrator.errors import resource_shortage
from agent_orchestrator.protocols import Activity
from agent_orchestrator.protocols.reports import (
    AckReport,
    ActivityReport,
    AskReport,
    ConversationReport,
    DoneReport,
    InvalidReport,
    LimitReport,
    MessageTakenReport,
    OtherReport,
    PermissionReport,
    ProgressReport,
    ReplyReport,
    Report,
    ReviewReport,
    TurnReport,
    UsageReport,
)
from agent_orchestrator.protocols.text import clean_text as clean_text

MAX_LINE_BYTES = 256 * 1024
MAX_READ_BYTES = 64 * 1024
"""The number of bytes that are read and recorded in one step; other work waits as long as a step takes."""
MAX_LINES = 500
"""The number of lines in one step: `MAX_READ_BYTES` of the shortest lines would take too long."""
MAX_UNREAD_LINES = 64
"""The number of longest lines that may wait to be read; more at once is a flood, or a sparse file."""
MAX_TEXT_LENGTH = 20_000
MAX_DEPTH = 16
MAX_NUMBER = 2**53

REPORTABLE_STATES = frozenset(Activity) - {Activity.EXITED, Activity.UNKNOWN}
"""The states that an agent may report of itself; that it exited is known from its process."""


def parse(line: bytes) -> Report:
    """Return the report in one line of a spool; an `InvalidReport` if the line cannot be used."""
    try:
        if len(line) > MAX_LINE_BYTES:
            raise _Unusable(f"longer than {MAX_LINE_BYTES} bytes")
        data = _decode(line)
        event = data.get("event")
        if not isinstance(event, str) or not event:
            raise _Unusable("has no `event`")
        fields = _Fields(data)
        reader = _READERS.get(event)
        return (
            reader(fields) if reader else OtherReport(_cut(event, 200), _sanitize_object(data), fields.moment("time"))
        )
    except _Unusable as error:
        return InvalidReport(str(error), _cut(line[:400].decode(errors="replace"), 200))


class _Unusable(Exception):
    """The reason why a line cannot be used."""


def _decode(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; raise `_Unusable` if it is not one."""
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except RecursionError:
        raise _Unusable("is nested too deeply") from None
    except ValueError:
        raise _Unusable("is not JSON") from None
    if not isinstance(data, dict):
        raise _Unusable("is not a JSON object")
    return data


def _refuse_constant(name: str) -> None:
    """Raise `_Unusable` for NaN and the infinities."""
    raise _Unusable(f"has the number {name}")


class _Fields:
    """The keys of a line, each returned as the type that it must have; a missing key and null are the same."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    @property
    def data(self) -> Mapping[str, Any]:
        """Return all values unchanged."""
        return self._data

    def text(self, key: str) -> str:
        """Return a text without control characters, cut at `MAX_TEXT_LENGTH` characters; "" if missing."""
        value = self._data.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise _Unusable(f"`{key}` is not text")
        return _cut(value, MAX_TEXT_LENGTH)

    def exact(self, key: str) -> str:
        """Return a text unchanged, since a decision must be about exactly what is run."""
        self.text(key)
        return str(self._data.get(key) or "")

    def number(self, key: str) -> float | None:
        """Return a number between 0 and `MAX_NUMBER`, or None if missing."""
        value = self._data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Unusable(f"`{key}` is not a number")
        if not 0 <= value <= MAX_NUMBER:
            raise _Unusable(f"`{key}` is out of range")
        return value

    def count(self, key: str) -> int | None:
        """Return a whole number, or None if missing."""
        value = self.number(key)
        if value is not None and value != int(value):
            raise _Unusable(f"`{key}` is not a whole number")
        return None if value is None else int(value)

    def moment(self, key: str) -> datetime | None:
        """Return a time in UTC, given in RFC 3339 or as seconds since the epoch, or None; without a time zone it is taken as UTC."""
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
    """Return the text without control characters and cut at `limit` characters."""
    text = clean_text(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _sanitize_object(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with all texts cleaned and cut."""
    return {_cut(key, 200): _sanitize(value, MAX_DEPTH) for key, value in data.items()}


def _sanitize(value: object, depth: int) -> object:
    """Return a JSON value with all texts cleaned and cut; raise `_Unusable` if it is nested deeper than `depth`."""
    if depth == 0:
        raise _Unusable("is nested too deeply")
    if isinstance(value, str):
        return _cut(value, MAX_TEXT_LENGTH)
    if isinstance(value, float) and not math.isfinite(value):
        raise _Unusable("has a number that is out of range")
    if isinstance(value, list):
        return [_sanitize(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {_cut(key, 200): _sanitize(item, depth - 1) for key, item in value.items()}
    return value


def _read_activity(fields: _Fields) -> Report:
    """Read a report of the agent's state."""
    state = fields.text("state") or Activity.ACTIVE
    if state not in REPORTABLE_STATES:
        raise _Unusable(f"`state` is {state[:40]!r}, not one of {', '.join(sorted(REPORTABLE_STATES))}")
    return ActivityReport(Activity(state), fields.text("detail"), fields.moment("time"))


def _read_ack(fields: _Fields) -> Report:
    """Read the confirmation of a message."""
    return AckReport(fields.text("message") or None, fields.moment("time"))


def _read_progress(fields: _Fields) -> Report:
    """Read a report of progress."""
    return ProgressReport(
        fields.count("done"),
        fields.count("total"),
        fields.text("step"),
        fields.count("tests_passed"),
        fields.moment("time"),
    )


def _read_usage(fields: _Fields) -> Report:
    """Read a report of tokens, dollars and forge calls."""
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


def _read_reply(fields: _Fields) -> Report:
    """Read a reply to a comment."""
    text = fields.text("text").strip()
    if not text:
        raise _Unusable("`text` is empty")
    return ReplyReport(text, fields.text("comment") or None, fields.moment("time"))


def _read_review(fields: _Fields) -> Report:
    """Read a review with its verdict and comments."""
    review = parse_review(fields.data)
    if review is None:
        raise _Unusable(f"`verdict` is not one of {', '.join(VERDICTS)}")
    comments = tuple({key: _sanitize(value, 2) for key, value in comment.items()} for comment in review.comments)
    return ReviewReport(review.verdict, _cut(review.body, MAX_TEXT_LENGTH), comments, fields.moment("time"))


def _read_permission(fields: _Fields) -> Report:
    """Read a permission request; its command stays exactly as it is."""
    return PermissionReport(
        fields.text("tool") or "a tool",
        fields.exact("command"),
        fields.text("reason"),
        fields.text("request"),
        fields.moment("time"),
    )


def _read_conversation(fields: _Fields) -> Report:
    """Read the id of the conversation."""
    conversation = fields.text("conversation")
    if not conversation:
        raise _Unusable("`conversation` is empty")
    return ConversationReport(conversation, fields.moment("time"))


_READERS: dict[str, Callable[[_Fields], Report]] = {
    "activity": _read_activity,
    "ack": _read_ack,
    "progress": _read_progress,
    "usage": _read_usage,
    "limit": lambda fields: LimitReport(fields.moment("resets_at"), fields.moment("time"), fields.text("model")),
    "ask": lambda fields: AskReport(fields.text("question"), fields.moment("time")),
    "done": lambda fields: DoneReport(fields.text("summary"), fields.moment("time")),
    "reply": _read_reply,
    "review": _read_review,
    "turn": lambda fields: TurnReport(fields.text("text"), fields.moment("time")),
    "took": lambda fields: MessageTakenReport(fields.text("text"), fields.moment("time")),
    "permission": _read_permission,
    "conversation": _read_conversation,
}


def to_line(report: Report) -> bytes:
    """Return the line that `parse` reads as this report; raise `TypeError` for a report that has no such line."""
    if isinstance(report, OtherReport | InvalidReport):
        raise TypeError(f"{report} is not something to report")
    event = next(event for report_type, event in _EVENT_NAMES.items() if isinstance(report, report_type))
    data: dict[str, Any] = {"event": event}
    for field in fields(report):
        value = getattr(report, field.name)
        if value is not None and value != "":
            data[field.name] = value.isoformat() if isinstance(value, datetime) else value
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"


_EVENT_NAMES = {
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
    MessageTakenReport: "took",
    PermissionReport: "permission",
    ConversationReport: "conversation",
}


class SpoolReader:
    """A reader of a spool from an offset, which returns complete lines only, at most `MAX_READ_BYTES` and `MAX_LINES` per call.

    `offset` is where the next line begins: store it together with the reports of the lines and give it to the next reader. It
    never goes back. When the file was cut or replaced, its present content is skipped, since it may have been read before, and
    `take_problems` reports it; lines appended later get offsets that no earlier line had.
    """

    def __init__(self, path: Path, offset: int = 0, longest: int = MAX_LINE_BYTES) -> None:
        self.path = path
        self.offset = offset
        self.max_line_bytes = longest
        self.has_more = False
        """Whether there is more to read at once."""
        self.end = offset
        """The end of the file at the last read."""
        self._shift = 0
        self._pending = bytearray()
        self._scanned = offset
        self._inode: int | None = None
        self._problems: list[str] = []

    def read(self, *, final: bool = False) -> list[tuple[int, bytes]]:
        """Return the next lines, each with its offset. With `final`, when nothing is written any more, an unfinished last line
        counts too.

        A line longer than `longest` is returned cut, and `parse` calls it invalid; a flood of lines is returned as one such
        line.
        """
        self.has_more = False
        try:
            with open_regular_file(self.path) as file:
                if flood := self._flood(file.fileno()):
                    return [flood]
                chunk = self._read_chunk(file.fileno())
        except UnsafePath as error:
            self._add_problem(str(error))
            return []
        except OSError as error:
            if short := resource_shortage(error):
                raise short from None  # the file is to be read later
            return []
        lines = self._split(chunk)
        if final and not self.has_more and self._pending:
            lines.append(self._end_line(self._scanned))
        return lines

    def take_problems(self) -> list[str]:
        """Return the problems with the file since the last call."""
        problems, self._problems = self._problems, []
        return problems

    def _read_chunk(self, descriptor: int) -> bytes:
        """Return the next bytes up to a limit; nothing if the file was cut or replaced."""
        status = os.fstat(descriptor)
        old_inode, self._inode = self._inode, status.st_ino
        position = self._scanned - self._shift
        if status.st_size < position:
            self._skip_content(f"was cut to {status.st_size} bytes", status.st_size)
        elif position and old_inode not in (None, status.st_ino):
            self._skip_content("was replaced", status.st_size)
        else:
            os.lseek(descriptor, position, os.SEEK_SET)
            chunk = _first_lines(os.read(descriptor, MAX_READ_BYTES))
            self.has_more = position + len(chunk) < status.st_size
            self.end = status.st_size + self._shift
            return chunk
        return b""

    def _flood(self, descriptor: int) -> tuple[int, bytes] | None:
        """Return one line that is too long in place of more unread data than any agent reports, or None."""
        status = os.fstat(descriptor)
        unread = status.st_size - (self._scanned - self._shift)
        if unread <= MAX_UNREAD_LINES * self.max_line_bytes:
            return None
        self._add_problem(f"{self.path} grew by {unread} bytes at once, which are not read")
        os.lseek(descriptor, self._scanned - self._shift, os.SEEK_SET)
        self._append_pending(os.read(descriptor, self.max_line_bytes + 1))
        self._inode, self._scanned = status.st_ino, self._scanned + unread
        return self._end_line(self._scanned)

    def _skip_content(self, event: str, size: int) -> None:
        """Skip the present content of the file and note why."""
        self._add_problem(f"{self.path} {event} after {self.offset} bytes were read; what stands in it now is not read")
        self.offset = self._scanned
        self._shift = self._scanned - size
        self._pending = bytearray()

    def _add_problem(self, problem: str) -> None:
        """Remember a problem, once."""
        if problem not in self._problems:
            self._problems.append(problem)

    def _split(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Return the lines that end in this chunk; keep the rest for the next one."""
        lines = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._append_pending(chunk[start:end])
            lines.append(self._end_line(self._scanned + end + 1))
            start = end + 1
        self._append_pending(chunk[start:])
        self._scanned += len(chunk)
        return [(offset, line) for offset, line in lines if line.strip()]

    def _append_pending(self, part: bytes) -> None:
        """Add to the unfinished line, up to one byte more than `longest`."""
        self._pending += part[: self.max_line_bytes + 1 - len(self._pending)]

    def _end_line(self, next_offset: int) -> tuple[int, bytes]:
        """Return the finished line with its offset and move the offset on."""
        line = (self.offset, bytes(self._pending))
        self.offset, self._pending = next_offset, bytearray()
        return line


def _first_lines(chunk: bytes) -> bytes:
    """Return the chunk up to its `MAX_LINES`th line."""
    end = 0
    for _ in range(MAX_LINES):
        end = chunk.find(b"\n", end) + 1
        if not end:
            return chunk
    return chunk[:end]
