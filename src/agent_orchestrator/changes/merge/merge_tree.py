"""Merges that touch no checkout: of two commits, and of one commit's change onto another.

A merge's outcome depends on the two sides and the base's own `.gitattributes`, never on what lies in somebody's checkout.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import LONGEST, NotPlain, parts_in_git
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.merge.repository import Repository
from agent_orchestrator.errors import Conflict

WRITES_TREES = (2, 38)
"""The first Git whose `merge-tree` does a whole merge."""
MOST_ATTRIBUTES = 1000
"""Files of attributes that a base may have."""

_NOBODY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "Agent Orchestrator"), ("EMAIL", "ao@localhost"), ("DATE", "@0 +0000"))
}


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge's tree; with files in conflict it is of no use but to look at."""

    tree: str
    conflicts: tuple[str, ...]


class Merger:
    """Merges onto one base."""

    def __init__(self, git: Git, folder: Path, version: tuple[int, ...]) -> None:
        self._git = git
        self._folder = folder
        self._whole = version >= WRITES_TREES

    async def merge(self, ours: str, theirs: str) -> Merge:
        """Merge two commits. Raises `Conflict` if they have nothing in common."""
        done = await self._git.run("merge-base", "--all", ours, theirs, ok=(0, 1))
        if done.code:
            raise Conflict(
                f"{theirs[:12]} and {ours[:12]} have no common ancestor",
                "rebase the branch onto its base; unrelated histories are not merged",
            )
        return await self._merge(done.text.split(), ours, theirs)

    async def apply(self, before: str | None, after: str, onto: str) -> Merge:
        """Merge the change from one commit (none: from nothing) to another into a third."""
        start = before or await self._git.commit_tree(await self._git.make_tree(()), (), "nothing", _NOBODY)
        # Plain merge-tree finds the ancestor by itself: commits made for that have the one that is wanted.
        sides = [await self._git.commit_tree(f"{side}^{{tree}}", (start,), "side", _NOBODY) for side in (onto, after)]
        return await self._merge([start], *sides)

    async def _merge(self, ancestors: list[str], ours: str, theirs: str) -> Merge:
        if self._whole:
            return Merge(*await self._git.merge_tree(ours, theirs))
        return await self._merge_in_folder(ancestors, ours, theirs)

    async def _merge_in_folder(self, ancestors: list[str], ours: str, theirs: str) -> Merge:
        """For an old Git: merge in a scratch folder with an index of its own; HEAD and refs are not involved."""
        with tempfile.TemporaryDirectory(dir=self._folder.parent, prefix="files-") as folder:
            env = {"GIT_INDEX_FILE": f"{folder}.index", "GIT_WORK_TREE": folder, **_NOBODY}
            git = Git(self._git.host, Path(folder), {**self._git.environment, **env})
            try:
                await git.run("read-tree", "-m", "-u", ours, config=git.filters(), timeout=None)
                sides = ("merge-recursive", *ancestors, "--", ours, theirs)
                done = await git.run(*sides, config=git.filters(), ok=(0, 1), timeout=None)
                if not done.code:
                    return Merge(await git.text("write-tree"), ())
                listing = (await git.run("ls-files", "--unmerged", "-z")).out.split(b"\0")
                return Merge(
                    "", tuple(dict.fromkeys(os.fsdecode(line.partition(b"\t")[2]) for line in listing if line))
                )
            finally:
                Path(f"{folder}.index").unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def merging(repository: Repository, work: Path, base: str) -> AsyncIterator[Merger]:
    """A merger for what is to go onto `base`; its scratch files are gone afterwards."""
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work, prefix="merge-") as scratch:
        folder = Path(scratch, "attributes")
        folder.mkdir()
        env = {"GIT_DIR": str(repository.common), "GIT_WORK_TREE": str(folder)}
        git = Git(repository.git.host, folder, env)
        await write_attributes(git, base, folder)
        yield Merger(git, folder, await git.version())


async def write_attributes(git: Git, base: str, folder: Path) -> None:
    """Give Git the base's attributes (`merge=union`), which it would else read from whatever is checked out."""
    listing = (await git.run("ls-tree", "-r", "-z", base)).out.split(b"\0")
    pairs = (line.partition(b"\t")[::2] for line in listing)
    found = [
        (about.split()[2].decode(), os.fsdecode(name))
        for about, name in pairs
        if name.rpartition(b"/")[2] == b".gitattributes" and about.startswith(b"100")
    ]
    if len(found) > MOST_ATTRIBUTES:
        raise Conflict(f"{base[:12]} has more than {MOST_ATTRIBUTES:,} .gitattributes", "join them in a few")
    for blob, name in found:
        with contextlib.suppress(
            NotPlain, FileExistsError, NotADirectoryError, IsADirectoryError
        ):  # no checkout has it
            target = folder.joinpath(*parts_in_git(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            if int(await git.text("cat-file", "-s", blob)) <= LONGEST:
                target.write_bytes((await git.run("cat-file", "blob", blob)).out)
