"""Text: redaction, templates, path patterns, terminal output."""
