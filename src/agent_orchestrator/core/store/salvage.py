"""Recovery of a damaged SQLite database: read what is readable, and write an intact one.

Rows are first read in the order of their table. If that fails, every page of the file is scanned on its own, whatever
the B-trees above it say: events never change, so any complete copy of an event is that event; of an outbox row the copy
that was written last counts. Saved facts are not recovered, because they can be folded again. Nothing here writes to
the damaged file.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL, create_engine

from agent_orchestrator.core.events import Event, Unknown, decode
from agent_orchestrator.core.store import schema
from agent_orchestrator.core.store.migrations import MIGRATIONS

RowValues = dict[str, Any]
"""A row by column names."""

_EVENT_COLUMNS = ("seq", "key", "type", "project", "session", "generation", "source", "time", "data")
_VERSION_2_COLUMNS = ("actor", "cause", "digest")
"""Columns of events that schema version 2 added."""
_OUTBOX_COLUMNS = tuple(column.name for column in schema.outbox.columns)
_STATES = frozenset({"pending", "done", "dropped", "failed"})
_KIND = re.compile(r"[a-z][a-z-]*")
_TABLE_LEAF = 0x0D
"""Type byte of a page that holds rows of a table."""
_FILE_HEADER_SIZE = 100
"""Bytes before the page header on the first page."""
_WAL_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
"""Magic numbers at the start of a write-ahead log."""


@dataclass(frozen=True, slots=True)
class SalvagedRows:
    """The rows that could be read."""

    version: int
    events: Sequence[RowValues] = ()
    outbox: Sequence[RowValues] = ()

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """First and last number of each range of missing events between others."""
        numbers = [0, *(event["seq"] for event in self.events)]
        return [(a + 1, b - 1) for a, b in itertools.pairwise(numbers) if b > a + 1]


@dataclass(slots=True)
class Condition:
    """The condition of a database."""

    version: int = 0
    problems: list[str] = field(default_factory=list)
    unreadable_events: list[int] = field(default_factory=list)
    """Numbers of the events whose data cannot be parsed."""
    unreadable_rows: list[RowValues] = field(default_factory=list)
    """Outbox rows that cannot be parsed; with such a row in the table, none can be carried out."""
    facts: str = ""
    """What is wrong with the saved facts."""


def check_condition(path: Path) -> Condition:
    """Check the condition of a database. The file must be a copy, because SQLite may complete its write-ahead log when it opens it."""
    condition = Condition()
    if _read_pages(path).uncertain_pages:
        condition.problems.append(
            "its write-ahead log is damaged: what was committed after that place is not seen any more"
        )
    try:
        with closing(_open(path)) as database:
            messages = [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
            condition.problems += [] if messages == ["ok"] else messages
            rows = database.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall()
            condition.version = int(rows[0][0]) if rows else 0
            if not condition.version:
                condition.problems.append("it does not say which version it is of")
            if not condition.problems and condition.version <= len(MIGRATIONS):
                _check_rows(database, condition)
    except (sqlite3.Error, ValueError, TypeError) as error:
        condition.problems.append(str(error))
    return condition


def _check_rows(database: sqlite3.Connection, condition: Condition) -> None:
    """Check the rows of a database whose structure is intact."""
    for seq, data in database.execute("SELECT seq, data FROM events ORDER BY seq"):
        if not _is_object(data):
            condition.unreadable_events.append(seq)
    for row in database.execute(f"SELECT {', '.join(_OUTBOX_COLUMNS)} FROM outbox"):
        effect = dict(zip(_OUTBOX_COLUMNS, row, strict=True))
        if not _is_object(effect["args"]):
            condition.unreadable_rows.append(effect)
    [(last,)] = database.execute("SELECT coalesce(max(seq), 0) FROM events").fetchall()
    bodies = dict(database.execute("SELECT id, body FROM snapshots").fetchall())
    broken = [name for name, body in bodies.items() if not _is_object(body)]
    if broken:
        condition.facts = f"{broken[0]} cannot be read"
    elif "as-of" in bodies and not json.loads(bodies["as-of"]).get("seq", 0) <= last:
        condition.facts = "they are of later events than there are"


def delete_unreadable_rows(path: Path, looked: Condition) -> None:
    """Delete what keeps a structurally intact database from being used: unreadable outbox rows, and saved facts."""
    with closing(_open(path)) as database, database:
        if looked.facts:
            database.execute("DELETE FROM snapshots")
        database.executemany(
            "DELETE FROM outbox WHERE key IS ?", [(effect["key"],) for effect in looked.unreadable_rows]
        )


def read_events(path: Path) -> list[Event]:
    """Return the events of an intact database of any version up to the current one."""
    with closing(_open(path)) as database:
        rows = database.execute(f"SELECT {', '.join(_EVENT_COLUMNS)} FROM events ORDER BY seq").fetchall()
    return [_to_event(dict(zip(_EVENT_COLUMNS, row, strict=True))) for row in rows]


def _to_event(row: Mapping[str, Any]) -> Event:
    """Return an event from its row."""
    body = decode(row["type"], json.loads(row["data"])) if _is_object(row["data"]) else Unknown(row["type"])
    return Event(
        body, row["time"], row["source"], row["key"], row["project"], row["session"], row["generation"], row["seq"]
    )


# -- reading what is left ----------------------------------------------------------------------------------------------


def salvage(path: Path) -> SalvagedRows:
    """Return everything that can be read.

    The file must be a copy with its write-ahead log beside it. Its pages are read into memory first, because SQLite may
    change the file when it opens it.
    """
    content = _read_pages(path)
    events: dict[int, RowValues] = {}
    outbox: dict[str, RowValues] = {}
    version, is_complete = _read_tables(path, events, outbox)
    if content.uncertain_pages or not is_complete:
        for values in _scan_rows(content):
            if row := _event_or_none(values):
                earlier = events.get(row["seq"])
                if earlier is None or (not earlier.get("digest") and row.get("digest")):
                    events[row["seq"]] = row
            elif row := _outbox_row_or_none(values):
                earlier = outbox.get(row["key"])
                if earlier is None or earlier["updated"] < row["updated"]:
                    outbox[row["key"]] = row
    if not 0 < version <= len(MIGRATIONS):
        version = 2 if any(row.get("digest") for row in events.values()) else 1
    ordered, keys = [], set()
    for seq in sorted(events):
        if events[seq]["key"] not in keys:
            keys.add(events[seq]["key"])
            ordered.append(events[seq])
    return SalvagedRows(version, ordered, list(outbox.values()))


def _read_tables(path: Path, events: dict[int, RowValues], outbox: dict[str, RowValues]) -> tuple[int, bool]:
    """Add what SQLite itself can still read; return the schema version, and whether all rows could be read."""
    version, is_complete = 0, True
    try:
        with closing(_open(path)) as database:
            rows = database.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall()
            version = int(rows[0][0]) if rows else 0
    except (sqlite3.Error, ValueError):
        is_complete = False
    for table, parse in (("events", _event_or_none), ("outbox", _outbox_row_or_none)):
        for order in ("ASC", "DESC"):
            try:
                with closing(_open(path)) as database:
                    for row in database.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY rowid {order}"):
                        if parsed := parse(row):
                            (events if table == "events" else outbox).setdefault(
                                parsed["seq" if table == "events" else "key"], parsed
                            )
                break
            except sqlite3.Error:
                is_complete = False
    return version, is_complete


def _open(path: Path) -> sqlite3.Connection:
    """Return a connection that replaces invalid text instead of failing."""
    database = sqlite3.connect(path)
    database.text_factory = lambda content: content.decode(errors="replace")
    return database


def _event_or_none(values: Sequence[Any]) -> RowValues | None:
    """Return the values as an event, or None if they cannot be one."""
    if len(values) not in (len(_EVENT_COLUMNS), len(_EVENT_COLUMNS) + len(_VERSION_2_COLUMNS)):
        return None
    event = dict(zip((*_EVENT_COLUMNS, *_VERSION_2_COLUMNS), values, strict=False))
    is_valid = (
        _is_integer(event["seq"])
        and event["seq"] > 0
        and all(isinstance(event[name], str) for name in ("key", "type", "source", "data"))
        and all(event[name] is None or isinstance(event[name], str) for name in ("project", "session"))
        and _KIND.fullmatch(event["type"]) is not None
        and _is_integer(event["generation"])
        and isinstance(event["time"], int | float)
        and event["data"].startswith("{")
        and _is_object(event["data"])
    )
    if not is_valid:
        return None
    event["time"] = float(event["time"])
    return event


def _outbox_row_or_none(values: Sequence[Any]) -> RowValues | None:
    """Return the values as an outbox row, or None if they cannot be one."""
    if len(values) != len(_OUTBOX_COLUMNS):
        return None
    effect = dict(zip(_OUTBOX_COLUMNS, values, strict=True))
    is_valid = (
        all(isinstance(effect[name], str) for name in ("key", "kind", "session", "args", "state", "result"))
        and all(_is_integer(effect[name]) for name in ("generation", "cause", "sort", "attempts"))
        and all(isinstance(effect[name], int | float) for name in ("intent_due", "due", "updated"))
        and effect["state"] in _STATES
        and _is_object(effect["args"])
    )
    return effect if is_valid else None


def _is_integer(value: object) -> bool:
    """Return whether a value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_object(text: object) -> bool:
    """Return whether a value is the text of a JSON object."""
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


# -- the file's format -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DatabasePages:
    """The pages of a database file."""

    size: int
    """Bytes per page."""
    pages: Mapping[int, bytes]
    uncertain_pages: Sequence[tuple[int, bytes]] = ()
    """Pages that were committed to the log after a damaged place."""


def _read_pages(path: Path) -> _DatabasePages:
    """Return the file's pages, replaced by newer ones of its write-ahead log."""
    content = path.read_bytes() if path.exists() else b""
    log_path = path.with_name(f"{path.name}-wal")
    log = log_path.read_bytes() if log_path.exists() else b""
    size = int.from_bytes(content[16:18], "big") if content.startswith(b"SQLite format 3\0") else 0
    if log.startswith(_WAL_MAGIC):
        size = size or int.from_bytes(log[8:12], "big")
    size = {0: 4096, 1: 65536}.get(size, size)
    if size & (size - 1) or not 512 <= size <= 65536:
        size = 4096
    pages = {number + 1: content[start : start + size] for number, start in enumerate(range(0, len(content), size))}
    committed, loose = _logged_pages(log, size)
    pages.update(committed)
    return _DatabasePages(size, pages, loose)


def _logged_pages(log: bytes, size: int) -> tuple[dict[int, bytes], list[tuple[int, bytes]]]:
    """Return the pages that were committed to the write-ahead log, and those after a place where it is damaged."""
    committed: dict[int, bytes] = {}
    if len(log) < 56:
        return committed, []
    is_intact = log.startswith(_WAL_MAGIC) and int.from_bytes(log[8:12], "big") == size
    order = ">" if log[3] & 1 else "<"
    salt, checksum = log[16:24] if is_intact else log[40:48], _checksum(log[:24], order, (0, 0))
    transaction: list[tuple[int, bytes]] = []
    loose: list[tuple[int, bytes]] = []
    for offset in range(32, len(log) - 24 - size + 1, 24 + size):
        header, page = log[offset : offset + 24], log[offset + 24 : offset + 24 + size]
        if is_intact:
            checksum = _checksum(page, order, _checksum(header[:8], order, checksum))
            is_intact = header[8:16] == salt and struct.unpack(">II", header[16:24]) == checksum
            if not is_intact:
                transaction = []
        if header[8:16] != salt:
            continue
        transaction.append((int.from_bytes(header[:4], "big"), page))
        if header[4:8] != b"\0\0\0\0":
            if is_intact:
                committed.update(transaction)
            else:
                loose += transaction
            transaction = []
    return committed, loose


def _checksum(content: bytes, order: str, previous: tuple[int, int]) -> tuple[int, int]:
    """Return the checksum of a write-ahead log, continued from the one before."""
    a, b = previous
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for first, second in zip(words[::2], words[1::2], strict=True):
        a = (a + first + b) & 0xFFFFFFFF
        b = (b + second + a) & 0xFFFFFFFF
    return a, b


def _scan_rows(file: _DatabasePages) -> Iterator[list[Any]]:
    """Yield every row on every page that looks like a leaf of a table."""
    newest = _DatabasePages(file.size, {**file.pages, **dict(file.uncertain_pages)}) if file.uncertain_pages else file
    for source, number, page in (
        *((file, number, page) for number, page in file.pages.items()),
        *((newest, number, page) for number, page in file.uncertain_pages),
    ):
        start = _FILE_HEADER_SIZE if number == 1 else 0
        if len(page) < file.size or page[start] != _TABLE_LEAF:
            continue
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        for index in range(min(count, file.size // 4)):
            pointer = start + 8 + index * 2
            try:
                yield _read_row(source, page, int.from_bytes(page[pointer : pointer + 2], "big"))
            except (ValueError, IndexError, struct.error, KeyError):
                continue


def _read_row(file: _DatabasePages, page: bytes, offset: int) -> list[Any]:
    """Return the values of a row that begins at an offset of a page. Raises an error if it is not a complete row."""
    length, offset = _varint(page, offset)
    _, offset = _varint(page, offset)
    if length > min(1 << 28, len(file.pages) * file.size):
        raise ValueError("longer than all there is")
    max_local = file.size - 35
    local_length = length
    if length > max_local:
        min_local = (file.size - 12) * 32 // 255 - 23
        local_length = min_local + (length - min_local) % (file.size - 4)
        local_length = local_length if local_length <= max_local else min_local
    payload = page[offset : offset + local_length]
    following = (
        int.from_bytes(page[offset + local_length : offset + local_length + 4], "big") if length > local_length else 0
    )
    while len(payload) < length and following:
        overflow = file.pages[following]
        following, payload = int.from_bytes(overflow[:4], "big"), payload + overflow[4:]
    if len(payload) < length:
        raise ValueError("cut off")
    return _decode_record(payload[:length])


def _decode_record(payload: bytes) -> list[Any]:
    """Return the values of a record in SQLite's format."""
    header_end, offset = _varint(payload, 0)
    kinds = []
    while offset < header_end:
        kind, offset = _varint(payload, offset)
        kinds.append(kind)
    offset, values = header_end, []
    for kind in kinds:
        value, offset = _decode_value(payload, offset, kind)
        values.append(value)
    if offset != len(payload):
        raise ValueError("another length than it says")
    return values


def _decode_value(payload: bytes, offset: int, kind: int) -> tuple[Any, int]:
    """Return one value of a record by its serial type, and the offset after it."""
    if kind == 0:
        return None, offset
    if kind in (8, 9):
        return kind - 8, offset
    if kind == 7:
        return struct.unpack(">d", payload[offset : offset + 8])[0], offset + 8
    if kind < 7:
        width = (1, 2, 3, 4, 6, 8)[kind - 1]
        return int.from_bytes(payload[offset : offset + width], "big", signed=True), offset + width
    if kind < 12:
        raise ValueError("no such kind")
    width = (kind - 12) // 2
    content = payload[offset : offset + width]
    return (content.decode() if kind % 2 else content), offset + width


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    """Return a variable-length integer at an offset, and the offset after it."""
    value = 0
    for count in range(9):
        byte = content[offset + count]
        if count == 8:
            return value << 8 | byte, offset + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, offset + count + 1
    raise ValueError("no number")


# -- a sound one -------------------------------------------------------------------------------------------------------


def rebuild(salvaged: SalvagedRows, path: Path) -> None:
    """Write a new database of the same version from the rows that were read; it is synchronised to disk on return."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    engine = create_engine(URL.create("sqlite", database=str(path)))
    with engine.begin() as connection:
        for migration in MIGRATIONS[: salvaged.version]:
            migration(connection)
        execute = connection.exec_driver_sql
        execute("INSERT INTO meta (name, value) VALUES ('schema', ?)", (str(salvaged.version),))
        columns = _EVENT_COLUMNS if salvaged.version < 2 else (*_EVENT_COLUMNS, *_VERSION_2_COLUMNS)
        lacking = {"actor": "", "cause": None, "digest": ""}
        for table, names, rows in (("events", columns, salvaged.events), ("outbox", _OUTBOX_COLUMNS, salvaged.outbox)):
            values = [tuple(row.get(name, lacking.get(name)) for name in names) for row in rows]
            if values:
                marks = ", ".join("?" * len(names))
                execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", values)
    engine.dispose()
    with path.open("rb") as file:
        os.fsync(file.fileno())
