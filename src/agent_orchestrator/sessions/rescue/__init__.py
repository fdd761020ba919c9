"""Saving and restoring of work: before a workspace is removed, everything in it that is nowhere else is stored under
`refs/ao/rescue/<session>` in the main repository, and a restored session gets it back byte for byte.

`survey.py` lists what is in a workspace, `save.py` saves it (nested repositories by `nested_repositories.py`), `restore.py` restores it,
and `manifest.py` is the stored format. Nothing here changes a workspace except `bring_back`, and nothing removes one.

    refs/ao/rescue/<session>    commit: the files as they were, for people (`git show`, `git checkout … -- FILE`)
    ├── parent: HEAD as it was
    └── parent: commit with `blobs/` (manifest, index, Git's state files, files byte for byte) and `keep/`
        └── parents: stashes, detached and other commits that no branch has, the session's earlier rescue

`refs/ao/checkpoint/<session>` has the same for a session that is still working; each checkpoint replaces the one before. The session of a
lost machine continues from it.
"""

from agent_orchestrator.sessions.rescue.manifest import rescue_ref
from agent_orchestrator.sessions.rescue.nested_worktrees import unsaved_git_state
from agent_orchestrator.sessions.rescue.restore import RestoreResult, from_checkpoint, mark_restored, restore_work
from agent_orchestrator.sessions.rescue.save import Checkpoint, Rescue, checkpoint, is_safe, rescue, saved_before
from agent_orchestrator.sessions.rescue.survey import unsaved

__all__ = [
    "Checkpoint",
    "Rescue",
    "RestoreResult",
    "checkpoint",
    "from_checkpoint",
    "is_safe",
    "mark_restored",
    "rescue",
    "rescue_ref",
    "restore_work",
    "saved_before",
    "unsaved",
    "unsaved_git_state",
]
