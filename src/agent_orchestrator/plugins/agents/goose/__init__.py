"""The plugin `goose`."""
