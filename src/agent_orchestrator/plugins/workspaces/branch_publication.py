"""The main repository's half of publishing: a session's branch follows what its workspace has, unless somebody else moved it.

refs/ao/clone/<session>       what the workspace had last, brought here by whoever has it (a fetch, a push from a node)
refs/ao/published/<session>   where we moved the branch to last: as long as it is there, it is ours to move
refs/ao/keep/<session>        the commit that a clone with borrowed objects began at
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path

from agent_orchestrator.base.files.safe import NotPlain, plain
from agent_orchestrator.base.git.commands import ABSENT, Git
from agent_orchestrator.base.git.refs import ref_safe
from agent_orchestrator.errors import Conflict, machine_short

_LARGE_FILE = re.compile(r"[0-9a-f]{64}")
_LARGEST = 4 << 30
"""Bytes of all that is brought at once."""
_PIECE = 1 << 20


def keep_ref(session: str) -> str:
    """Holds what a clone borrows."""
    return f"refs/ao/keep/{ref_safe(session)}"


def brought_ref(session: str) -> str:
    """What the workspace had last."""
    return f"refs/ao/clone/{ref_safe(session)}"


def published_ref(session: str) -> str:
    """Where we moved the branch to last."""
    return f"refs/ao/published/{ref_safe(session)}"


async def follow(main: Git, session: str, branch: str, workspace: Path, before: str | None = None) -> str | None:
    """Move the branch to what was brought; returns its commit, none: nothing was brought yet. Raises `Conflict` if it has gone another way.

    `before`: what had been brought before that, where it is known; a branch that stands there is ours as well.
    """
    name, brought, published = f"refs/heads/{branch}", brought_ref(session), published_ref(session)
    known = await main.refs(name, brought, published)
    new, old = known.get(brought), known.get(name)
    if new is None:
        return None
    if old != new:
        ours = old in (None, before, known.get(published)) or (old and await main.is_ancestor(old, new))
        if not ours:
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
        moved = [f"update {name} {new} {old or zero}", f"update {published} {new} {known.get(published) or zero}"]
        await main.update_refs(moved, "ao: publish")
    elif known.get(published) != new:
        await main.update_ref(published, new, known.get(published) or ABSENT, "ao: publish")
    return new


async def forget(main: Git, session: str) -> None:
    """There is no such workspace any more; its branch stays."""
    found = await main.refs(keep_ref(session), brought_ref(session), published_ref(session))
    if found:
        await main.update_refs([f"delete {name} {sha}" for name, sha in found.items()])


def bring_large_files(clone: Path, repository: Path) -> None:
    """Copy what Git LFS keeps in a clone's Git folder to the repository's, if it is what its name says. Raises `Conflict`."""
    left, store = _LARGEST, repository / "lfs" / "objects"
    for file in sorted((clone / "lfs" / "objects").glob("??/??/*")):
        place = store / file.name[:2] / file.name[2:4] / file.name
        if _LARGE_FILE.fullmatch(file.name) and not place.exists():
            try:
                left -= _copy(file, place, left)
            except NotPlain:
                continue
            except OSError as error:
                raise (machine_short(error) or Conflict(f"{file} cannot be kept: {error.strerror}")) from None


def _copy(file: Path, place: Path, most: int) -> int:
    place.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), file.lstat().st_size
    with plain(file) as reading, tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as writing:
        try:
            while size <= most and (piece := reading.read(_PIECE)):
                digest.update(piece)
                writing.write(piece)
                size = max(size, reading.tell())
            if size > most:
                raise Conflict(f"{file} is too large to be kept", f"copy it to {place} by hand")
            writing.close()
            if digest.hexdigest() == file.name:
                Path(writing.name).replace(place)
        finally:
            Path(writing.name).unlink(missing_ok=True)
    return size
