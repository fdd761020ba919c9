"""The merge queue: changes merge one after the other, each checked on top of those ahead of it, with the checks running in parallel.

`plan.py` decides the next step, `base_queue.py` carries it out for one base branch, `queue_checks.py` runs the checks of a
built merge, `parallel_limit.py` says how many run at the same time, `outcome_events.py` turns outcomes into events, and
`queue.py` is the queue's interface. `changes/merge` moves the branches.
"""

from agent_orchestrator.changes.merge_queue.queue import MergeQueue

__all__ = ["MergeQueue"]
