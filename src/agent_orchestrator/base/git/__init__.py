"""Git: typed commands, diffs, refs read from files."""
