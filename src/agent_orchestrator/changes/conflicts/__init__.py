"""Predict conflicts: find out whether merging any two live branches of a project conflicts, uncommitted work included.

`snapshot.py` makes a commit of a workspace's content, `merge_bases.py` finds the merge bases of branches, `paths.py` finds the pairs that
can conflict at all, `compare.py` merges those, `hunks.py` looks for close edits in those that merge, and `prediction.py` does all of it for
one repository. `service.py` repeats it after changes (`workspace_watch.py`, `debounce.py`) and records new conflicts; `merge_order.py`
finds which sessions cannot both be merged. Nothing here writes to a workspace, an index or the user's repository.
"""

from agent_orchestrator.changes.conflicts.merge_order import named_files, text_conflicts
from agent_orchestrator.changes.conflicts.model import Branch, Pair, Snapshot, is_lock_file
from agent_orchestrator.changes.conflicts.prediction import RepositoryPrediction
from agent_orchestrator.changes.conflicts.service import Conflicts

__all__ = [
    "Branch",
    "Conflicts",
    "Pair",
    "RepositoryPrediction",
    "Snapshot",
    "is_lock_file",
    "named_files",
    "text_conflicts",
]
