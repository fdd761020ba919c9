"""Landing: a branch's exact commit is merged onto its base without a checkout, and the base branch is moved there exactly once.

`build.py` makes the commit that would land, `base_update.py` moves the base (by `move.py` and `user_checkout.py` with the user's checkout of it)
in steps that survive a crash after each of them, `records.py` remembers under `refs/ao/landed/` what landed, `revert.py` makes the change
that takes it back, `rebase.py` puts a branch that stood on a landed one onto the base, `branch_cleanup.py` removes a landed branch,
`remote_base.py` lets the base follow one that moved elsewhere, `prediction.py` tells conflicts before anybody merges. Nothing here knows
sessions' states, checks or approval, pushes anywhere, or decides that something may land: callers do.
"""

from agent_orchestrator.changes.merge.base_update import land
from agent_orchestrator.changes.merge.branch_cleanup import cleanup
from agent_orchestrator.changes.merge.build import build
from agent_orchestrator.changes.merge.model import (
    BranchMoved,
    Built,
    Cleaned,
    Conflicted,
    Landed,
    LandedElsewhere,
    LandingSpec,
    Moved,
    Rebased,
    RebaseSpec,
    Reverted,
    Strategy,
    UndoSpec,
    Waits,
)
from agent_orchestrator.changes.merge.prediction import Prediction
from agent_orchestrator.changes.merge.rebase import rebase
from agent_orchestrator.changes.merge.records import find_landing
from agent_orchestrator.changes.merge.recovery import settle
from agent_orchestrator.changes.merge.remote_base import follow
from agent_orchestrator.changes.merge.revert import undo

__all__ = [
    "BranchMoved",
    "Built",
    "Cleaned",
    "Conflicted",
    "Landed",
    "LandedElsewhere",
    "LandingSpec",
    "Moved",
    "Prediction",
    "RebaseSpec",
    "Rebased",
    "Reverted",
    "Strategy",
    "UndoSpec",
    "Waits",
    "build",
    "cleanup",
    "find_landing",
    "follow",
    "land",
    "rebase",
    "settle",
    "undo",
]
