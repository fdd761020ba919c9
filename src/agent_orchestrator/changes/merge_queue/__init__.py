"""The merge queue: changes land one after the other, each checked on top of those ahead of it, all of them side by side.

`next_step.py` says what is next, `lane.py` does it for one branch, `checks.py` judges what was built, `outcome_events.py` makes events of what
came of it, and `queue.py` is what the rest of the program sees. How a branch is moved is `services/landing`'s matter.
"""

from agent_orchestrator.changes.merge_queue.queue import MergeQueue

__all__ = ["MergeQueue"]
