"""Work is never lost: before a workspace goes, everything in it that is nowhere else is put under `refs/ao/rescue/<session>` in the main
repository; a restored session gets it back byte for byte. `survey.py` looks and judges, `save.py` saves (`nested_repositories.py` what is a
repository within), `restore.py` brings back, `manifest.py` is what passes between them. Nothing here changes a workspace except
`bring_back`, and nothing removes one.

    refs/ao/rescue/<session>    commit: the files as they were, for people (`git show`, `git checkout … -- FILE`)
    ├── parent: HEAD as it was
    └── parent: commit with `blobs/` (manifest, index, Git's state files, files byte for byte) and `keep/`
        └── parents: stashes, detached and other commits that no branch has, the session's earlier rescue

`refs/ao/checkpoint/<session>` is the same of a session that works on, replaced by each next one: what a lost machine's session goes
on from.
"""

from agent_orchestrator.sessions.rescue.manifest import rescue_ref
from agent_orchestrator.sessions.rescue.nested_worktrees import left_behind
from agent_orchestrator.sessions.rescue.restore import BroughtBack, bring_back, from_checkpoint, settle
from agent_orchestrator.sessions.rescue.save import Checkpoint, Rescue, checkpoint, is_safe, rescue, saved_before
from agent_orchestrator.sessions.rescue.survey import unsaved

__all__ = [
    "BroughtBack",
    "Checkpoint",
    "Rescue",
    "bring_back",
    "checkpoint",
    "from_checkpoint",
    "is_safe",
    "left_behind",
    "rescue",
    "rescue_ref",
    "saved_before",
    "settle",
    "unsaved",
]
