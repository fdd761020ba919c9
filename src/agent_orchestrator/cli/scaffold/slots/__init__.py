"""A working plugin for each slot, each the whole code of a new package."""
