"""Reads a workspace whose HEAD names a commit that does not exist: Git lists its files only if it takes it for one without commits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import Layout


async def is_commit(git: Git, head: str) -> bool:
    """Return whether the commit and its tree exist."""
    kinds = await git.object_kinds([f"{head}^{{commit}}", f"{head}^{{tree}}"])
    return sorted(kinds.values()) == ["commit", "tree"]


@contextmanager
def as_unborn(git: Git, layout: Layout) -> Iterator[Git]:
    """Yield a Git that treats the workspace as one without commits: everything in its index is new. The workspace does not change."""
    with tempfile.TemporaryDirectory(prefix="ao-unborn-") as folder:
        git_dir = Path(folder)
        (git_dir / "HEAD").write_text(f"ref: refs/heads/{git_dir.name}\n")
        (git_dir / "commondir").write_text(f"{layout.common.resolve()}\n")
        index = {"GIT_INDEX_FILE": str(layout.git_dir / "index")}
        yield Git(git.host, git.repo, {**git.environment, "GIT_DIR": folder, "GIT_WORK_TREE": str(git.repo), **index})


def stay_reason(workspace: Path, head: str) -> str:
    """Return the reason why the workspace must stay, with the command that sets HEAD to a commit again."""
    return (
        f"HEAD names {head[:12]}, which is no commit here; lead it to a commit: git -C {workspace} reset --soft COMMIT"
    )
