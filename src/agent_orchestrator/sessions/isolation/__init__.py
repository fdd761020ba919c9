"""What a session's agent can reach: the sandbox and the container."""
