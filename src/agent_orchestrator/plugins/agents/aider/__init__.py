"""The plugin `aider`."""
