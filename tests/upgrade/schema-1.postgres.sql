CREATE TABLE events (
	seq BIGINT NOT NULL, 
	key TEXT NOT NULL, 
	type TEXT NOT NULL, 
	project TEXT, 
	session TEXT, 
	generation BIGINT NOT NULL, 
	source TEXT NOT NULL, 
	time DOUBLE PRECISION NOT NULL, 
	data TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (key)
);
CREATE TABLE meta (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE outbox (
	key TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	session TEXT NOT NULL, 
	generation BIGINT NOT NULL, 
	args TEXT NOT NULL, 
	intent_due DOUBLE PRECISION NOT NULL, 
	cause BIGINT NOT NULL, 
	sort BIGINT NOT NULL, 
	due DOUBLE PRECISION NOT NULL, 
	attempts BIGINT NOT NULL, 
	state TEXT NOT NULL, 
	result TEXT NOT NULL, 
	updated DOUBLE PRECISION NOT NULL, 
	PRIMARY KEY (key)
);
CREATE TABLE snapshots (
	id TEXT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE INDEX events_by_project ON events (project, seq);
CREATE INDEX events_by_session ON events (session, seq);
CREATE INDEX outbox_by_session ON outbox (session, sort);
CREATE INDEX outbox_by_state ON outbox (state);
