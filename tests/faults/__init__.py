"""Seeded rounds of faults against a real daemon with demo agents; after each round every invariant is checked against evidence
that the daemon did not write: the agents' logs, processes, Git objects."""
