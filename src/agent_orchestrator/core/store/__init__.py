"""Where events, outbox and snapshots are kept: the only SQL. `schema` has the tables, `migrations` how they came to be,
`database` the statements and SQLite, `postgres` what is PostgreSQL's own: `address` where it is, `turn` which of several daemons
is active. Nothing here knows what an event means."""
