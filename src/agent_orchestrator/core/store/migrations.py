"""The history of the schema: one function per version, each run once, in order, in its own transaction.

A released function is never changed. A database of a newer version than this program's is not opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, inspect, select, text

from agent_orchestrator.base.hash_chain import digest
from agent_orchestrator.core.actor import actor_of_source
from agent_orchestrator.core.store import schema, schema_1
from agent_orchestrator.errors import Conflict


def _create_tables(connection: Connection) -> None:
    """Create the tables of version 1."""
    schema_1.metadata.create_all(connection)


def _add_chain_and_guard(connection: Connection) -> None:
    """Add actor, cause and digest to events, chain the events by their digests, and forbid to change or remove them."""
    for column in ("actor TEXT NOT NULL DEFAULT ''", "cause BIGINT", "digest TEXT NOT NULL DEFAULT ''"):
        connection.execute(text(f"ALTER TABLE events ADD COLUMN {column}"))
    _chain_stored_events(connection)
    for statement in _POSTGRES_GUARD if connection.dialect.name == "postgresql" else _SQLITE_GUARD:
        connection.execute(text(statement))


def _chain_stored_events(connection: Connection) -> None:
    """Set actor and digest of the stored events: the actor follows from the source, and the chain begins with the first event."""
    last, seq = "", 0
    update_row = text("UPDATE events SET actor = :actor, digest = :digest WHERE seq = :seq")
    page = text("SELECT * FROM events WHERE seq > :seq ORDER BY seq LIMIT 2000")
    while rows := connection.execute(page, {"seq": seq}).mappings().all():
        values = []
        for row in rows:
            entry: dict[str, Any] = {**row, "at": row["time"], "actor": actor_of_source(row["source"], row["session"])}
            last, seq = digest(last, entry), row["seq"]
            values.append({"seq": seq, "actor": entry["actor"], "digest": last})
        connection.execute(update_row, values)


_SQLITE_GUARD = (
    "CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END",
    "CREATE TRIGGER events_remain BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END",
    # INSERT OR REPLACE removes a row without firing the trigger above.
    "CREATE TRIGGER events_follow BEFORE INSERT ON events"
    " WHEN NEW.seq <= (SELECT max(seq) FROM events) OR EXISTS (SELECT 1 FROM events WHERE key = NEW.key)"
    " BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: events are only added'); END",
)
"""Triggers that forbid to change, remove or replace events in SQLite."""
_POSTGRES_GUARD = (
    "CREATE FUNCTION events_stay() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN RAISE EXCEPTION ''events are never changed or removed''; END'",
    "CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION events_stay()",
    "CREATE TRIGGER events_remain BEFORE TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION events_stay()",
)
"""Triggers that forbid to change or remove events in PostgreSQL."""

MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_create_tables, _add_chain_and_guard)
"""The functions that bring the schema from one version to the next; the first creates version 1."""


def migrate(engine: Engine, before: Callable[[int], None]) -> None:
    """Bring the database to this program's version; `before` is called with the old version if an existing schema changes."""
    with engine.connect() as connection:
        version = _schema_version(connection)
    if version > len(MIGRATIONS):
        raise Conflict(
            f"the database is of a newer version ({version}) than this program knows ({len(MIGRATIONS)})",
            "install the newer agent-orchestrator, or use another AO_HOME",
        )
    if 0 < version < len(MIGRATIONS):
        before(version)
    for number in range(version, len(MIGRATIONS)):
        with engine.begin() as connection:
            MIGRATIONS[number](connection)
            connection.execute(delete(schema.meta).where(schema.meta.c.name == "schema"))
            connection.execute(insert(schema.meta).values(name="schema", value=str(number + 1)))


def _schema_version(connection: Connection) -> int:
    """Return the schema version of the database, or 0 if it is empty."""
    if not inspect(connection).has_table("meta"):
        return 0
    value = connection.execute(select(schema.meta.c.value).where(schema.meta.c.name == "schema")).scalar()
    return int(value or 0)
