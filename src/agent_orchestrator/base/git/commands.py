"""Every Git command there is, typed.

Nothing here asks a question: no prompt, no pager, no hook, no file-system monitor, no garbage collection. No remote is a command
(`ext::`), no submodule is entered unasked, no object is another than it is named. What can be read from Git's files without a process is
in `refs.py`.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from weakref import WeakValueDictionary

from agent_orchestrator.base.git.fifo_guard import answered
from agent_orchestrator.base.git.refs import Layout as Layout
from agent_orchestrator.base.git.refs import find_layout as find_layout
from agent_orchestrator.base.git.refs import read_head as read_head
from agent_orchestrator.base.git.refs import valid_branch as valid_branch
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols.host import Completed, Host

ABSENT = ""
"""As the old value of a ref: it must not exist yet."""

_REPOSITORY_VARIABLES = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_OBJECT_DIRECTORY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_REPLACE_REF_BASE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_EXTERNAL_DIFF",
    "GIT_LITERAL_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
}
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ASKPASS": "",
    "GCM_INTERACTIVE": "never",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
_SETTINGS = {
    "core.hookspath": os.devnull,
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "submodule.recurse": "false",
}
_ALWAYS = tuple(part for key, value in _SETTINGS.items() for part in ("-c", f"{key}={value}"))
LONG = 1800.0
"""Seconds after which what takes long is taken to hang: on a pipe in the place of a file, say."""
SHOWN_WITHIN = 45.0
"""Seconds for what somebody waits to see: his client waits no longer than 60."""
_ODD = (
    "badDate",
    "badTimezone",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "zeroPaddedFilemode",
    "zeroPaddedDate",
    "missingTaggerEntry",
    "nullSha1",
    "badTagName",
)
CHECKED = ("fetch.fsckObjects=true", *(f"fetch.fsck.{name}=warn" for name in _ODD))
"""Configuration for fetching from where an agent writes objects: none that would deceive Git, but what old histories are odd in."""
LFS_OFF = ("filter.lfs.smudge=", "filter.lfs.clean=", "filter.lfs.process=", "filter.lfs.required=false")
"""Configuration that keeps large-file pointers as they are, for machines without git-lfs."""

PARALLEL = f"checkout.workers={min(8, os.cpu_count() or 1)}"
"""Configuration for writing very many files: a process a core, for one alone waits for the disk. More gain nothing, and with many cores
they are in the way of the next workspace. Below a hundred files Git starts none."""
SPARSE = ("core.sparseCheckout=true", "core.sparseCheckoutCone=true")
"""Configuration of a checkout that has only some folders. Given by each command: in a worktree's files it would need a setting that all
worktrees of the repository share."""
SPARSE_MARK = "ao-sparse"
"""In a checkout's Git folder: we made it sparse."""

_AT_MOST = 'most=$1; shift; { "$@"; echo "$?" >&2; } | head -c "$most"'
_CUT_OFF = 128 + signal.SIGPIPE

_HELD = re.compile(r"\.lock'?: File exists|could not lock|Unable to create .*\.lock|failed to read .*commondir")


_SHORT = re.compile(
    "No space left on device|Out of diskspace|Disk quota exceeded|Read-only file system|Too many open files"
    "|Cannot allocate memory|[Uu]nable to write new index file|cannot open shared object file: Error 24"
)
"""What the machine lacks this moment: the same may work later."""


class GitFailed(AoError):
    """A Git command failed; `stderr` is all that it said."""

    def __init__(self, argv: Sequence[str], where: Path, done: Completed) -> None:
        self.code = done.code
        self.stderr = done.err.decode(errors="replace")
        said = [line for line in self.stderr.splitlines() if line.startswith(("fatal:", "error:"))]
        reason = (said[0] if said else done.error) or f"exit code {done.code}"
        full = re.search(r"No space left on device|unable to write|write error", self.stderr)
        super().__init__(
            f"git {argv[0]} failed in {where}: {reason}",
            "free some disk space, or see whether the folder may be written" if full else "",
        )
        self.retryable = done.code < 0 or bool(_SHORT.search(self.stderr))  # somebody killed it; or it lacked something


@dataclass(frozen=True, slots=True)
class WorktreeEntry:
    """One checkout of a repository."""

    path: Path
    head: str | None = None
    branch: str | None = None
    bare: bool = False
    locked: bool = False
    prunable: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of `git status`: `xy` as Git prints it (`M.`, `.M`, `UU`, `??`), `sub` its submodule field."""

    xy: str
    path: str
    sub: str = "N..."
    blobs: tuple[str, ...] = ()
    """What the index holds for it: one blob, or up to three of a conflict."""


class Config(dict[str, list[str]]):
    """Git's effective configuration: every value of every key, keys as Git prints them."""

    def last(self, key: str) -> str | None:
        """The value that counts."""
        values = self.get(key)
        return values[-1] if values else None

    def true(self, key: str) -> bool:
        """Is it switched on?"""
        return (self.last(key) or "").lower() in ("true", "yes", "on", "1")


_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


def repository_lock(common: Path) -> asyncio.Lock:
    """The lock around what writes files that all worktrees of a repository share."""
    key = str(common.resolve())
    lock = _locks.get(key)
    if lock is None:
        lock = _locks[key] = asyncio.Lock()
    return lock


def clean_environment() -> dict[str, str]:
    """Our environment without the variables that would point Git at some other repository, and without its prompts."""
    environment = {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}
    return {**environment, **_QUIET}


class Git:
    """Git in one repository or worktree."""

    def __init__(self, host: Host, repo: Path, env: Mapping[str, str] | None = None) -> None:
        self.host = host
        self.repo = repo
        self.environment = dict(env or {})

    async def run(
        self,
        *argv: str,
        config: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 - subprocess's own name
        ok: Sequence[int] = (0,),
        timeout: float | None = 120.0,
        most: int | None = None,
    ) -> Completed:
        """Run one Git command, at most for `LONG`; waits a little for locks that somebody else holds. Raises `GitFailed`.

        `most`: it is ended as soon as it has said so many bytes.
        """
        command, environment = self._command(argv, config), self._environment(env)
        if most is not None:
            command = ["sh", "-c", _AT_MOST, "sh", str(most), *command]
        pause = 0.02
        while True:
            async with answered(self.repo) if isinstance(self.host, LocalHost) else nullcontext():
                done = await self.host.run(command, env=environment, input=input, timeout=timeout or LONG)
            done = done if most is None else _ended_early(done)
            if done.code in ok:
                return done
            if not _HELD.search(done.err.decode(errors="replace")):
                raise GitFailed(argv, self.repo, done)
            if pause > 1.5:
                held = GitFailed(argv, self.repo, done)
                raise Temporary(held.text, "another Git process holds the lock; if none runs, remove the lock file")
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause *= 2

    def talk(
        self, *argv: str, log: Path, config: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Run one that is spoken to by its pipes; its complaints go to a file."""
        return self.host.talk(self._command(argv, config), log=log, env=self._environment(env))

    def _command(self, argv: Sequence[str], config: Sequence[str]) -> list[str]:
        settings = (*SPARSE, *config) if self._is_sparse() else config
        options = [part for setting in settings for part in ("-c", setting)]
        return ["git", "--no-pager", *_ALWAYS, *options, "-C", str(self.repo), *argv]

    def _is_sparse(self) -> bool:
        layout = find_layout(self.repo) if isinstance(self.host, LocalHost) else None
        return layout is not None and (layout.git_dir / SPARSE_MARK).exists()

    def _environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        return {**clean_environment(), **self.environment, **(env or {})}

    async def text(self, *argv: str, env: Mapping[str, str] | None = None, input: bytes | None = None) -> str:  # noqa: A002
        """Run one Git command and return its output without the last newline."""
        done = await self.run(*argv, env=env, input=input)
        return done.out.decode(errors="surrogateescape").removesuffix("\n")

    # -- the repository ------------------------------------------------------------------------------------------------

    async def version(self) -> tuple[int, ...]:
        """Git's version, as numbers."""
        found = re.search(r"(\d+(?:\.\d+)+)", await self.text("version"))
        return tuple(int(part) for part in found.group(1).split(".")) if found else (0,)

    async def layout(self) -> Layout | None:
        """Where the repository is that this folder belongs to; none: it belongs to none."""
        found = find_layout(self.repo)
        if found is not None or not self.repo.is_dir():
            return found
        done = await self.run("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", ok=(0, 128))
        if done.code:
            return None
        git_dir, common = done.out.decode(errors="surrogateescape").splitlines()
        top = await self.run("rev-parse", "--show-toplevel", ok=(0, 128))
        shown = top.out.decode(errors="surrogateescape").removesuffix("\n")
        return Layout(Path(shown) if not top.code and shown else None, Path(git_dir), Path(common))

    async def is_bare(self) -> bool:
        """Is it a repository without a checkout?"""
        return await self.text("rev-parse", "--is-bare-repository") == "true"

    async def config(self, *scope: str) -> Config:
        """All configuration in force, or that of one scope (`--local`)."""
        found = Config()
        done = await self.run("config", *scope, "--list", "-z")
        for entry in done.out.decode(errors="surrogateescape").split("\0"):
            key, separator, value = entry.partition("\n")
            if key:
                found.setdefault(key, []).append(value if separator else "true")
        for key in () if scope else _SETTINGS:
            found[key].pop()
        return found

    async def current_branch(self) -> str | None:
        """The branch that is checked out; none when HEAD is detached."""
        done = await self.run("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1))
        return done.text.strip() or None

    async def default_branch(self, remote: str = "origin") -> str | None:
        """The branch that work starts from: the remote's own word, else `main`, `master`, or what is checked out."""
        head = await self.run("symbolic-ref", "--quiet", f"refs/remotes/{remote}/HEAD", ok=(0, 1))
        if not head.code:
            return head.text.strip().removeprefix(f"refs/remotes/{remote}/")
        names = await self.refs("refs/heads", f"refs/remotes/{remote}")
        for name in ("main", "master"):
            if f"refs/heads/{name}" in names or f"refs/remotes/{remote}/{name}" in names:
                return name
        return await self.current_branch()

    # -- refs and commits ----------------------------------------------------------------------------------------------

    async def resolve(self, ref: str, kind: str = "commit") -> str | None:
        """The commit (or other kind of object) that a name stands for; none if it stands for nothing."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{{kind}}}")
        done = await self.run(*words, ok=(0, 1, 128))
        if done.code == 128 and (failed := GitFailed(words, self.repo, done)).retryable:
            raise failed
        return done.text.strip() or None if not done.code else None

    async def branch_exists(self, name: str) -> bool:
        """Is there a local branch of this name?"""
        return (await self.run("show-ref", "--verify", "--quiet", f"refs/heads/{name}", ok=(0, 1))).code == 0

    async def refs(self, *patterns: str) -> dict[str, str]:
        """Ref name → object, for all refs at or below the given names; tags are not peeled."""
        done = await self.run("for-each-ref", "--format=%(objectname) %(refname)", *patterns)
        lines = done.out.decode(errors="surrogateescape").splitlines()
        return {name: sha for sha, _, name in (line.partition(" ") for line in lines)}

    async def is_ancestor(self, older: str, newer: str) -> bool:
        """Does `newer` contain `older`?"""
        return (await self.run("merge-base", "--is-ancestor", "--end-of-options", older, newer, ok=(0, 1))).code == 0

    async def merge_base(self, a: str, b: str) -> str | None:
        """The best common ancestor."""
        done = await self.run("merge-base", "--end-of-options", a, b, ok=(0, 1))
        return done.text.strip().partition("\n")[0] or None

    async def count(self, *revisions: str) -> int:
        """How many commits `revisions` (`base..head`) stand for."""
        return int(await self.text("rev-list", "--count", "--end-of-options", *revisions, "--"))

    async def update_ref(self, ref: str, new: str, old: str | None = None, reason: str = "ao") -> None:
        """Move a ref, only if it still has the old value (`ABSENT`: only if it does not exist)."""
        if ref != "HEAD" and not ref.startswith("refs/"):  # Git would make a file of that name among its own
            raise AoError(f"{ref!r} is not the name of a ref", "give its whole name: refs/heads/…")
        expected = () if old is None else (old,)
        await self.run("update-ref", "-m", reason, "--no-deref", "--end-of-options", ref, new, *expected)

    async def delete_ref(self, ref: str, old: str) -> None:
        """Delete a ref, only if it still has this value."""
        await self.run("update-ref", "--no-deref", "-d", "--end-of-options", ref, old)

    async def update_refs(self, commands: Sequence[str], reason: str = "ao") -> None:
        """Carry out `update-ref --stdin` commands in one transaction."""
        lines = "".join(f"{command}\n" for command in ("start", *commands, "prepare", "commit"))
        await self.run("update-ref", "-m", reason, "--no-deref", "--stdin", input=os.fsencode(lines))

    # -- objects -------------------------------------------------------------------------------------------------------

    async def hash_files(self, paths: Sequence[Path]) -> list[str]:
        """Store files as blobs, byte for byte, in order; big ones are streamed."""
        lines = [str(path) for path in paths]
        odd = {line for line in lines if "\n" in line or "\r" in line}
        found: dict[str, str] = {}
        plain = [line for line in lines if line not in odd]
        if plain:
            stdin = os.fsencode("".join(f"{line}\n" for line in plain))
            done = await self.run("hash-object", "-w", "--no-filters", "--stdin-paths", input=stdin, timeout=LONG)
            found.update(zip(plain, done.text.split(), strict=True))
        strange = sorted(odd)
        for start in range(0, len(strange), 100):
            some = strange[start : start + 100]
            done = await self.run("hash-object", "-w", "--no-filters", "--", *some, timeout=LONG)
            found.update(zip(some, done.text.split(), strict=True))
        return [found[line] for line in lines]

    async def hash_bytes(self, content: bytes) -> str:
        """Store a blob."""
        return await self.text("hash-object", "-w", "--no-filters", "--stdin", input=content)

    async def make_tree(self, entries: Sequence[tuple[str, str, str, str]]) -> str:
        """Store a tree of (mode, type, object, name)."""
        listing = "".join(f"{mode} {kind} {sha}\t{name}\0" for mode, kind, sha, name in entries)
        return await self.text("mktree", "-z", "--missing", input=os.fsencode(listing))

    async def commit_tree(
        self,
        tree: str,
        parents: Sequence[str],
        message: str,
        env: Mapping[str, str] | None = None,
        *,
        sign: Sequence[str] | None = None,
    ) -> str:
        """Store a commit, unsigned; with `sign` (configuration that keeps the signer from asking) signed, or not stored."""
        options = ["--no-gpg-sign"] if sign is None else ["--gpg-sign"]
        options += [part for parent in parents for part in ("-p", parent)]
        done = await self.run(
            "commit-tree",
            *options,
            tree,
            config=("i18n.commitencoding=UTF-8", *(sign or ())),
            env=env,
            input=message.encode(errors="surrogateescape"),
            timeout=120.0 if sign is None else 10.0,
        )
        return done.text.strip()

    async def merge_tree(self, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
        """Merge two commits without a checkout (Git 2.38): the tree, and the files that conflict. Needs a common ancestor."""
        options = ("--write-tree", "-z", "--name-only", "--no-messages")
        done = await self.run("merge-tree", *options, "--end-of-options", ours, theirs, ok=(0, 1), timeout=LONG)
        tree, *files = os.fsdecode(done.out).rstrip("\0").split("\0")
        if not tree:  # what was given is nothing that can be merged
            raise GitFailed(("merge-tree",), self.repo, done)
        return tree, tuple(dict.fromkeys(files))

    async def kinds(self, objects: Sequence[str]) -> dict[str, str]:
        """Object → `commit`, `tree`, `blob` or `tag`, for those that exist."""
        if not objects:
            return {}
        stdin = "".join(f"{sha}\n" for sha in objects).encode()
        lines = (await self.run("cat-file", "--batch-check=%(objectname) %(objecttype)", input=stdin)).text.splitlines()
        return {
            sha: kind
            for sha, _, kind in (line.partition(" ") for line in lines)
            if kind in ("commit", "tree", "blob", "tag")
        }

    # -- checkouts -----------------------------------------------------------------------------------------------------

    async def worktrees(self) -> list[WorktreeEntry]:
        """All checkouts of the repository, the main one first."""
        text = (await self.run("worktree", "list", "--porcelain", "-z")).out.decode(errors="surrogateescape")
        found = []
        for block in filter(None, text.split("\0\0")):
            words = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
            branch = words.get("branch")
            found.append(
                WorktreeEntry(
                    path=Path(words["worktree"]),
                    head=words.get("HEAD"),
                    branch=branch.removeprefix("refs/heads/") if branch else None,
                    bare="bare" in words,
                    locked="locked" in words,
                    prunable="prunable" in words,
                )
            )
        return found

    async def worktree_add(self, path: Path, start: str, new_branch: str | None = None) -> None:
        """Register a worktree on a branch, without filling it: a new branch at `start`, or the existing branch `start`.

        A new branch is to be in a place that no other worktree has: forced, Git does not look at each of them once more.
        """
        made = ("--no-track", "--force", "-b", new_branch) if new_branch else ()
        await self.run("worktree", "add", "--quiet", "--no-checkout", *made, "--", str(path), start)

    async def fill(self, *, config: Sequence[str] = (), env: Mapping[str, str] | None = None) -> None:
        """Write HEAD's files into the checkout."""
        settings = (PARALLEL, *self.filters(), *config)
        await self.run("reset", "--quiet", "--hard", "--no-recurse-submodules", config=settings, env=env, timeout=LONG)

    async def narrow(self, folders: Sequence[str]) -> None:
        """Let a checkout that is still empty have only these folders, and the files on the way to them."""
        layout = await self.layout()
        assert layout is not None
        (layout.git_dir / SPARSE_MARK).touch()
        listing = "".join(f"{folder}\n" for folder in folders)
        await self.run("sparse-checkout", "set", "--stdin", input=os.fsencode(listing))

    def filters(self) -> tuple[str, ...]:
        """Configuration that keeps a missing git-lfs from failing whatever touches files."""
        return () if self.host.which("git-lfs") else LFS_OFF

    async def fetch(
        self,
        remote: str,
        refspecs: Sequence[str],
        *,
        timeout: float,
        config: Config | None = None,
        env: Mapping[str, str] | None = None,
        checked: bool = False,
    ) -> None:
        """Fetch exactly these, asking nobody anything; `checked`: an agent may have made the objects. Raises `GitFailed` or, when
        time runs out, `Temporary`.
        """
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")
        await self.run(
            *("fetch", *options, "--end-of-options", remote, *refspecs),
            config=CHECKED if checked else (),
            env={**ssh_without_questions(config), **(env or {})},
            timeout=timeout,
        )

    async def push(
        self, url: str, branch: str, commit: str, *, known: str | None, env: Mapping[str, str], timeout: float
    ) -> None:
        """Put a branch elsewhere at a commit, if it is there where it is `known` to be (none: not there yet)."""
        lease = f"--force-with-lease=refs/heads/{branch}:{known or ''}"
        target = f"{commit}:refs/heads/{branch}"
        options = ("--quiet", "--no-verify", "--no-recurse-submodules", lease)
        await self.run("push", *options, "--end-of-options", url, target, env=env, timeout=timeout)

    async def push_removal(self, url: str, branch: str, commit: str, *, env: Mapping[str, str], timeout: float) -> None:
        """Remove a branch elsewhere, if it is there at this commit."""
        lease = f"--force-with-lease=refs/heads/{branch}:{commit}"
        options = ("--quiet", "--no-verify", "--no-recurse-submodules", lease)
        await self.run("push", *options, "--end-of-options", url, f":refs/heads/{branch}", env=env, timeout=timeout)

    async def remote_head(self, url: str, branch: str, *, env: Mapping[str, str], timeout: float) -> str | None:
        """The commit that a branch is at elsewhere; none: it is not there."""
        ref = f"refs/heads/{branch}"
        done = await self.run("ls-remote", "--end-of-options", url, ref, env=env, timeout=timeout)
        told = (line.partition("\t") for line in done.text.splitlines())  # a branch a/refs/heads/b ends like b
        return next((commit for commit, _, name in told if name == ref), None)

    async def status(self, *, ignored: bool = False) -> list[Change]:
        """What differs from HEAD and index; every untracked file; a folder that ends in `/` is a repository of its own."""
        options = ("--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=none", "--no-renames")
        wanted = (*options, "--ignored=matching") if ignored else options
        done = await self.run("status", *wanted, config=self.filters(), timeout=LONG / 3)
        return [change for entry in done.out.split(b"\0") if entry and (change := _change(os.fsdecode(entry)))]

    async def untracked(self) -> tuple[str, ...]:
        """Return what is untracked and not ignored, a folder without tracked files as one, with a `/` at its end."""
        listed = await self.run(
            "ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory", "-z"
        )
        return tuple(os.fsdecode(name) for name in listed.out.split(b"\0") if name)

    async def diff(
        self, base: str, head: str | None = None, *, form: Literal["patch", "stat", "name-status"] = "patch"
    ) -> str:
        """What changed since `head` left `base`; without `head`: up to the files as they are now, untracked ones included."""
        shape = {"patch": ("--patch", "--binary"), "stat": ("--stat=120",), "name-status": ("--name-status",)}[form]
        async with self.comparing(base, head) as compare:
            return (await compare("-M", *shape)).text

    @asynccontextmanager
    async def comparing(self, base: str, head: str | None) -> AsyncIterator[Callable[..., Awaitable[Completed]]]:
        """A way to ask for the same change in several forms: `compare(*options, paths=…, most=…)`."""
        always = ("--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
        env: dict[str, str] = {}
        config: tuple[str, ...] = ()
        folder = ""
        commits, within = f"{base}...{head}", 120.0
        if head is None:
            commits, within = await self.merge_base(base, "HEAD") or base, SHOWN_WITHIN
            folder = (await self.host.run(["mktemp", "-d"])).text.strip()  # on the machine where the workspace is

        async def compare(*options: str, paths: Sequence[str] = (), most: int | None = None) -> Completed:
            words = ("diff", *always, *options, "--end-of-options", commits, "--", *paths)
            return await self.run(*words, env=env, config=config, timeout=within, most=most)

        try:
            if head is None:
                env, config = {"GIT_INDEX_FILE": await self._index_with_untracked(Path(folder))}, self.filters()
            yield compare
        finally:
            if folder:
                await self.host.run(["rm", "-rf", folder])

    async def _index_with_untracked(self, folder: Path) -> str:
        """A copy of the index that knows untracked files too; the real one and the object store stay as they are."""
        copy = folder / "index"
        index = await self.text("rev-parse", "--path-format=absolute", "--git-path", "index")
        # Its times too: by them Git knows what it must read again. There may be none yet, or something else that would never end.
        await self.host.run(["find", index, "-maxdepth", "0", "-type", "f", "-exec", "cp", "-p", "{}", str(copy), ";"])
        others = (await self.run("ls-files", "--others", "--exclude-standard", "-z")).out.split(b"\0")
        files = b"\0".join(name for name in others if name and not name.endswith(b"/"))
        if files:
            listed = ("--pathspec-from-file=-", "--pathspec-file-nul")
            env = {"GIT_INDEX_FILE": str(copy), "GIT_LITERAL_PATHSPECS": "1"}
            await self.run("add", "--intent-to-add", "--sparse", *listed, env=env, input=files)
        return str(copy)


def _ended_early(done: Completed) -> Completed:
    """What a command that was cut off came to by itself: the last line of its complaints is its code, if it was not for the cut."""
    said, _, code = done.err.rstrip(b"\n").rpartition(b"\n")
    real = int(code) if code.isdigit() else done.code
    return Completed(0 if real == _CUT_OFF else real, done.out, said)


def _change(entry: str) -> Change | None:
    kind, _, rest = entry.partition(" ")
    if kind in "?!":
        return Change(kind * 2, rest)
    if kind not in "1u":
        return None
    fields = rest.split(" ", 7 if kind == "1" else 9)
    held = fields[6:7] if kind == "1" else fields[6:9]
    modes = fields[3:4] if kind == "1" else fields[2:5]
    blobs = tuple(sha for sha, mode in zip(held, modes, strict=True) if mode not in ("000000", "160000"))
    return Change(fields[0], fields[-1], fields[1], blobs)


def ssh_without_questions(config: Config | None) -> dict[str, str]:
    """The environment that keeps ssh from asking, unless the user has chosen an ssh command of his own."""
    chosen = (
        "GIT_SSH_COMMAND" in os.environ
        or "GIT_SSH" in os.environ
        or (config is not None and config.last("core.sshcommand"))
    )
    return {} if chosen else {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
