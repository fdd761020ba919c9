"""Modules that know nothing of sessions: Git, processes, files, text, time, HTTP."""
