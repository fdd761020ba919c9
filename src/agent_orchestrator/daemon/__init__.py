"""The daemon process: start, wiring of all parts, shutdown, and the repair of a damaged home."""
