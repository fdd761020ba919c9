"""Databases with random damage: everything on an intact page is recovered, and the result can be used."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.core.store import salvage
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.daemon.repair.database import fold_sessions, repair_database
from agent_orchestrator.errors import AoError
from tests.upgrade.homes import RELEASED_VERSIONS, old_database

ROUNDS = int(os.environ.get("AO_DAMAGES", "6"))
"""The number of random damages to try."""
PAGE = 4096

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["as released", "as of now", "at rest"])
async def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An intact database; unless it is at rest, a part of it is in its write-ahead log, as after a kill."""
    folder = tmp_path_factory.mktemp("sound")
    path = folder / "ao.db"
    old_database(RELEASED_VERSIONS[-1], path, folder)
    if request.param != "as released":
        store = Database.sqlite(path)
        await store.open()
        await store.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("INSERT INTO snapshots VALUES ('session:later', '{}')")
        database.execute("UPDATE outbox SET attempts = attempts + 1 WHERE rowid % 7 = 0")
        [(last, *rest)] = database.execute("SELECT * FROM events ORDER BY seq DESC LIMIT 1").fetchall()
        marks = ", ".join("?" * (len(rest) + 1))
        for number in range(1, 40):
            long = '{"text": "' + "x" * (number * 300) + '"}'
            values = (last + number, f"late:{number}", *rest[1:7], long, *rest[8:])
            database.execute(f"INSERT INTO events VALUES ({marks})", values)
        database.commit()
        if request.param == "at rest":
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        kept = tmp_path_factory.mktemp("kept")
        for file in folder.glob("ao.db*"):
            shutil.copy(file, kept / file.name)
    return kept / "ao.db"


def zeroes(content: bytearray, dice: random.Random) -> None:
    page = dice.randrange(len(content) // PAGE)
    content[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)


def rubbish(content: bytearray, dice: random.Random) -> None:
    page = dice.randrange(len(content) // PAGE)
    content[page * PAGE : (page + 1) * PAGE] = dice.randbytes(PAGE)


def many_pages(content: bytearray, dice: random.Random) -> None:
    for _ in range(8):
        zeroes(content, dice)


def torn(content: bytearray, dice: random.Random) -> None:
    del content[dice.randrange(PAGE, len(content)) :]


def no_head(content: bytearray, dice: random.Random) -> None:
    length = dice.choice([16, 100, PAGE])
    content[:length] = bytes(length)


def half_a_page(content: bytearray, dice: random.Random) -> None:
    offset = dice.randrange(len(content) // PAGE) * PAGE + PAGE // 2
    content[offset : offset + PAGE // 2] = bytes(PAGE // 2)


KINDS: list[Callable[[bytearray, random.Random], None]] = [zeroes, rubbish, many_pages, torn, no_head, half_a_page]


def whole_events(path: Path) -> dict[int, tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return {row[0]: row for row in database.execute("SELECT * FROM events")}


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_everything_on_an_intact_page_is_recovered(sound: Path, seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    home = Home(tmp_path)
    for file in sound.parent.glob("ao.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, tmp_path / file.name)
    shutil.copytree(sound.parent, tmp_path / "before")
    before = whole_events(tmp_path / "before" / "ao.db")
    log = home.path / "ao.db-wal"
    target = log if log.exists() and log.stat().st_size and dice.random() < 0.2 else home.database
    content = bytearray(target.read_bytes())
    original = bytes(content)
    KINDS[seed % len(KINDS)](content, dice)
    target.write_bytes(content)
    damaged = bytes(content)

    repair = Repair(home)
    events = repair_database(repair)
    assert events is not None
    after = whole_events(home.database)
    assert salvage.check_condition(home.database).problems == []
    assert set(after) <= set(before)
    same = [seq for seq in after if after[seq] == before[seq]]
    hit = sum(
        original[offset : offset + PAGE] != damaged[offset : offset + PAGE] for offset in range(0, len(original), PAGE)
    )
    if target == home.database:
        # A damaged page is a leaf with some rows, or a continuation of a long row.
        assert len(same) >= len(before) - hit * 40, (KINDS[seed % len(KINDS)].__name__, len(same), len(before), hit)
    assert len(same) >= len(after) - hit * 40
    if repair.backup_folder:
        assert (repair.backup_folder / target.name).read_bytes() == damaged
    sessions = fold_sessions(events)
    created = {row[4] for row in after.values() if row[2] == "session-created"}
    assert set(sessions) == created
    store = Database.sqlite(home.database)
    await store.open()
    assert ((await store.events(limit=1)) and await store.snapshot() is None) or not repair.backup_folder
    await store.close()
    again = Repair(home)
    repair_database(again)
    assert {finding.state for finding in again.findings} <= {"ok", "warning"}


async def test_without_its_first_page_every_event_is_recovered(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound.parent, tmp_path / "before")
    before = whole_events(tmp_path / "before" / "ao.db")  # closing it takes the log into the file
    content = (tmp_path / "before" / "ao.db").read_bytes()
    home = Home(tmp_path)
    home.database.write_bytes(bytes(PAGE) + content[PAGE:])
    repair_database(Repair(home))
    assert whole_events(home.database) == before


def test_commits_behind_damage_in_the_write_ahead_log_are_recovered(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old_database(1, tmp_path / "live.db", tmp_path)
    with closing(sqlite3.connect(tmp_path / "live.db")) as database:
        database.execute("PRAGMA wal_autocheckpoint = 0")
        [(last,)] = database.execute("SELECT max(seq) FROM events").fetchall()
        for number in range(last + 1, last + 31):
            values = (number, f"late:{number}", '{"text": "' + "x" * 3000 + '"}')
            database.execute("INSERT INTO events VALUES (?, ?, 'agent-report', 'a', 'a-b', 1, 'x', 1.5, ?)", values)
            database.commit()
        for part in ("", "-wal"):
            shutil.copy(tmp_path / f"live.db{part}", tmp_path / f"ao.db{part}")
    log = home.path / "ao.db-wal"
    content = bytearray(log.read_bytes())
    content[32 + 24 + 2000 : 32 + 24 + 2100] = b"\xaa" * 100
    log.write_bytes(content)
    repair = Repair(home)
    repair_database(repair)
    assert "write-ahead log is damaged" in repair.findings[-1].detail
    assert len([seq for seq in whole_events(home.database) if seq > last]) >= 29


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 20000, b"this is no database\n" * 500], ids=["empty", "zeroes", "text"]
)
def test_an_unreadable_database_becomes_an_empty_one(content: bytes, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.database.write_bytes(content)
    assert repair_database(Repair(home)) == []
    assert salvage.check_condition(home.database).problems == []


def test_an_existing_backup_is_recommended_instead_of_an_empty_database(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old_database(RELEASED_VERSIONS[-1], tmp_path / "ao.v1.bak", tmp_path)
    home.database.write_bytes(b"\0" * 20000)
    repair = Repair(home)
    repair_database(repair)
    assert [(finding.state, finding.remedy) for finding in repair.findings] == [
        ("failed", f"a backup is there: cp {tmp_path}/ao.v1.bak {home.database}")
    ]
    assert home.database.read_bytes() == b"\0" * 20000 and repair.backup_folder is None


def test_an_interrupted_repair_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    old_database(RELEASED_VERSIONS[-1], home.database, tmp_path)
    count = len(whole_events(home.database))
    content = bytearray(home.database.read_bytes())
    content[:100] = bytes(100)
    home.database.write_bytes(content)
    steps = iter(range(10))
    aside = Repair.move_to_backup

    def dies(repair: Repair, path: Path) -> None:
        aside(repair, path)
        if path == home.database:
            raise AoError(f"killed {next(steps)}")

    monkeypatch.setattr(Repair, "move_to_backup", dies)
    with pytest.raises(AoError, match="killed"):
        repair_database(Repair(home))
    monkeypatch.undo()
    assert not home.database.exists()
    repair_database(Repair(home))
    assert len(whole_events(home.database)) == count
