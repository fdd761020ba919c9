"""The plugin slot Workspace: the folder and the branch that a session works in.

`worktree.py` and `clone.py` are the plugins. `git_workspace.py` makes a workspace completely or not at all, with one module per
concern: where the branch starts (`start_point.py`), the record for later attempts (`workspace_record.py`), the separation of agents
(`git_isolation.py`), the files (`copied_and_linked_files.py`, `copy_on_write.py`, `submodules.py`) and which of them Git hides
(`git_exclude.py`). Work is saved in `sessions/rescue`.
"""
