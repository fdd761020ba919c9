"""How the schema came to be: one function a version, each run once, in order, in a transaction of its own.

A released function is never changed. A database that is newer than this program is left alone.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, Engine, delete, insert, inspect, select

from agent_orchestrator.errors import Conflict
from agent_orchestrator.store import schema


def _first(connection: Connection) -> None:
    schema.metadata.create_all(connection)


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_first,)


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
