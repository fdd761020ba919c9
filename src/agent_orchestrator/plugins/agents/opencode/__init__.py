"""The plugin `opencode`."""
