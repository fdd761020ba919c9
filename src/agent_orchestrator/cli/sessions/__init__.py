"""Commands about sessions: new, status, send, answer, logs, open."""
