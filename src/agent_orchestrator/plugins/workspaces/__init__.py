"""The plugin slot Workspace: the folder and the branch that a session works in.

`worktree.py` and `clone.py` are the plugins. `git_workspace.py` makes a workspace completely or not at all, with one module per
concern: where the branch starts (`start_point.py`), the record for later attempts (`record.py`), the separation of agents
(`git_isolation.py`), the files (`contents.py`, `file_copy.py`, `submodules.py`). Work is saved in `sessions/rescue`.
"""
