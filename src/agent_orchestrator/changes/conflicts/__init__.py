"""Predict conflicts: find out whether merging any two live branches of a project conflicts, uncommitted work included.

`snapshot.py` makes a commit of a workspace's content, `merge_bases.py` finds the merge bases of branches, `tree_changes.py` finds the
pairs that can conflict at all, `compare.py` merges those, `hunks.py` looks for close edits in those that merge, and
`repository_prediction.py` does all of it for one repository. `predictor.py` repeats it after changes (`workspace_watch.py`,
`prediction_schedule.py`) and records new conflicts. `model.py` has the data types, and finds which sessions cannot both be merged;
`named_files.py` finds the files that a task names. Nothing here writes to a workspace, an index or the user's repository.
"""

from agent_orchestrator.changes.conflicts.model import (
    Branch,
    BranchSnapshot,
    ConflictingPair,
    is_lock_file,
    text_conflicts,
)
from agent_orchestrator.changes.conflicts.named_files import find_named_files
from agent_orchestrator.changes.conflicts.predictor import ConflictPredictor
from agent_orchestrator.changes.conflicts.repository_prediction import RepositoryPrediction

__all__ = [
    "Branch",
    "BranchSnapshot",
    "ConflictPredictor",
    "ConflictingPair",
    "RepositoryPrediction",
    "find_named_files",
    "is_lock_file",
    "text_conflicts",
]
