"""Merge a branch's exact commit onto its base without a checkout, moving the base branch exactly once.

`build.py` makes the merge commit (its text: `commit_message.py`), `merge_into_base.py` moves the base branch (with the
user's checkout of it: `branch_move.py`, `user_checkout.py`) in steps that survive a crash after each, `merge_records.py`
remembers merged heads under `refs/ao/landed/`, `recovery.py` repairs checkouts after a crash, `revert.py` makes the
commit that reverts a merge, `rebase.py` rebases a stacked branch, `branch_cleanup.py` deletes a merged branch,
`remote_base.py` follows a base that moved at the remote, and `base_conflicts.py` predicts conflicts with the base.
Sessions, checks and approval are not known here: callers decide what may merge.
"""

from agent_orchestrator.changes.merge.base_conflicts import BaseConflicts
from agent_orchestrator.changes.merge.branch_cleanup import delete_branch
from agent_orchestrator.changes.merge.build import build_merge
from agent_orchestrator.changes.merge.merge_into_base import merge
from agent_orchestrator.changes.merge.merge_records import find_merge
from agent_orchestrator.changes.merge.model import (
    Blocked,
    BuiltMerge,
    CleanupResult,
    CompletedMerge,
    Conflicted,
    MergedAtForge,
    MergeSpec,
    MovedBase,
    MovedBranch,
    Rebased,
    RebaseSpec,
    Reverted,
    RevertSpec,
    Strategy,
)
from agent_orchestrator.changes.merge.rebase import rebase
from agent_orchestrator.changes.merge.recovery import repair_checkouts
from agent_orchestrator.changes.merge.remote_base import follow_remote_base
from agent_orchestrator.changes.merge.revert import revert

__all__ = [
    "BaseConflicts",
    "Blocked",
    "BuiltMerge",
    "CleanupResult",
    "CompletedMerge",
    "Conflicted",
    "MergeSpec",
    "MergedAtForge",
    "MovedBase",
    "MovedBranch",
    "RebaseSpec",
    "Rebased",
    "RevertSpec",
    "Reverted",
    "Strategy",
    "build_merge",
    "delete_branch",
    "find_merge",
    "follow_remote_base",
    "merge",
    "rebase",
    "repair_checkouts",
    "revert",
]
