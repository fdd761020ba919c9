"""The slot Workspace: the folder and the branch that a session works in.

`worktree.py` and `clone.py` are the plugins. `git_workspace.py` makes a workspace completely or not at all, with one module per concern:
where the branch starts (`start_point.py`), what is remembered for the next try (`record.py`), what keeps agents apart
(`git_isolation.py`), what is put into the folder (`contents.py`, `file_copy.py`, `submodules.py`). Saving work is `sessions/rescue`'s.
"""
