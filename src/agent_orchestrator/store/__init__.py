"""Where events, outbox and snapshots are kept: the only SQL. `schema` has the tables, `migrations` how they came to be,
`database` the one implementation for every database that SQLAlchemy speaks. Nothing here knows what an event means."""
