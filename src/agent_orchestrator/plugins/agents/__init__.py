"""One file a coding agent: how its CLI is started, resumed, read and interrupted. A plugin here only says how; it starts no
process, writes nothing into the workspace and keeps no state. `command.py` makes any CLI an agent by configuration alone; `demo.py` is
the one to copy from.
"""
