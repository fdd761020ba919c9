"""From events to facts. Pure.

Look here for how an event changes what is known: `sessions.py` folds sessions and the home, the other modules their
parts.
"""
