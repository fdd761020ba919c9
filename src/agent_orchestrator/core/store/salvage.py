"""What can still be read of a damaged SQLite database, and a sound one made of it.

Rows are first asked for in the order of their table. Where that breaks off, every page of the file is looked at by itself, whatever
the trees above it say: events are never changed, so any whole copy of one is that event; of an effect the copy that was written last
counts. Saved facts are not salvaged: they are folded anew. Nothing here writes to the damaged file.
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

Found = dict[str, Any]

_EVENTS = ("seq", "key", "type", "project", "session", "generation", "source", "time", "data")
_LATER = ("actor", "cause", "digest")
"""Columns of events that came with the second version."""
_OUTBOX = tuple(column.name for column in schema.outbox.columns)
_STATES = frozenset({"pending", "done", "dropped", "failed"})
_KIND = re.compile(r"[a-z][a-z-]*")
_LEAF = 0x0D
_HEADER = 100
_LOGS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
"""How a write-ahead log begins."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What could be read."""

    version: int
    events: Sequence[Found] = ()
    outbox: Sequence[Found] = ()

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """First and last number of events that are missing between others."""
        numbers = [0, *(one["seq"] for one in self.events)]
        return [(a + 1, b - 1) for a, b in itertools.pairwise(numbers) if b > a + 1]


@dataclass(slots=True)
class Looked:
    """How a database was found."""

    version: int = 0
    problems: list[str] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    """Events whose content says nothing."""
    stuck: list[Found] = field(default_factory=list)
    """Effects that cannot be read, so that none could be taken up."""
    facts: str = ""
    """What is wrong with the saved facts."""


def look(path: Path) -> Looked:
    """See how a database is. It must be a copy: looking may finish what was begun in it."""
    found = Looked()
    if _with_log(path).loose:
        found.problems.append(
            "its write-ahead log is damaged: what was committed after that place is not seen any more"
        )
    try:
        with closing(_open(path)) as database:
            told = [str(row[0]) for row in database.execute("PRAGMA integrity_check(20)")]
            found.problems += [] if told == ["ok"] else told
            rows = database.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall()
            found.version = int(rows[0][0]) if rows else 0
            if not found.version:
                found.problems.append("it does not say which version it is of")
            if not found.problems and found.version <= len(MIGRATIONS):
                _look_inside(database, found)
    except (sqlite3.Error, ValueError, TypeError) as error:
        found.problems.append(str(error))
    return found


def _look_inside(database: sqlite3.Connection, found: Looked) -> None:
    for seq, data in database.execute("SELECT seq, data FROM events ORDER BY seq"):
        if not _is_object(data):
            found.unreadable.append(seq)
    for row in database.execute(f"SELECT {', '.join(_OUTBOX)} FROM outbox"):
        one = dict(zip(_OUTBOX, row, strict=True))
        if not _is_object(one["args"]):
            found.stuck.append(one)
    [(last,)] = database.execute("SELECT coalesce(max(seq), 0) FROM events").fetchall()
    bodies = dict(database.execute("SELECT id, body FROM snapshots").fetchall())
    broken = [name for name, body in bodies.items() if not _is_object(body)]
    if broken:
        found.facts = f"{broken[0]} cannot be read"
    elif "as-of" in bodies and not json.loads(bodies["as-of"]).get("seq", 0) <= last:
        found.facts = "they are of later events than there are"


def put_in_order(path: Path, looked: Looked) -> None:
    """Take out what keeps a sound database from being used: effects that cannot be read, and saved facts."""
    with closing(_open(path)) as database, database:
        if looked.facts:
            database.execute("DELETE FROM snapshots")
        database.executemany("DELETE FROM outbox WHERE key IS ?", [(one["key"],) for one in looked.stuck])


def log_of(path: Path) -> list[Event]:
    """The events of a sound database of any version up to this one."""
    with closing(_open(path)) as database:
        rows = database.execute(f"SELECT {', '.join(_EVENTS)} FROM events ORDER BY seq").fetchall()
    return [_event(dict(zip(_EVENTS, row, strict=True))) for row in rows]


def _event(row: Mapping[str, Any]) -> Event:
    body = decode(row["type"], json.loads(row["data"])) if _is_object(row["data"]) else Unknown(row["type"])
    return Event(
        body, row["time"], row["source"], row["key"], row["project"], row["session"], row["generation"], row["seq"]
    )


# -- reading what is left ----------------------------------------------------------------------------------------------


def salvage(path: Path) -> Salvaged:
    """Read what can be read. The file must be a copy, with its write-ahead log beside it; a second one is read as bytes."""
    content = _with_log(path)
    events: dict[int, Found] = {}
    outbox: dict[str, Found] = {}
    version, whole = _by_tree(path, events, outbox)
    if content.loose or not whole:
        for values in _rows(content):
            if one := _as_event(values):
                kept = events.get(one["seq"])
                if kept is None or (not kept.get("digest") and one.get("digest")):
                    events[one["seq"]] = one
            elif one := _as_effect(values):
                kept = outbox.get(one["key"])
                if kept is None or kept["updated"] < one["updated"]:
                    outbox[one["key"]] = one
    if not 0 < version <= len(MIGRATIONS):
        version = 2 if any(one.get("digest") for one in events.values()) else 1
    ordered, keys = [], set()
    for seq in sorted(events):
        if events[seq]["key"] not in keys:
            keys.add(events[seq]["key"])
            ordered.append(events[seq])
    return Salvaged(version, ordered, list(outbox.values()))


def _by_tree(path: Path, events: dict[int, Found], outbox: dict[str, Found]) -> tuple[int, bool]:
    """What the database itself still gives; its version, and whether that was all."""
    version, whole = 0, True
    try:
        with closing(_open(path)) as database:
            rows = database.execute("SELECT value FROM meta WHERE name = 'schema'").fetchall()
            version = int(rows[0][0]) if rows else 0
    except (sqlite3.Error, ValueError):
        whole = False
    for table, take in (("events", _as_event), ("outbox", _as_effect)):
        for order in ("ASC", "DESC"):
            try:
                with closing(_open(path)) as database:
                    for row in database.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY rowid {order}"):
                        if one := take(row):
                            (events if table == "events" else outbox).setdefault(
                                one["seq" if table == "events" else "key"], one
                            )
                break
            except sqlite3.Error:
                whole = False
    return version, whole


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.text_factory = lambda content: content.decode(errors="replace")
    return database


def _as_event(values: Sequence[Any]) -> Found | None:
    """The row as an event, if it can be one."""
    if len(values) not in (len(_EVENTS), len(_EVENTS) + len(_LATER)):
        return None
    one = dict(zip((*_EVENTS, *_LATER), values, strict=False))
    right = (
        _number(one["seq"])
        and one["seq"] > 0
        and all(isinstance(one[name], str) for name in ("key", "type", "source", "data"))
        and all(one[name] is None or isinstance(one[name], str) for name in ("project", "session"))
        and _KIND.fullmatch(one["type"]) is not None
        and _number(one["generation"])
        and isinstance(one["time"], int | float)
        and one["data"].startswith("{")
        and _is_object(one["data"])
    )
    if not right:
        return None
    one["time"] = float(one["time"])
    return one


def _as_effect(values: Sequence[Any]) -> Found | None:
    """The row as an effect that was to be carried out, if it can be one."""
    if len(values) != len(_OUTBOX):
        return None
    one = dict(zip(_OUTBOX, values, strict=True))
    right = (
        all(isinstance(one[name], str) for name in ("key", "kind", "session", "args", "state", "result"))
        and all(_number(one[name]) for name in ("generation", "cause", "sort", "attempts"))
        and all(isinstance(one[name], int | float) for name in ("intent_due", "due", "updated"))
        and one["state"] in _STATES
        and _is_object(one["args"])
    )
    return one if right else None


def _number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


# -- the file's format -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    size: int
    """Bytes of a page."""
    pages: Mapping[int, bytes]
    loose: Sequence[tuple[int, bytes]] = ()
    """Pages that were committed to the log behind a damaged place."""


def _with_log(path: Path) -> _File:
    """The file's pages, those of its write-ahead log over them."""
    content = path.read_bytes() if path.exists() else b""
    beside = path.with_name(f"{path.name}-wal")
    log = beside.read_bytes() if beside.exists() else b""
    size = int.from_bytes(content[16:18], "big") if content.startswith(b"SQLite format 3\0") else 0
    if log.startswith(_LOGS):
        size = size or int.from_bytes(log[8:12], "big")
    size = {0: 4096, 1: 65536}.get(size, size)
    if size & (size - 1) or not 512 <= size <= 65536:
        size = 4096
    pages = {number + 1: content[start : start + size] for number, start in enumerate(range(0, len(content), size))}
    done, loose = _logged(log, size)
    pages.update(done)
    return _File(size, pages, loose)


def _logged(log: bytes, size: int) -> tuple[dict[int, bytes], list[tuple[int, bytes]]]:
    """The pages that were committed to the write-ahead log, and those behind a place where it is damaged."""
    done: dict[int, bytes] = {}
    if len(log) < 56:
        return done, []
    sound = log.startswith(_LOGS) and int.from_bytes(log[8:12], "big") == size
    order = ">" if log[3] & 1 else "<"
    salt, sums = log[16:24] if sound else log[40:48], _sums(log[:24], order, (0, 0))
    begun: list[tuple[int, bytes]] = []
    loose: list[tuple[int, bytes]] = []
    for at in range(32, len(log) - 24 - size + 1, 24 + size):
        head, page = log[at : at + 24], log[at + 24 : at + 24 + size]
        if sound:
            sums = _sums(page, order, _sums(head[:8], order, sums))
            sound = head[8:16] == salt and struct.unpack(">II", head[16:24]) == sums
            if not sound:
                begun = []
        if head[8:16] != salt:
            continue
        begun.append((int.from_bytes(head[:4], "big"), page))
        if head[4:8] != b"\0\0\0\0":
            if sound:
                done.update(begun)
            else:
                loose += begun
            begun = []
    return done, loose


def _sums(content: bytes, order: str, before: tuple[int, int]) -> tuple[int, int]:
    a, b = before
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for first, second in zip(words[::2], words[1::2], strict=True):
        a = (a + first + b) & 0xFFFFFFFF
        b = (b + second + a) & 0xFFFFFFFF
    return a, b


def _rows(file: _File) -> Iterator[list[Any]]:
    """Every row on every page that looks like a table's leaf."""
    over = _File(file.size, {**file.pages, **dict(file.loose)}) if file.loose else file
    for whole, number, page in (
        *((file, number, page) for number, page in file.pages.items()),
        *((over, number, page) for number, page in file.loose),
    ):
        start = _HEADER if number == 1 else 0
        if len(page) < file.size or page[start] != _LEAF:
            continue
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        for index in range(min(count, file.size // 4)):
            place = start + 8 + index * 2
            try:
                yield _row(whole, page, int.from_bytes(page[place : place + 2], "big"))
            except (ValueError, IndexError, struct.error, KeyError):
                continue


def _row(file: _File, page: bytes, at: int) -> list[Any]:
    length, at = _varint(page, at)
    _, at = _varint(page, at)
    if length > min(1 << 28, len(file.pages) * file.size):
        raise ValueError("longer than all there is")
    most = file.size - 35
    here = length
    if length > most:
        least = (file.size - 12) * 32 // 255 - 23
        here = least + (length - least) % (file.size - 4)
        here = here if here <= most else least
    payload = page[at : at + here]
    following = int.from_bytes(page[at + here : at + here + 4], "big") if length > here else 0
    while len(payload) < length and following:
        more = file.pages[following]
        following, payload = int.from_bytes(more[:4], "big"), payload + more[4:]
    if len(payload) < length:
        raise ValueError("cut off")
    return _values(payload[:length])


def _values(payload: bytes) -> list[Any]:
    head, at = _varint(payload, 0)
    kinds = []
    while at < head:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    at, values = head, []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    if at != len(payload):
        raise ValueError("another length than it says")
    return values


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind == 7:
        return struct.unpack(">d", payload[at : at + 8])[0], at + 8
    if kind < 7:
        width = (1, 2, 3, 4, 6, 8)[kind - 1]
        return int.from_bytes(payload[at : at + width], "big", signed=True), at + width
    if kind < 12:
        raise ValueError("no such kind")
    width = (kind - 12) // 2
    content = payload[at : at + width]
    return (content.decode() if kind % 2 else content), at + width


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = content[at + count]
        if count == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + count + 1
    raise ValueError("no number")


# -- a sound one -------------------------------------------------------------------------------------------------------


def rebuild(found: Salvaged, path: Path) -> None:
    """Write a new database with what was found, of the same version; on the disk for good when this returns."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    engine = create_engine(URL.create("sqlite", database=str(path)))
    with engine.begin() as connection:
        for migration in MIGRATIONS[: found.version]:
            migration(connection)
        put = connection.exec_driver_sql
        put("INSERT INTO meta (name, value) VALUES ('schema', ?)", (str(found.version),))
        columns = _EVENTS if found.version < 2 else (*_EVENTS, *_LATER)
        lacking = {"actor": "", "cause": None, "digest": ""}
        for table, names, rows in (("events", columns, found.events), ("outbox", _OUTBOX, found.outbox)):
            values = [tuple(row.get(name, lacking.get(name)) for name in names) for row in rows]
            if values:
                marks = ", ".join("?" * len(names))
                put(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", values)
    engine.dispose()
    with path.open("rb") as written:
        os.fsync(written.fileno())
