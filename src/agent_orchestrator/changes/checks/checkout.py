"""Make a folder with exactly one commit and the project's set-up for a check, outside of every workspace (`Checkouts`).

The folder is a separate repository that borrows the objects of the user's repository: nothing is registered in the user's repository,
and no Git command of a check reaches it. If the project has set-up commands, the folder is kept for the next check with the same lock
files and commands (`set_up_files.py`); everything except the output of the set-up is removed and written again. A set-up that several
changes use is made at their base: a change's own scripts never produce what another change, or its own next commit, is checked with.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import posixpath
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agent_orchestrator.base.git.commands import Git, GitFailed, Layout
from agent_orchestrator.changes.checks import set_up_files
from agent_orchestrator.changes.checks.process import end_leftover
from agent_orchestrator.changes.checks.spec import CheckSpec, Limits, digest, safe_file_name
from agent_orchestrator.errors import NotFound
from agent_orchestrator.plugins.workspaces import copied_and_linked_files
from agent_orchestrator.plugins.workspaces.clone import clone_config, refs_of_clone, share_objects
from agent_orchestrator.plugins.workspaces.git_workspace import remove_tree
from agent_orchestrator.plugins.workspaces.start_point import SourceRepository
from agent_orchestrator.plugins.workspaces.submodules import fill_submodules
from agent_orchestrator.protocols import LineCallback, WorkspaceSpec
from agent_orchestrator.protocols.host import Host

_LOCK_FILES = re.compile(
    r"(?:.*/)?(?:package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|yarn\.lock|bun\.lockb?|deno\.lock|uv\.lock|poetry\.lock|pdm\.lock"
    r"|Pipfile\.lock|[^/]{0,255}requirements[^/]{0,255}\.(?:txt|in|lock)|pyproject\.toml|setup\.(?:py|cfg)|package\.json|Cargo\.lock|go\.(?:sum|mod)"
    r"|Gemfile\.lock|composer\.lock|mix\.lock|gradle\.lockfile|flake\.lock|[^/]*\.lock|(?:GNU)?[Mm]akefile|[Jj]ustfile)"
)
"""Files that decide what a set-up produces: lock files, the files used where there is none, and files that commands depend on."""
_WORD_SEPARATORS = re.compile(r"(?:>+\s*[^\s;&|]*|[\s;&|<()'\"=])+")
"""Separators between the words of a command; a redirection and its target file count as a separator."""

SetUp = Callable[[Path], Awaitable[None]]
"""Runs the project's set-up commands in a checkout's `tree`; takes the folder around it."""


@dataclass(frozen=True, slots=True)
class ResolvedCommit:
    """The commit of a check, resolved in the repository."""

    git: Git
    layout: Layout
    commit: str
    tree: str
    set_up: str
    """Digest of everything that the project adds to the commit."""


@dataclass(frozen=True, slots=True)
class SetUpCommit:
    """The commit at which a set-up is made, and the name under which a prepared checkout can be used again."""

    commit: str
    name: str


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder for one check at a time: `tree` contains the commit; our own files are next to it."""

    folder: Path

    @property
    def tree(self) -> Path:
        """The folder in which the check runs."""
        return self.folder / "tree"

    @property
    def pytest_report(self) -> Path:
        """The file to which pytest writes its report for us."""
        return self.folder / "pytest.xml"


async def resolve_commit(host: Host, spec: CheckSpec) -> ResolvedCommit:
    """Resolve a check's commit and what its set-up depends on. Raises `NotFound`."""
    git = Git(host, spec.repo)
    layout = await git.layout()
    if layout is None:
        problem = "is not a Git repository" if spec.repo.is_dir() else "is not there"
        raise NotFound(f"{spec.repo} {problem}", "give the project's repository")
    queries = "" if "\n" in spec.commit else f"{spec.commit}^{{commit}}\n{spec.commit}^{{tree}}\n"
    lines = (
        await git.run("cat-file", "--batch-check", input=queries.encode(errors="surrogateescape"))
    ).text.splitlines()
    object_ids = [words[0] for line in lines if (words := line.split())[1:2] in (["commit"], ["tree"])]
    if len(object_ids) != 2:
        raise NotFound(
            f"{spec.repo} has no commit {spec.commit!r}", "it may have been collected; check the branch's head"
        )
    return ResolvedCommit(
        git, layout, object_ids[0], object_ids[1], await _set_up_digest(spec, git, layout, object_ids[1])
    )


async def _set_up_digest(spec: CheckSpec, git: Git, layout: Layout, tree: str) -> str:
    """Return a digest of everything that the project adds to a tree: set-up commands, lock files, links and copied files."""
    lock_entries = await _lock_files(git, tree, spec.post_create) if spec.post_create else []
    copied_files = (
        await asyncio.to_thread(_copied_file_digests, layout.top, spec.copy) if layout.top and spec.copy else []
    )
    return digest(spec.post_create, spec.symlinks, spec.copy, lock_entries, copied_files)


async def _lock_files(git: Git, tree: str, commands: tuple[str, ...]) -> list[str]:
    """Return the `ls-tree` entries of a tree's lock files and of the files that the set-up commands name."""
    listing = (await git.run("ls-tree", "-r", "-z", "--full-tree", tree)).out
    named_files = {posixpath.normpath(word) for command in commands for word in _WORD_SEPARATORS.split(command)}

    def select_entries() -> list[str]:
        entries = listing.decode(errors="backslashreplace").split("\0")
        pairs = ((entry, entry.partition("\t")[2]) for entry in entries)
        return [entry for entry, name in pairs if name in named_files or _LOCK_FILES.fullmatch(name)]

    return await asyncio.to_thread(select_entries)


async def choose_set_up_commit(spec: CheckSpec, commit: ResolvedCommit) -> SetUpCommit:
    """Return where a check's set-up is made: at the base, if it has the same lock files; otherwise for this content alone."""
    if not spec.post_create or spec.base is None:
        return SetUpCommit(commit.commit, commit.set_up)
    base = await commit.git.resolve(f"refs/heads/{spec.base}")
    if base and await _set_up_digest(spec, commit.git, commit.layout, base) == commit.set_up:
        return SetUpCommit(base, digest(commit.set_up, spec.base))
    return isolated_set_up(commit)


def isolated_set_up(commit: ResolvedCommit) -> SetUpCommit:
    """Return a set-up that only this content uses."""
    return SetUpCommit(commit.commit, digest(commit.set_up, commit.tree))


def _copied_file_digests(top: Path, patterns: tuple[str, ...]) -> list[str]:
    """Return the relative path and the current digest of each file that matches the patterns."""
    digests = []
    for pattern in patterns:
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            for file in sorted(top.glob(pattern)):
                if file.is_file():
                    content = hashlib.sha256(file.read_bytes()).hexdigest()
                    digests.append(f"{file.relative_to(top)} {content}".encode(errors="replace").decode())
    return digests


class Checkouts:
    """The checkouts of a home. Only one daemon uses them, so which of them are in use is kept in memory."""

    def __init__(self, folder: Path, host: Host, limits: Limits) -> None:
        self._folder = folder
        self._host = host
        self._limits = limits
        self._in_use: set[Path] = set()

    async def acquire(
        self, spec: CheckSpec, commit: ResolvedCommit, at: SetUpCommit, set_up: SetUp, report: LineCallback
    ) -> Checkout:
        """Return a clean checkout of the commit with its set-up, reserved for the caller until `release`."""
        prefix = f"{at.name[:12]}-"
        prepared_folders = (
            self._idle_prepared_folders(spec.project) if spec.post_create and not spec.from_scratch else []
        )
        for checkout in [Checkout(folder) for folder in prepared_folders if folder.name.startswith(prefix)]:
            if checkout.folder in self._in_use:
                continue
            async with self._reserve(checkout):
                if await asyncio.to_thread(set_up_files.remove_other_files, checkout.folder):
                    await self._write_commit(checkout, spec, commit, report)
                    return checkout
            report("what the set-up made has been changed since: it is made anew")
            await self.discard(checkout)
        checkout = Checkout(self._create_folder(spec.project, prefix))
        async with self._reserve(checkout):
            await self._write_commit(checkout, spec, replace(commit, commit=at.commit), report)
            await self._share_project_files(checkout, spec, commit, report)
            if spec.post_create:
                await set_up(checkout.folder)
                await set_up_files.record_set_up_files(Git(self._host, checkout.tree), checkout.folder)
                # Write the commit's files again: the set-up may have changed them.
                await asyncio.to_thread(set_up_files.remove_other_files, checkout.folder)
                await self._write_commit(checkout, spec, commit, report)
        return checkout

    @contextlib.asynccontextmanager
    async def _reserve(self, checkout: Checkout) -> AsyncIterator[None]:
        """Reserve a checkout; discard it if the block raises."""
        self._in_use.add(checkout.folder)
        try:
            yield
        except BaseException:
            await asyncio.shield(self.discard(checkout))
            raise

    async def release(self, spec: CheckSpec, checkout: Checkout) -> None:
        """Release a checkout after its check: keep it if its set-up is finished, and remove what exceeds the limit."""
        if not set_up_files.is_ready(checkout.folder):
            await self.discard(checkout)
            return
        set_up_files.mark_used(checkout.folder)
        self._in_use.discard(checkout.folder)
        for folder in self._idle_prepared_folders(spec.project)[self._limits.max_prepared :]:
            await self.discard(Checkout(folder))

    async def discard(self, checkout: Checkout) -> None:
        """Remove a checkout; if that fails now, the next daemon removes it."""
        self._in_use.add(checkout.folder)
        with contextlib.suppress(OSError):
            set_up_files.mark_not_ready(checkout.folder)
            await asyncio.to_thread(remove_tree, checkout.folder)
        self._in_use.discard(checkout.folder)

    async def recover(self) -> None:
        """End processes that an earlier daemon left running, and remove the checkouts it was using."""
        for folder in self._folder.glob("*/*"):
            run_file = folder / "run.json"
            if run_file.exists():
                await end_leftover(self._host, run_file)
            if run_file.exists() or not set_up_files.is_ready(folder):
                await self.discard(Checkout(folder))

    def _idle_prepared_folders(self, project: str) -> list[Path]:
        """Return the project's prepared checkouts that are not in use, most recently used first."""
        folders = [
            folder for folder in (self._folder / safe_file_name(project)).glob("*-*") if folder not in self._in_use
        ]
        return sorted(
            (folder for folder in folders if set_up_files.is_ready(folder)), key=set_up_files.last_used_at, reverse=True
        )

    def _create_folder(self, project: str, prefix: str) -> Path:
        """Create and return a new folder for a checkout: the prefix with the first free number."""
        parent = self._folder / safe_file_name(project)
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = 1
        while True:
            folder = parent / f"{prefix}{number}"
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                number += 1
                continue
            return folder

    async def _write_commit(
        self, checkout: Checkout, spec: CheckSpec, resolved: ResolvedCommit, report: LineCallback
    ) -> None:
        """Replace the checkout's `.git` by one that is at the commit, and write the files of the commit and of its submodules."""
        config, local_config, refs = await asyncio.gather(
            resolved.git.config(),
            resolved.git.config("--local"),
            resolved.git.refs("refs/heads", "refs/remotes/origin", "refs/tags"),
        )
        source = SourceRepository(resolved.git, resolved.layout, config)
        clone_refs = refs_of_clone(refs, config)
        base = f"refs/heads/{spec.base}"
        if base in refs:
            clone_refs[base] = refs[base]
        git_dir = checkout.tree / ".git"
        await asyncio.to_thread(_make_git_dir, git_dir, resolved, clone_config(source, local_config), clone_refs)
        tree_git = Git(self._host, checkout.tree)
        try:
            await tree_git.checkout_files()
        except GitFailed as error:
            if "lfs" not in error.stderr:
                raise
            await tree_git.checkout_files(env={"GIT_LFS_SKIP_SMUDGE": "1"})
            report("large files could not be fetched and stay pointers")
        notes: list[str] = []
        await fill_submodules(tree_git, resolved.layout, config, notes)
        for note in notes:
            report(note)

    async def _share_project_files(
        self, checkout: Checkout, spec: CheckSpec, resolved: ResolvedCommit, report: LineCallback
    ) -> None:
        """Copy and link the files that the project configuration names, as in a workspace."""
        notes: list[str] = []
        workspace = WorkspaceSpec(
            session="",
            repo=spec.repo,
            path=checkout.tree,
            link=None,
            private=checkout.folder,
            branch="",
            base=resolved.commit,
            copy=spec.copy,
            symlinks=spec.symlinks,
        )
        await copied_and_linked_files.share_files(Git(self._host, checkout.tree), workspace, resolved.layout, notes)
        for note in notes:
            report(note)


def _make_git_dir(git_dir: Path, resolved: ResolvedCommit, config: str, refs: dict[str, str]) -> None:
    """Write what `git init` creates, at a commit, without a process because that would take longer."""
    remove_tree(git_dir)
    (git_dir / "refs").mkdir(parents=True)
    share_objects(git_dir, resolved.layout)
    is_sha256 = len(resolved.commit) > 40
    core = f"[core]\n\trepositoryformatversion = {int(is_sha256)}\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
    extensions = "[extensions]\n\tobjectformat = sha256\n" if is_sha256 else ""
    (git_dir / "config").write_text(core + extensions + config, errors="surrogateescape")
    packed = "".join(f"{sha} {name}\n" for name, sha in sorted(refs.items()))
    (git_dir / "packed-refs").write_text(packed, errors="surrogateescape")
    (git_dir / "HEAD").write_text(f"{resolved.commit}\n")
