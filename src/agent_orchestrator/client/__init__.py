"""The daemon's clients: the connection of the command line, and the Python API."""
