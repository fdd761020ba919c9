"""`goose`."""
