"""Where events, outbox and snapshots are kept: the only SQL.

`schema` has the tables, `migrations` how they came to be, `database` the statements and SQLite, `postgres` what is PostgreSQL's own,
`address` where a PostgreSQL database is, `leader` which of several daemons is active, `codec` how facts are written. Nothing here knows
what an event means.
"""
