"""Cases about the daemon: its size, start, idle cost, requests, command times, storage and scheduling."""
