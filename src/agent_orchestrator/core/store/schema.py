"""The tables in their current form. `migrations.py` has their history, and the triggers that protect the events."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, MetaData, Table, Text

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("key", Text, nullable=False, unique=True),
    Column("type", Text, nullable=False),
    Column("project", Text),
    Column("session", Text),
    Column("generation", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    Column("time", Double, nullable=False),
    Column("data", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("cause", BigInteger),
    Column("digest", Text, nullable=False),
)
Index("events_by_session", events.c.session, events.c.seq)
Index("events_by_project", events.c.project, events.c.seq)

outbox = Table(
    "outbox",
    metadata,
    Column("key", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("args", Text, nullable=False),
    Column("intent_due", Double, nullable=False),
    Column("cause", BigInteger, nullable=False),
    Column("sort", BigInteger, nullable=False),
    Column("due", Double, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("updated", Double, nullable=False),
)
Index("outbox_by_state", outbox.c.state)
Index("outbox_by_session", outbox.c.session, outbox.c.sort)

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", Text, primary_key=True),
    Column("body", Text, nullable=False),
)
