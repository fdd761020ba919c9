"""The daemon process: its start, the wiring of all parts, its shutdown, and the repair of a damaged home."""
