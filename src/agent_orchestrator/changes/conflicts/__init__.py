"""Conflicts seen before they happen: for every two live branches of a project, uncommitted work included, does merging them collide?

`snapshot.py` makes a commit of what a workspace holds, `merge_bases.py` finds where branches parted, `paths.py` which pairs can collide
at all, `compare.py` merges those, `hunks.py` looks at those that merge well, `prediction.py` puts it together for one repository,
`service.py` looks when something changed and tells what is new; `workspace_watch.py` and `debounce.py` say when. `merge_order.py` is what others
make of it.
Nothing here writes to a workspace, an index or the user's repository.
"""

from agent_orchestrator.changes.conflicts.merge_order import clashes, named_files
from agent_orchestrator.changes.conflicts.model import Branch, Pair, Snapshot, is_lock_file
from agent_orchestrator.changes.conflicts.prediction import Outlook
from agent_orchestrator.changes.conflicts.service import Conflicts

__all__ = ["Branch", "Conflicts", "Outlook", "Pair", "Snapshot", "clashes", "is_lock_file", "named_files"]
