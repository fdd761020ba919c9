"""What a session's agent can read and write: the sandbox and the container."""
