"""Seeded rounds of kill -9 against a real daemon with demo agents; every invariant is checked after each round, against evidence
that the daemon did not write: the agents' own logs, processes, Git objects."""
