"""The effects of a session's life: make its workspace, start its agent, deliver messages, notice silence, stop, save and clean up.

`effects.py` lists them by kind of intent. Each takes an intent, acts through plugins that may be called again after a crash, and returns
the events that record what happened. `session_specs.py` and `environment.py` say what a workspace and an agent are given.
"""
