"""Where issues live."""
