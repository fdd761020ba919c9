"""Workspaces: the folder and the branch that a session works in. `worktree.py` and `clone.py` are the plugins; `git_workspace.py` is what
they share of making one safely, and each other file is one concern of it: where the base comes from (`start_point.py`), what is
remembered for the next try (`record.py`), what keeps agents apart (`git_isolation.py`), what is put into the folder
(`contents.py`, `file_copy.py`, `submodules.py`). Nothing here saves or judges work: that is `services/rescue`.
"""
