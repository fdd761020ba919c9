"""Landing: a branch's exact commit is merged onto its base without a checkout, and the base branch is moved there exactly once.

`build.py` makes the commit that would land, `land.py` moves the base (by `moving.py` and `checkout.py` with the user's checkout of it)
in steps that survive a crash after each of them, `record.py` remembers under `refs/ao/landed/` what landed, `undo.py` makes the change
that takes it back, `rebase.py` puts a branch that stood on a landed one onto the base, `cleanup.py` removes a landed branch,
`follow.py` lets the base follow one that moved elsewhere, `prediction.py` tells conflicts before anybody merges. Nothing here knows
sessions' states, checks or approval, pushes anywhere, or decides that something may land: callers do.
"""

from agent_orchestrator.services.landing.build import build
from agent_orchestrator.services.landing.cleanup import cleanup
from agent_orchestrator.services.landing.follow import follow
from agent_orchestrator.services.landing.land import land
from agent_orchestrator.services.landing.model import (
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
from agent_orchestrator.services.landing.prediction import Prediction
from agent_orchestrator.services.landing.rebase import rebase
from agent_orchestrator.services.landing.record import find_landing
from agent_orchestrator.services.landing.settle import settle
from agent_orchestrator.services.landing.undo import undo

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
