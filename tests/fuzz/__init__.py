"""Inputs that nobody would write: what is kept of them is replayed with the other tests, `make fuzz` looks for new ones."""
