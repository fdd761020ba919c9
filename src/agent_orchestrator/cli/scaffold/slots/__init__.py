"""A working plugin for each slot, to begin with. Each is the whole of a new package's code."""
