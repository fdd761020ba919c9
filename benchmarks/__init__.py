"""Figures as ratios and counts, each measured in one run beside what it is compared with. `make bench` prints them all."""
