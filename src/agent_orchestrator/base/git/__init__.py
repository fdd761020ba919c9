"""Git: typed commands with their settings and what they list, diffs, refs read from files."""
