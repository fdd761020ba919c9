"""The agent of a session: which are installed and signed in, what it is prompted with, what it reports."""
