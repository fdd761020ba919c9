"""Merge without a checkout: two commits, or one commit's change onto another commit.

The outcome depends on the two sides and the base's own `.gitattributes`, never on the files of a checkout.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import MAX_FILE_BYTES, UnsafePath, git_path_parts
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.merge.repository import Repository
from agent_orchestrator.errors import Conflict

MERGE_TREE_VERSION = (2, 38)
"""The first version of Git whose `merge-tree` does a whole merge."""
MAX_ATTRIBUTE_FILES = 1000
"""Maximum number of `.gitattributes` files of a base."""

_TEMPORARY_IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "Agent Orchestrator"), ("EMAIL", "ao@localhost"), ("DATE", "@0 +0000"))
}
"""Author and committer of temporary commits."""


@dataclass(frozen=True, slots=True)
class MergedTree:
    """A merge's tree; with conflicts it is of use only for display."""

    tree: str
    conflicts: tuple[str, ...]


class Merger:
    """Merges commits onto one base."""

    def __init__(self, git: Git, folder: Path, version: tuple[int, ...]) -> None:
        self._git = git
        self._folder = folder
        self._has_merge_tree = version >= MERGE_TREE_VERSION

    async def merge(self, ours: str, theirs: str) -> MergedTree:
        """Merge two commits. Raises `Conflict` if they have no common ancestor."""
        result = await self._git.run("merge-base", "--all", ours, theirs, ok=(0, 1))
        if result.code:
            raise Conflict(
                f"{theirs[:12]} and {ours[:12]} have no common ancestor",
                "rebase the branch onto its base; unrelated histories are not merged",
            )
        return await self._merge(result.text.split(), ours, theirs)

    async def apply(self, before: str | None, after: str, onto: str) -> MergedTree:
        """Merge the change between two commits (`before` None: from an empty tree) into a third."""
        start = before or await self._git.commit_tree(await self._git.make_tree(()), (), "nothing", _TEMPORARY_IDENTITY)
        # `merge-tree` finds the common ancestor itself, so temporary commits are made that have the intended one.
        sides = [
            await self._git.commit_tree(f"{side}^{{tree}}", (start,), "side", _TEMPORARY_IDENTITY)
            for side in (onto, after)
        ]
        return await self._merge([start], *sides)

    async def _merge(self, ancestors: list[str], ours: str, theirs: str) -> MergedTree:
        """Merge two commits with the method that this version of Git supports."""
        if self._has_merge_tree:
            return MergedTree(*await self._git.merge_tree(ours, theirs))
        return await self._merge_in_folder(ancestors, ours, theirs)

    async def _merge_in_folder(self, ancestors: list[str], ours: str, theirs: str) -> MergedTree:
        """Merge in a scratch folder with its own index, for an old Git; HEAD and refs stay as they are."""
        with tempfile.TemporaryDirectory(dir=self._folder.parent, prefix="files-") as folder:
            env = {"GIT_INDEX_FILE": f"{folder}.index", "GIT_WORK_TREE": folder, **_TEMPORARY_IDENTITY}
            git = Git(self._git.host, Path(folder), {**self._git.environment, **env})
            try:
                await git.run("read-tree", "-m", "-u", ours, config=git.missing_lfs_config(), timeout=None)
                sides = ("merge-recursive", *ancestors, "--", ours, theirs)
                result = await git.run(*sides, config=git.missing_lfs_config(), ok=(0, 1), timeout=None)
                if not result.code:
                    return MergedTree(await git.text("write-tree"), ())
                listing = (await git.run("ls-files", "--unmerged", "-z")).out.split(b"\0")
                return MergedTree(
                    "", tuple(dict.fromkeys(os.fsdecode(line.partition(b"\t")[2]) for line in listing if line))
                )
            finally:
                Path(f"{folder}.index").unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def open_merger(repository: Repository, work: Path, base: str) -> AsyncIterator[Merger]:
    """Yield a merger for a base; its scratch files are removed afterwards."""
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work, prefix="merge-") as scratch:
        folder = Path(scratch, "attributes")
        folder.mkdir()
        env = {"GIT_DIR": str(repository.common), "GIT_WORK_TREE": str(folder)}
        git = Git(repository.git.host, folder, env)
        await write_attributes(git, base, folder)
        yield Merger(git, folder, await git.version())


async def write_attributes(git: Git, base: str, folder: Path) -> None:
    """Write the base's attribute files (`merge=union`) to a folder, because Git would otherwise read those of a checkout.

    Raises `Conflict` if there are too many.
    """
    listing = (await git.run("ls-tree", "-r", "-z", base)).out.split(b"\0")
    pairs = (line.partition(b"\t")[::2] for line in listing)
    attribute_files = [
        (metadata.split()[2].decode(), os.fsdecode(name))
        for metadata, name in pairs
        if name.rpartition(b"/")[2] == b".gitattributes" and metadata.startswith(b"100")
    ]
    if len(attribute_files) > MAX_ATTRIBUTE_FILES:
        raise Conflict(f"{base[:12]} has more than {MAX_ATTRIBUTE_FILES:,} .gitattributes", "join them in a few")
    for blob, name in attribute_files:
        with contextlib.suppress(
            UnsafePath, FileExistsError, NotADirectoryError, IsADirectoryError
        ):  # no checkout can have such a file
            target = folder.joinpath(*git_path_parts(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            if int(await git.text("cat-file", "-s", blob)) <= MAX_FILE_BYTES:
                target.write_bytes((await git.run("cat-file", "blob", blob)).out)
