"""Python projects: `candidates.py` finds the ways to set one up and test it, with what the other modules read from its files.

`environments.py` says what an environment of tox, hatch or nox is; `tox.py`, `hatch.py` and `nox.py` read them. `tests.py` and
`lint.py` find the commands, `needs.py` and `requirements.py` what the tests need.
"""
