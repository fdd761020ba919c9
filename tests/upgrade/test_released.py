"""Released schemas and facts do not change: a change of the tables or of the fold is a new version."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from contextlib import closing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from sqlalchemy import create_engine, inspect

from agent_orchestrator.core.facts import FACTS_VERSION, HomeFacts, SessionFacts
from agent_orchestrator.core.store import migrations, schema
from tests.upgrade.homes import FOLDER, RELEASED_VERSIONS

TABLES = {
    1: "acc8720dd48d9ae3",
    2: "32db76e0d78b7b65",
}
"""Version of the schema → digest of its tables, indexes and triggers on SQLite. Lines are added, never changed."""

_MODULE = re.compile(r"\bagent_orchestrator\.[\w.]+\.")
"""The module of a type, which is not part of its shape."""
FACTS = (15, "2ccb0d309ca7f9b0")
"""Version of the facts and digest of their shape, changed together: facts that were saved before are then folded again."""


def made_by(count: int) -> dict[str, str]:
    """Return the statements of everything that the first migrations create, by name."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        for migration in migrations.MIGRATIONS[:count]:
            migration(connection)
        rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").all()
    return {name: _plain(sql) for name, sql in rows}


def _plain(sql: str) -> str:
    return re.sub(r"\s+", " ", sql.replace('"', "")).replace(" ,", ",").strip()


def digest(what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def test_no_released_migration_was_changed() -> None:
    digests = {number: digest(sorted(made_by(number).items())) for number in range(1, len(migrations.MIGRATIONS) + 1)}
    assert digests == TABLES, "add a migration instead of changing one; a new one gets its line in TABLES"


def test_the_recorded_homes_match_their_migrations() -> None:
    for version in RELEASED_VERSIONS:
        with closing(sqlite3.connect(":memory:")) as database:
            database.executescript((FOLDER / f"schema-{version}.sql").read_text())
            rows = database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        assert {name: _plain(sql) for name, sql in rows} == made_by(version)
    assert list(range(1, RELEASED_VERSIONS[-1] + 1)) == RELEASED_VERSIONS
    assert len(migrations.MIGRATIONS) - RELEASED_VERSIONS[-1] <= 1, (
        "record a home of the last version: tests/upgrade/record.py"
    )


def test_the_migrations_create_the_current_tables(tmp_path: Path) -> None:
    current, migrated = create_engine("sqlite://"), create_engine(f"sqlite:///{tmp_path}/led.db")
    schema.metadata.create_all(current)
    with migrated.begin() as connection:
        for migration in migrations.MIGRATIONS:
            migration(connection)
    for table in schema.metadata.tables:
        assert _shape(inspect(current), table) == _shape(inspect(migrated), table)
    assert inspect(current).get_table_names() == inspect(migrated).get_table_names()
    current.dispose()
    migrated.dispose()


def _shape(inspector: Any, table: str) -> object:
    columns = {item["name"]: (str(item["type"]), item["nullable"]) for item in inspector.get_columns(table)}
    return columns, sorted(str(item["name"]) for item in inspector.get_indexes(table))


def test_saved_facts_of_another_shape_have_another_version() -> None:
    shapes: dict[str, list[tuple[str, str]]] = {}
    for cls in (SessionFacts, HomeFacts):
        _walk(cls, shapes)
    message = (
        "facts changed: raise VERSION in core/facts.py if they would be folded otherwise, and put the new pair here"
    )
    assert (FACTS_VERSION, digest(sorted(shapes.items()))) == FACTS, message


def _walk(hint: Any, shapes: dict[str, list[tuple[str, str]]]) -> None:
    if isinstance(hint, type) and is_dataclass(hint):
        if hint.__name__ in shapes:
            return
        hints = get_type_hints(hint)
        shapes[hint.__name__] = [(item.name, _MODULE.sub("", str(hints[item.name]))) for item in fields(hint)]
        for inner in hints.values():
            _walk(inner, shapes)
    for inner in getattr(hint, "__args__", ()):
        _walk(inner, shapes)
