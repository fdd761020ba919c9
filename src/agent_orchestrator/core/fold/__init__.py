"""From events to facts. Pure.

Look here for how an event changes what is known: `sessions.py` folds sessions with the steps of the other modules, and
`home.py` folds the home.
"""
