"""`opencode`."""
