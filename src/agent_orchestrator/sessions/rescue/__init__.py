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
from agent_orchestrator.sessions.rescue.restore import RestoreResult, mark_restored, restore_checkpoint, restore_work
from agent_orchestrator.sessions.rescue.save import (
    CheckpointResult,
    Rescue,
    checkpoint,
    removal_obstacles,
    rescue,
    stored_rescue,
)
from agent_orchestrator.sessions.rescue.survey import describe_uncommitted

__all__ = [
    "CheckpointResult",
    "Rescue",
    "RestoreResult",
    "checkpoint",
    "describe_uncommitted",
    "mark_restored",
    "removal_obstacles",
    "rescue",
    "rescue_ref",
    "restore_checkpoint",
    "restore_work",
    "stored_rescue",
    "unsaved_git_state",
]
