"""The plugins of the slot Agent: how each coding agent's CLI is started, resumed, read and interrupted.

A plugin here starts no process, writes nothing into the workspace and keeps no state. `command.py` makes any CLI an agent by
configuration alone, `demo.py` is the one to copy from, `shared/` has the modules that several use.
"""
