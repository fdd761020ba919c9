"""A folder with exactly one commit in it, and the project's set-up: made for a check, outside of every workspace.

It is a repository of its own that borrows the user's objects: nothing is registered in his repository, and nothing that a check does
with Git reaches it. Where the project has set-up commands, the folder is kept for the next check with the same lock files
and commands (`prepared.py`), and all but what the set-up made is taken away and written anew. What several changes use is made on their
base: no change's own scripts make what another one, or its own next commit, is checked by.
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
from agent_orchestrator.changes.checks import prepared
from agent_orchestrator.changes.checks.process import end_leftover
from agent_orchestrator.changes.checks.spec import CheckSpec, Limits, digest, file_name
from agent_orchestrator.errors import NotFound
from agent_orchestrator.plugins.workspaces import contents
from agent_orchestrator.plugins.workspaces.clone import borrow, own_config, refs_of_clone
from agent_orchestrator.plugins.workspaces.git_workspace import Source, remove_tree
from agent_orchestrator.plugins.workspaces.submodules import fill_submodules
from agent_orchestrator.protocols import Report, WorkspaceSpec
from agent_orchestrator.protocols.host import Host

_LOCK_FILES = re.compile(
    r"(?:.*/)?(?:package-lock\.json|npm-shrinkwrap\.json|pnpm-lock\.yaml|yarn\.lock|bun\.lockb?|deno\.lock|uv\.lock|poetry\.lock|pdm\.lock"
    r"|Pipfile\.lock|[^/]{0,255}requirements[^/]{0,255}\.(?:txt|in|lock)|pyproject\.toml|setup\.(?:py|cfg)|package\.json|Cargo\.lock|go\.(?:sum|mod)"
    r"|Gemfile\.lock|composer\.lock|mix\.lock|gradle\.lockfile|flake\.lock|[^/]*\.lock|(?:GNU)?[Mm]akefile|[Jj]ustfile)"
)
"""Files that decide what a set-up makes: lock files, what stands in for them where there is none, and what commands go by."""
_BETWEEN_WORDS = re.compile(r"(?:>+\s*[^\s;&|]*|[\s;&|<()'\"=])+")
"""In a command; what it writes to counts as such."""

SetUp = Callable[[Path], Awaitable[None]]
"""Runs the project's set-up commands in a checkout's `tree`; takes the folder around it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A check's commit, found."""

    git: Git
    layout: Layout
    commit: str
    tree: str
    set_up: str
    """Stands for everything that the project adds to the commit."""


@dataclass(frozen=True, slots=True)
class SetUpAt:
    """The commit that a set-up is made at, and what it is known by to those who may use it."""

    commit: str
    name: str


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder for one check at a time: `tree` has the commit, our own files are beside it."""

    beside: Path

    @property
    def tree(self) -> Path:
        """Where the check runs."""
        return self.beside / "tree"

    @property
    def pytest_report(self) -> Path:
        """Where pytest writes its report for us."""
        return self.beside / "pytest.xml"


async def find(host: Host, spec: CheckSpec) -> Asked:
    """Find a check's commit and what its set-up depends on. Raises `NotFound`."""
    git = Git(host, spec.repo)
    layout = await git.layout()
    if layout is None:
        problem = "is not a Git repository" if spec.repo.is_dir() else "is not there"
        raise NotFound(f"{spec.repo} {problem}", "give the project's repository")
    names = "" if "\n" in spec.commit else f"{spec.commit}^{{commit}}\n{spec.commit}^{{tree}}\n"
    lines = (await git.run("cat-file", "--batch-check", input=names.encode(errors="surrogateescape"))).text.splitlines()
    found = [words[0] for line in lines if (words := line.split())[1:2] in (["commit"], ["tree"])]
    if len(found) != 2:
        raise NotFound(
            f"{spec.repo} has no commit {spec.commit!r}", "it may have been collected; check the branch's head"
        )
    return Asked(git, layout, found[0], found[1], await _added(spec, git, layout, found[1]))


async def _added(spec: CheckSpec, git: Git, layout: Layout, tree: str) -> str:
    """Stands for everything that the project adds to a tree."""
    locks = await _lock_files(git, tree, spec.post_create) if spec.post_create else []
    copied = await asyncio.to_thread(_copied, layout.top, spec.copy) if layout.top and spec.copy else []
    return digest(spec.post_create, spec.symlinks, spec.copy, locks, copied)


async def _lock_files(git: Git, tree: str, commands: tuple[str, ...]) -> list[str]:
    """With the files that the set-up's commands name."""
    listing = (await git.run("ls-tree", "-r", "-z", "--full-tree", tree)).out
    named = {posixpath.normpath(word) for command in commands for word in _BETWEEN_WORDS.split(command)}

    def chosen() -> list[str]:
        entries = listing.decode(errors="backslashreplace").split("\0")
        pairs = ((entry, entry.partition("\t")[2]) for entry in entries)
        return [entry for entry, name in pairs if name in named or _LOCK_FILES.fullmatch(name)]

    return await asyncio.to_thread(chosen)


async def made_at(spec: CheckSpec, asked: Asked) -> SetUpAt:
    """Where a check's set-up is made: on the base, if that has the same lock files; else for this content alone."""
    if not spec.post_create or spec.base is None:
        return SetUpAt(asked.commit, asked.set_up)
    base = await asked.git.resolve(f"refs/heads/{spec.base}")
    if base and await _added(spec, asked.git, asked.layout, base) == asked.set_up:
        return SetUpAt(base, digest(asked.set_up, spec.base))
    return alone(asked)


def alone(asked: Asked) -> SetUpAt:
    """A set-up that nothing but this content uses."""
    return SetUpAt(asked.commit, digest(asked.set_up, asked.tree))


def _copied(top: Path, patterns: tuple[str, ...]) -> list[str]:
    """What the copied files hold just now."""
    found = []
    for pattern in patterns:
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            for file in sorted(top.glob(pattern)):
                if file.is_file():
                    content = hashlib.sha256(file.read_bytes()).hexdigest()
                    found.append(f"{file.relative_to(top)} {content}".encode(errors="replace").decode())
    return found


class Checkouts:
    """The checkouts of a home. One daemon uses them, so who uses which is known in memory alone."""

    def __init__(self, folder: Path, host: Host, limits: Limits) -> None:
        self._folder = folder
        self._host = host
        self._limits = limits
        self._used: set[Path] = set()

    async def take(self, spec: CheckSpec, asked: Asked, at: SetUpAt, set_up: SetUp, report: Report) -> Checkout:
        """A clean checkout of the commit, set up; nobody else gets it until it is given back."""
        name = f"{at.name[:12]}-"
        ready = self._prepared(spec.project) if spec.post_create and not spec.from_scratch else []
        for checkout in [Checkout(beside) for beside in ready if beside.name.startswith(name)]:
            if checkout.beside in self._used:
                continue
            async with self._taking(checkout):
                if await asyncio.to_thread(prepared.sweep, checkout.beside):
                    await self._filled(checkout, spec, asked, report)
                    return checkout
            report("what the set-up made has been changed since: it is made anew")
            await self.discard(checkout)
        checkout = Checkout(self._fresh(spec.project, name))
        async with self._taking(checkout):
            await self._filled(checkout, spec, replace(asked, commit=at.commit), report)
            await self._shared(checkout, spec, asked, report)
            if spec.post_create:
                await set_up(checkout.beside)
                await prepared.remember(Git(self._host, checkout.tree), checkout.beside)
                # The set-up may have changed files of the commit.
                await asyncio.to_thread(prepared.sweep, checkout.beside)
                await self._filled(checkout, spec, asked, report)
        return checkout

    @contextlib.asynccontextmanager
    async def _taking(self, checkout: Checkout) -> AsyncIterator[None]:
        """It is ours from now on; if that comes to nothing, it goes."""
        self._used.add(checkout.beside)
        try:
            yield
        except BaseException:
            await asyncio.shield(self.discard(checkout))
            raise

    async def give_back(self, spec: CheckSpec, checkout: Checkout) -> None:
        """The check is over: keep what took long to set up, remove the rest."""
        if not prepared.is_ready(checkout.beside):
            await self.discard(checkout)
            return
        prepared.touch(checkout.beside)
        self._used.discard(checkout.beside)
        for old in self._prepared(spec.project)[self._limits.prepared :]:
            await self.discard(Checkout(old))

    async def discard(self, checkout: Checkout) -> None:
        """Remove a checkout; what cannot be removed just now is removed by the next daemon."""
        self._used.add(checkout.beside)
        with contextlib.suppress(OSError):
            prepared.forget(checkout.beside)
            await asyncio.to_thread(remove_tree, checkout.beside)
        self._used.discard(checkout.beside)

    async def recover(self) -> None:
        """End what a daemon that is no more left running, and remove the checkouts it was using."""
        for beside in self._folder.glob("*/*"):
            run_file = beside / "run.json"
            if run_file.exists():
                await end_leftover(self._host, run_file)
            if run_file.exists() or not prepared.is_ready(beside):
                await self.discard(Checkout(beside))

    def _prepared(self, project: str) -> list[Path]:
        """Set-up checkouts that nobody uses, the last used first."""
        folders = [folder for folder in (self._folder / file_name(project)).glob("*-*") if folder not in self._used]
        return sorted((folder for folder in folders if prepared.is_ready(folder)), key=prepared.used_at, reverse=True)

    def _fresh(self, project: str, name: str) -> Path:
        parent = self._folder / file_name(project)
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = 1
        while True:
            beside = parent / f"{name}{number}"
            try:
                beside.mkdir(mode=0o700)
            except FileExistsError:
                number += 1
                continue
            return beside

    async def _filled(self, checkout: Checkout, spec: CheckSpec, asked: Asked, report: Report) -> None:
        """Make the Git folder anew and write the commit's files."""
        config, local, refs = await asyncio.gather(
            asked.git.config(),
            asked.git.config("--local"),
            asked.git.refs("refs/heads", "refs/remotes/origin", "refs/tags"),
        )
        source = Source(asked.git, asked.layout, config)
        known = refs_of_clone(refs, config)
        base = f"refs/heads/{spec.base}"
        if base in refs:
            known[base] = refs[base]
        git_dir = checkout.tree / ".git"
        await asyncio.to_thread(_make_git_dir, git_dir, asked, own_config(source, local), known)
        inside = Git(self._host, checkout.tree)
        try:
            await inside.fill()
        except GitFailed as error:
            if "lfs" not in error.stderr:
                raise
            await inside.fill(env={"GIT_LFS_SKIP_SMUDGE": "1"})
            report("large files could not be fetched and stay pointers")
        notes: list[str] = []
        await fill_submodules(inside, asked.layout, config, notes)
        for note in notes:
            report(note)

    async def _shared(self, checkout: Checkout, spec: CheckSpec, asked: Asked, report: Report) -> None:
        """Copy and link what the project names, as in a workspace."""
        notes: list[str] = []
        place = WorkspaceSpec(
            session="",
            repo=spec.repo,
            path=checkout.tree,
            link=None,
            private=checkout.beside,
            branch="",
            base=asked.commit,
            copy=spec.copy,
            symlinks=spec.symlinks,
        )
        await contents.share(Git(self._host, checkout.tree), place, asked.layout, notes)
        for note in notes:
            report(note)


def _make_git_dir(git_dir: Path, asked: Asked, config: str, refs: dict[str, str]) -> None:
    """What `git init` makes, at a commit: written by hand, for a process would take longer."""
    remove_tree(git_dir)
    (git_dir / "refs").mkdir(parents=True)
    borrow(git_dir, asked.layout)
    long = len(asked.commit) > 40
    core = f"[core]\n\trepositoryformatversion = {int(long)}\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
    extensions = "[extensions]\n\tobjectformat = sha256\n" if long else ""
    (git_dir / "config").write_text(core + extensions + config, errors="surrogateescape")
    packed = "".join(f"{sha} {name}\n" for name, sha in sorted(refs.items()))
    (git_dir / "packed-refs").write_text(packed, errors="surrogateescape")
    (git_dir / "HEAD").write_text(f"{asked.commit}\n")
