"""Fuzz tests: the stored inputs are replayed with the other tests, `make fuzz` searches for new ones."""
