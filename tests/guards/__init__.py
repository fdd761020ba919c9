"""Limits of costs that do not depend on the machine: modules, statements, commits, programs, requests, bytes, timers.

Each number is today's cost, a little more where it varies. If a change exceeds one, find the reason, or raise the number and explain it
in the commit. Times are measured by `make bench`.
"""
