"""`aider`."""
