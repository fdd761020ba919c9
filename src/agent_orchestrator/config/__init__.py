"""Configuration: YAML in, one checked model out.

`load.py` reads a file, `compat.py` turns every accepted spelling into the one that `model.py` knows, `scope.py` says what
is in force for a project when several files are. Nothing behind `compat.py` knows an alias, and nothing in this folder
starts a process, talks to the network or asks what is installed beyond the names of plugins.
"""
