"""The merge queue: changes merge one after the other, each checked on top of those ahead of it, all checked in parallel.

`next_step.py` decides the next step, `lane.py` carries it out for one base branch, `checks.py` runs the checks of what was built,
`outcome_events.py` turns the outcome into events, and `queue.py` is the queue's interface. Branches are moved by `changes/merge`.
"""

from agent_orchestrator.changes.merge_queue.queue import MergeQueue

__all__ = ["MergeQueue"]
