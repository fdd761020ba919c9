"""The main repository's part of publishing: a session's branch follows the workspace's, unless someone else moved it.

refs/ao/clone/<session>       the workspace's last known commit, brought here by a fetch or a node's push
refs/ao/published/<session>   the commit that the branch was last moved to: while the branch is there, it may be moved on
refs/ao/keep/<session>        the commit that a clone with borrowed objects began at
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path

from agent_orchestrator.base.files.safe import UnsafePath, open_regular_file
from agent_orchestrator.base.git.commands import REF_ABSENT, Git
from agent_orchestrator.base.git.refs import escape_for_ref
from agent_orchestrator.errors import Conflict, resource_shortage

_LARGE_FILE_NAME = re.compile(r"[0-9a-f]{64}")
_MAX_LARGE_FILES_BYTES = 4 << 30
"""Most bytes of large files that are copied at once."""
_CHUNK_SIZE = 1 << 20


def keep_ref(session: str) -> str:
    """Return the ref that keeps the objects which a clone borrows."""
    return f"refs/ao/keep/{escape_for_ref(session)}"


def workspace_ref(session: str) -> str:
    """Return the ref of the workspace's last known commit."""
    return f"refs/ao/clone/{escape_for_ref(session)}"


def published_ref(session: str) -> str:
    """Return the ref of the commit that the branch was last moved to."""
    return f"refs/ao/published/{escape_for_ref(session)}"


async def move_branch(main: Git, session: str, branch: str, workspace: Path, before: str | None = None) -> str | None:
    """Move the branch to the brought commit and return that commit, or None if nothing was brought yet.

    Raises `Conflict` if the branch has other commits, or is checked out. `before` is the commit brought before that, if known; a branch
    at that commit may be moved too.
    """
    branch_ref, brought, published = f"refs/heads/{branch}", workspace_ref(session), published_ref(session)
    commits = await main.refs(branch_ref, brought, published)
    new, old = commits.get(brought), commits.get(branch_ref)
    if new is None:
        return None
    if old != new:
        is_ours = old in (None, before, commits.get(published)) or (old and await main.is_ancestor(old, new))
        if not is_ours:
            raise Conflict(
                f"branch {branch} in {main.repo} has commits that the workspace {workspace} does not have",
                f"its work is safe as {brought}; merge the two",
            )
        checkouts = [entry.path for entry in await main.worktrees() if entry.branch == branch]
        if checkouts:
            raise Conflict(
                f"branch {branch} is checked out in {checkouts[0]} and cannot be moved",
                f"the work is safe as {brought}; switch {checkouts[0]} to another branch",
            )
        zero = "0" * len(new)
        updates = [
            f"update {branch_ref} {new} {old or zero}",
            f"update {published} {new} {commits.get(published) or zero}",
        ]
        await main.update_refs(updates, "ao: publish")
    elif commits.get(published) != new:
        await main.update_ref(published, new, commits.get(published) or REF_ABSENT, "ao: publish")
    return new


async def delete_refs(main: Git, session: str) -> None:
    """Delete the refs of a removed workspace; its branch stays."""
    refs = await main.refs(keep_ref(session), workspace_ref(session), published_ref(session))
    if refs:
        await main.update_refs([f"delete {name} {sha}" for name, sha in refs.items()])


def copy_large_files(clone: Path, repository: Path) -> None:
    """Copy Git LFS files from a clone's Git folder to the repository's, if their content matches their name. Raises `Conflict`."""
    remaining, store = _MAX_LARGE_FILES_BYTES, repository / "lfs" / "objects"
    for file in sorted((clone / "lfs" / "objects").glob("??/??/*")):
        target = store / file.name[:2] / file.name[2:4] / file.name
        if _LARGE_FILE_NAME.fullmatch(file.name) and not target.exists():
            try:
                remaining -= _copy_verified(file, target, remaining)
            except UnsafePath:
                continue
            except OSError as error:
                raise (resource_shortage(error) or Conflict(f"{file} cannot be kept: {error.strerror}")) from None


def _copy_verified(file: Path, target: Path, limit: int) -> int:
    """Copy a file to `target` if its content matches its name, and return its size. Raises `Conflict` if it is larger than `limit`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), file.lstat().st_size
    with open_regular_file(file) as source, tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as temporary:
        try:
            while size <= limit and (chunk := source.read(_CHUNK_SIZE)):
                digest.update(chunk)
                temporary.write(chunk)
                size = max(size, source.tell())
            if size > limit:
                raise Conflict(f"{file} is too large to be kept", f"copy it to {target} by hand")
            temporary.close()
            if digest.hexdigest() == file.name:
                Path(temporary.name).replace(target)
        finally:
            Path(temporary.name).unlink(missing_ok=True)
    return size
