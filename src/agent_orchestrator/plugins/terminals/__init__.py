"""Terminals in which `ao open` shows sessions: one file per terminal program.

`auto.py` detects the terminal that the person uses, `shared.py` starts programs. They run in the person's own process, with that
environment; nothing here runs in the daemon.
"""
