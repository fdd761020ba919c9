"""Benchmarks: ratios and counts, each measured in one run with what it is compared with. `make bench` prints them all."""
