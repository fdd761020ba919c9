"""The agent of a session: catalog, sign-in, prompts, and reading what it reports."""
