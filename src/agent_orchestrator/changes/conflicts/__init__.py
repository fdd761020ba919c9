"""Predict conflicts: does merging any two live branches of a project conflict, uncommitted work included?

`snapshot.py` makes a commit of what a workspace holds, `merge_bases.py` finds where branches parted, `paths.py` which pairs can conflict
at all, `compare.py` merges those, `hunks.py` looks for close edits in those that merge, `prediction.py` does all of it for one
repository. `service.py` repeats it when something changed (`workspace_watch.py`, `debounce.py`) and reports what is new;
`merge_order.py` derives a merge order. Nothing here writes to a workspace, an index or the user's repository.
"""

from agent_orchestrator.changes.conflicts.merge_order import clashes, named_files
from agent_orchestrator.changes.conflicts.model import Branch, Pair, Snapshot, is_lock_file
from agent_orchestrator.changes.conflicts.prediction import Outlook
from agent_orchestrator.changes.conflicts.service import Conflicts

__all__ = ["Branch", "Conflicts", "Outlook", "Pair", "Snapshot", "clashes", "is_lock_file", "named_files"]
