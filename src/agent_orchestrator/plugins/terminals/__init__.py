"""Where a person's `ao open` shows sessions: one file a terminal program. `auto.py` finds the one that he sits at, `shared.py` starts it.

They run in the person's own process, with his environment; nothing here runs in the daemon.
"""
