"""The storage of events, outbox and snapshots; all SQL is in this package.

`schema` has the tables, `migrations` their history, `database` the statements and SQLite, `postgres` what is specific
to PostgreSQL, `address` the address of a PostgreSQL database, `leader` which of several daemons is active, `codec` the
format of saved facts, `salvage` the recovery of a damaged SQLite file. Nothing here depends on what an event means.
"""
