"""Conflicts seen before they happen: for every two live branches of a project, uncommitted work included, does merging them collide?

`snapshot.py` makes a commit of what a workspace holds, `history.py` finds where branches parted, `paths.py` which pairs can collide
at all, `compare.py` merges those, `hunks.py` looks at those that merge well, `outlook.py` puts it together for one repository,
`service.py` looks when something changed and tells what is new; `watching.py` and `pacing.py` say when. `ordering.py` is what others
make of it.
Nothing here writes to a workspace, an index or the user's repository.
"""

from agent_orchestrator.services.conflicts.model import Branch, Pair, Snapshot, is_lock_file
from agent_orchestrator.services.conflicts.ordering import clashes, named_files
from agent_orchestrator.services.conflicts.outlook import Outlook
from agent_orchestrator.services.conflicts.service import Conflicts

__all__ = ["Branch", "Conflicts", "Outlook", "Pair", "Snapshot", "clashes", "is_lock_file", "named_files"]
