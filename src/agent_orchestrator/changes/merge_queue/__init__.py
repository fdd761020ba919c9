"""The merge queue: changes merge one after the other, each checked on top of those ahead of it, with the checks running in parallel.

`next_transition.py` decides the next step, `lane.py` carries it out for one base branch, `checks.py` runs the checks of a
built merge, `outcome_events.py` turns outcomes into events, and `queue.py` is the queue's interface. `changes/merge`
moves the branches.
"""

from agent_orchestrator.changes.merge_queue.queue import MergeQueue

__all__ = ["MergeQueue"]
