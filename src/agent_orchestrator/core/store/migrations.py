"""How the schema came to be: one function a version, each run once, in order, in a transaction of its own.

A released function is never changed. A database that is newer than this program is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, inspect, select, text

from agent_orchestrator.base.hash_chain import digest
from agent_orchestrator.core.actor import actor_by
from agent_orchestrator.core.store import schema, schema_1
from agent_orchestrator.errors import Conflict


def _first(connection: Connection) -> None:
    schema_1.metadata.create_all(connection)


def _second(connection: Connection) -> None:
    """Events say who acted and why, are chained by digests, and can neither be changed nor removed."""
    for column in ("actor TEXT NOT NULL DEFAULT ''", "cause BIGINT", "digest TEXT NOT NULL DEFAULT ''"):
        connection.execute(text(f"ALTER TABLE events ADD COLUMN {column}"))
    _chain_up(connection)
    for statement in _POSTGRES_GUARD if connection.dialect.name == "postgresql" else _SQLITE_GUARD:
        connection.execute(text(statement))


def _chain_up(connection: Connection) -> None:
    """What was recorded before: who acted is told as far as its source does, and the chain begins with the first one."""
    last, seq = "", 0
    put = text("UPDATE events SET actor = :actor, digest = :digest WHERE seq = :seq")
    page = text("SELECT * FROM events WHERE seq > :seq ORDER BY seq LIMIT 2000")
    while rows := connection.execute(page, {"seq": seq}).mappings().all():
        values = []
        for row in rows:
            entry: dict[str, Any] = {**row, "at": row["time"], "actor": actor_by(row["source"], row["session"])}
            last, seq = digest(last, entry), row["seq"]
            values.append({"seq": seq, "actor": entry["actor"], "digest": last})
        connection.execute(put, values)


_SQLITE_GUARD = (
    "CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END",
    "CREATE TRIGGER events_remain BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END",
    # INSERT OR REPLACE would remove a row without asking the trigger above.
    "CREATE TRIGGER events_follow BEFORE INSERT ON events"
    " WHEN NEW.seq <= (SELECT max(seq) FROM events) OR EXISTS (SELECT 1 FROM events WHERE key = NEW.key)"
    " BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: events are only added'); END",
)
_POSTGRES_GUARD = (
    "CREATE FUNCTION events_stay() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN RAISE EXCEPTION ''events are never changed or removed''; END'",
    "CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION events_stay()",
    "CREATE TRIGGER events_remain BEFORE TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION events_stay()",
)

MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_first, _second)


def migrate(engine: Engine, before: Callable[[int], None]) -> None:
    """Bring the database to this program's version; `before` is called with the old version if there is one to change."""
    with engine.connect() as connection:
        version = _version(connection)
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


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table("meta"):
        return 0
    value = connection.execute(select(schema.meta.c.value).where(schema.meta.c.name == "schema")).scalar()
    return int(value or 0)
