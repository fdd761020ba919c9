"""Typed wrappers for every Git command that the project runs.

No command asks for input or starts anything else: no prompt, pager, hook, file-system monitor or garbage
collection. Commands as remotes (`ext::`) are refused, submodules are entered only on request, replace refs are
ignored. What can be read from Git's files without a process is in `refs.py`.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Literal
from weakref import WeakValueDictionary

from agent_orchestrator.base.git.fifo_guard import fifo_guard
from agent_orchestrator.base.git.listings import StatusEntry, WorktreeEntry, parse_status_entry
from agent_orchestrator.base.git.refs import Layout as Layout
from agent_orchestrator.base.git.refs import find_layout as find_layout
from agent_orchestrator.base.git.refs import is_valid_branch as is_valid_branch
from agent_orchestrator.base.git.refs import read_head as read_head
from agent_orchestrator.base.git.settings import (
    CONFIG_OPTIONS,
    FSCK_CONFIG,
    LFS_OFF_CONFIG,
    PARALLEL_CHECKOUT_CONFIG,
    SETTINGS,
    SPARSE_CHECKOUT_CONFIG,
    SPARSE_MARK,
    GitConfig,
    clean_environment,
    noninteractive_ssh,
)
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols.host import Host, ProgramResult

REF_ABSENT = ""
"""As the old value in `Git.update_ref`: the ref must not exist yet."""
LONG_TIMEOUT = 1800.0
"""Seconds after which a long-running command is assumed to hang, for example on a pipe that replaces a file."""
DISPLAY_TIMEOUT = 45.0
"""Time limit in seconds for output that a person waits for: the client's own limit is 60 seconds."""

_LIMIT_OUTPUT_SCRIPT = 'most=$1; shift; { "$@"; echo "$?" >&2; } | head -c "$most"'
_SIGPIPE_EXIT_CODE = 128 + signal.SIGPIPE

_LOCK_HELD = re.compile(r"\.lock'?: File exists|could not lock|Unable to create .*\.lock|failed to read .*commondir")

_SHORTAGE = re.compile(
    "No space left on device|Out of diskspace|Disk quota exceeded|Read-only file system|Too many open files"
    "|Cannot allocate memory|[Uu]nable to write new index file|cannot open shared object file: Error 24"
)
"""Errors that mean a temporary lack of disk space, memory or descriptors: the same command may work later."""


class GitFailed(AoError):
    """A failed Git command; `stderr` is its complete error output, `retryable` whether a retry may succeed."""

    def __init__(self, argv: Sequence[str], where: Path, done: ProgramResult) -> None:
        self.code = done.code
        self.stderr = done.err.decode(errors="replace")
        error_lines = [line for line in self.stderr.splitlines() if line.startswith(("fatal:", "error:"))]
        reason = (error_lines[0] if error_lines else done.error) or f"exit code {done.code}"
        is_disk_full = re.search(r"No space left on device|unable to write|write error", self.stderr)
        super().__init__(
            f"git {argv[0]} failed in {where}: {reason}",
            "free some disk space, or see whether the folder may be written" if is_disk_full else "",
        )
        self.retryable = done.code < 0 or bool(
            _SHORTAGE.search(self.stderr)
        )  # killed by a signal, or short of a resource


_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


def repository_lock(common: Path) -> asyncio.Lock:
    """Return the lock that guards writes to files which all worktrees of a repository share."""
    key = str(common.resolve())
    lock = _locks.get(key)
    if lock is None:
        lock = _locks[key] = asyncio.Lock()
    return lock


class Git:
    """Git commands in one repository or worktree."""

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
    ) -> ProgramResult:
        """Run one Git command and return its result; retry for a few seconds while another process holds a lock.

        Without `timeout`, the limit is `LONG_TIMEOUT`. With `most`, the command is ended once it has printed that many
        bytes. Raises `GitFailed` if the exit code is not in `ok`, and `Temporary` if a lock stays held.
        """
        command, environment = self._build_argv(argv, config), self._build_environment(env)
        if most is not None:
            command = ["sh", "-c", _LIMIT_OUTPUT_SCRIPT, "sh", str(most), *command]
        pause = 0.02
        while True:
            async with fifo_guard(self.repo) if isinstance(self.host, LocalHost) else nullcontext():
                result = await self.host.run(command, env=environment, input=input, timeout=timeout or LONG_TIMEOUT)
            result = result if most is None else _strip_exit_code(result)
            if result.code in ok:
                return result
            if not _LOCK_HELD.search(result.err.decode(errors="replace")):
                raise GitFailed(argv, self.repo, result)
            if pause > 1.5:
                lock_error = GitFailed(argv, self.repo, result)
                raise Temporary(
                    lock_error.text, "another Git process holds the lock; if none runs, remove the lock file"
                )
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause *= 2

    def pipe(
        self, *argv: str, log: Path, config: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Run a command that communicates through its standard input and output; its standard error goes to the file
        `log`.
        """
        return self.host.pipe(self._build_argv(argv, config), log=log, env=self._build_environment(env))

    def _build_argv(self, argv: Sequence[str], config: Sequence[str]) -> list[str]:
        """Return the complete argument vector of a command, with our configuration."""
        settings = (*SPARSE_CHECKOUT_CONFIG, *config) if self._is_sparse() else config
        options = [part for setting in settings for part in ("-c", setting)]
        return ["git", "--no-pager", *CONFIG_OPTIONS, *options, "-C", str(self.repo), *argv]

    def _is_sparse(self) -> bool:
        """Return whether we made this checkout sparse."""
        layout = find_layout(self.repo) if isinstance(self.host, LocalHost) else None
        return layout is not None and (layout.git_dir / SPARSE_MARK).exists()

    def _build_environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        """Return the complete environment of a command."""
        return {**clean_environment(), **self.environment, **(env or {})}

    async def text(self, *argv: str, env: Mapping[str, str] | None = None, input: bytes | None = None) -> str:  # noqa: A002
        """Run one Git command and return its output without the last newline."""
        result = await self.run(*argv, env=env, input=input)
        return result.out.decode(errors="surrogateescape").removesuffix("\n")

    # -- the repository ------------------------------------------------------------------------------------------------

    async def version(self) -> tuple[int, ...]:
        """Return Git's version as numbers, for example `(2, 43, 0)`."""
        match = re.search(r"(\d+(?:\.\d+)+)", await self.text("version"))
        return tuple(int(part) for part in match.group(1).split(".")) if match else (0,)

    async def layout(self) -> Layout | None:
        """Return where the repository of this folder is, or None if the folder belongs to no repository."""
        layout = find_layout(self.repo)
        if layout is not None or not self.repo.is_dir():
            return layout
        result = await self.run("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", ok=(0, 128))
        if result.code:
            return None
        git_dir, common = result.out.decode(errors="surrogateescape").splitlines()
        top = await self.run("rev-parse", "--show-toplevel", ok=(0, 128))
        top_path = top.out.decode(errors="surrogateescape").removesuffix("\n")
        return Layout(Path(top_path) if not top.code and top_path else None, Path(git_dir), Path(common))

    async def is_bare(self) -> bool:
        """Return whether the repository is bare."""
        return await self.text("rev-parse", "--is-bare-repository") == "true"

    async def config(self, *scope: str) -> GitConfig:
        """Return all effective configuration, or that of one scope (`--local`), without our own settings."""
        config = GitConfig()
        result = await self.run("config", *scope, "--list", "-z")
        for entry in result.out.decode(errors="surrogateescape").split("\0"):
            key, separator, value = entry.partition("\n")
            if key:
                config.setdefault(key, []).append(value if separator else "true")
        for key in () if scope else SETTINGS:
            config[key].pop()
        return config

    async def current_branch(self) -> str | None:
        """Return the branch that is checked out, or None if HEAD is detached."""
        result = await self.run("symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1))
        return result.text.strip() or None

    async def default_branch(self, remote: str = "origin") -> str | None:
        """Return the branch that sessions start from: the remote's default branch, else `main`, `master`, or the
        branch that is checked out.
        """
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
        """Return the commit (or other kind of object) that a name refers to, or None if it refers to nothing."""
        argv = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{{kind}}}")
        result = await self.run(*argv, ok=(0, 1, 128))
        if result.code == 128 and (failure := GitFailed(argv, self.repo, result)).retryable:
            raise failure
        return result.text.strip() or None if not result.code else None

    async def branch_exists(self, name: str) -> bool:
        """Return whether there is a local branch of this name."""
        return (await self.run("show-ref", "--verify", "--quiet", f"refs/heads/{name}", ok=(0, 1))).code == 0

    async def refs(self, *patterns: str) -> dict[str, str]:
        """Return ref name → object for all refs at or below the given names; tags are not peeled."""
        result = await self.run("for-each-ref", "--format=%(objectname) %(refname)", *patterns)
        lines = result.out.decode(errors="surrogateescape").splitlines()
        return {name: sha for sha, _, name in (line.partition(" ") for line in lines)}

    async def is_ancestor(self, older: str, newer: str) -> bool:
        """Return whether `newer` contains `older`."""
        return (await self.run("merge-base", "--is-ancestor", "--end-of-options", older, newer, ok=(0, 1))).code == 0

    async def merge_base(self, a: str, b: str) -> str | None:
        """Return the best common ancestor of two commits, or None if there is none."""
        result = await self.run("merge-base", "--end-of-options", a, b, ok=(0, 1))
        return result.text.strip().partition("\n")[0] or None

    async def count_commits(self, *revisions: str) -> int:
        """Return the number of commits in `revisions` (`base..head`)."""
        return int(await self.text("rev-list", "--count", "--end-of-options", *revisions, "--"))

    async def update_ref(self, ref: str, new: str, old: str | None = None, reason: str = "ao") -> None:
        """Move a ref, only if it still has the old value (`REF_ABSENT`: only if it does not exist)."""
        if ref != "HEAD" and not ref.startswith("refs/"):  # Git would create a file of that name in its folder
            raise AoError(f"{ref!r} is not the name of a ref", "give its whole name: refs/heads/…")
        expected = () if old is None else (old,)
        await self.run("update-ref", "-m", reason, "--no-deref", "--end-of-options", ref, new, *expected)

    async def delete_ref(self, ref: str, old: str) -> None:
        """Delete a ref, only if it still has this value."""
        await self.run("update-ref", "--no-deref", "-d", "--end-of-options", ref, old)

    async def update_refs(self, commands: Sequence[str], reason: str = "ao") -> None:
        """Run `update-ref --stdin` commands in one transaction."""
        lines = "".join(f"{command}\n" for command in ("start", *commands, "prepare", "commit"))
        await self.run("update-ref", "-m", reason, "--no-deref", "--stdin", input=os.fsencode(lines))

    # -- objects -------------------------------------------------------------------------------------------------------

    async def hash_files(self, paths: Sequence[Path]) -> list[str]:
        """Store files as blobs without conversion and return their object names, in the same order; large files are
        streamed.
        """
        lines = [str(path) for path in paths]
        multi_line_names = {line for line in lines if "\n" in line or "\r" in line}
        blobs: dict[str, str] = {}
        plain_names = [line for line in lines if line not in multi_line_names]
        if plain_names:
            stdin = os.fsencode("".join(f"{line}\n" for line in plain_names))
            result = await self.run(
                "hash-object", "-w", "--no-filters", "--stdin-paths", input=stdin, timeout=LONG_TIMEOUT
            )
            blobs.update(zip(plain_names, result.text.split(), strict=True))
        remaining = sorted(multi_line_names)
        for start in range(0, len(remaining), 100):
            batch = remaining[start : start + 100]
            result = await self.run("hash-object", "-w", "--no-filters", "--", *batch, timeout=LONG_TIMEOUT)
            blobs.update(zip(batch, result.text.split(), strict=True))
        return [blobs[line] for line in lines]

    async def hash_bytes(self, content: bytes) -> str:
        """Store bytes as a blob and return its object name."""
        return await self.text("hash-object", "-w", "--no-filters", "--stdin", input=content)

    async def make_tree(self, entries: Sequence[tuple[str, str, str, str]]) -> str:
        """Store a tree of (mode, type, object, name) entries and return its object name."""
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
        """Store a commit and return its object name: unsigned, or signed if `sign` is given.

        `sign` is configuration that keeps the signing program from prompting. If signing fails, no commit is
        stored.
        """
        options = ["--no-gpg-sign"] if sign is None else ["--gpg-sign"]
        options += [part for parent in parents for part in ("-p", parent)]
        result = await self.run(
            "commit-tree",
            *options,
            tree,
            config=("i18n.commitencoding=UTF-8", *(sign or ())),
            env=env,
            input=message.encode(errors="surrogateescape"),
            timeout=120.0 if sign is None else 10.0,
        )
        return result.text.strip()

    async def merge_tree(self, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
        """Merge two commits without a checkout and return the tree and the files that conflict.

        Needs Git 2.38, and a common ancestor.
        """
        options = ("--write-tree", "-z", "--name-only", "--no-messages")
        result = await self.run(
            "merge-tree", *options, "--end-of-options", ours, theirs, ok=(0, 1), timeout=LONG_TIMEOUT
        )
        tree, *files = os.fsdecode(result.out).rstrip("\0").split("\0")
        if not tree:  # the arguments cannot be merged
            raise GitFailed(("merge-tree",), self.repo, result)
        return tree, tuple(dict.fromkeys(files))

    async def object_kinds(self, objects: Sequence[str]) -> dict[str, str]:
        """Return object → `commit`, `tree`, `blob` or `tag`, for those objects that exist."""
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
        """Return all checkouts of the repository, the main one first."""
        text = (await self.run("worktree", "list", "--porcelain", "-z")).out.decode(errors="surrogateescape")
        entries = []
        for block in filter(None, text.split("\0\0")):
            fields = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
            branch = fields.get("branch")
            entries.append(
                WorktreeEntry(
                    path=Path(fields["worktree"]),
                    head=fields.get("HEAD"),
                    branch=branch.removeprefix("refs/heads/") if branch else None,
                    bare="bare" in fields,
                    locked="locked" in fields,
                    prunable="prunable" in fields,
                )
            )
        return entries

    async def worktree_add(self, path: Path, start: str, new_branch: str | None = None) -> None:
        """Register a worktree on a branch without writing its files: on a new branch at `start`, or on the existing
        branch `start`.

        With a new branch, the caller guarantees that no other worktree uses `path`: forced, Git does not check
        every worktree for that.
        """
        branch_options = ("--no-track", "--force", "-b", new_branch) if new_branch else ()
        await self.run("worktree", "add", "--quiet", "--no-checkout", *branch_options, "--", str(path), start)

    async def checkout_files(self, *, config: Sequence[str] = (), env: Mapping[str, str] | None = None) -> None:
        """Write HEAD's files into the checkout."""
        settings = (PARALLEL_CHECKOUT_CONFIG, *self.missing_lfs_config(), *config)
        await self.run(
            "reset", "--quiet", "--hard", "--no-recurse-submodules", config=settings, env=env, timeout=LONG_TIMEOUT
        )

    async def set_sparse_folders(self, folders: Sequence[str]) -> None:
        """Restrict a checkout that is still empty to these folders and the files directly in their parent folders."""
        layout = await self.layout()
        assert layout is not None
        (layout.git_dir / SPARSE_MARK).touch()
        listing = "".join(f"{folder}\n" for folder in folders)
        await self.run("sparse-checkout", "set", "--stdin", input=os.fsencode(listing))

    def missing_lfs_config(self) -> tuple[str, ...]:
        """Return configuration that keeps commands from failing where git-lfs is not installed."""
        return () if self.host.which("git-lfs") else LFS_OFF_CONFIG

    async def fetch(
        self,
        remote: str,
        refspecs: Sequence[str],
        *,
        timeout: float,
        config: GitConfig | None = None,
        env: Mapping[str, str] | None = None,
        checked: bool = False,
    ) -> None:
        """Fetch exactly these refspecs, without prompts.

        With `checked`, objects are verified, because an agent may have written them. Raises `GitFailed`, or
        `Temporary` if the command times out.
        """
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")
        await self.run(
            *("fetch", *options, "--end-of-options", remote, *refspecs),
            config=FSCK_CONFIG if checked else (),
            env={**noninteractive_ssh(config), **(env or {})},
            timeout=timeout,
        )

    async def push(
        self, url: str, branch: str, commit: str, *, expected: str | None, env: Mapping[str, str], timeout: float
    ) -> None:
        """Push a commit to a remote branch, if that branch is still at `expected` (None: it does not exist yet)."""
        lease = f"--force-with-lease=refs/heads/{branch}:{expected or ''}"
        target = f"{commit}:refs/heads/{branch}"
        options = ("--quiet", "--no-verify", "--no-recurse-submodules", lease)
        await self.run("push", *options, "--end-of-options", url, target, env=env, timeout=timeout)

    async def delete_remote_branch(
        self, url: str, branch: str, commit: str, *, env: Mapping[str, str], timeout: float
    ) -> None:
        """Delete a remote branch, if it is still at this commit."""
        lease = f"--force-with-lease=refs/heads/{branch}:{commit}"
        options = ("--quiet", "--no-verify", "--no-recurse-submodules", lease)
        await self.run("push", *options, "--end-of-options", url, f":refs/heads/{branch}", env=env, timeout=timeout)

    async def remote_head(self, url: str, branch: str, *, env: Mapping[str, str], timeout: float) -> str | None:
        """Return the commit that a remote branch is at, or None if it does not exist."""
        ref = f"refs/heads/{branch}"
        result = await self.run("ls-remote", "--end-of-options", url, ref, env=env, timeout=timeout)
        rows = (
            line.partition("\t") for line in result.text.splitlines()
        )  # the pattern also matches a branch named a/refs/heads/b
        return next((commit for commit, _, name in rows if name == ref), None)

    async def status(self, *, ignored: bool = False) -> list[StatusEntry]:
        """Return every path that differs from HEAD or the index, untracked files included; a folder that ends in `/`
        is a nested repository.
        """
        options = ("--porcelain=v2", "-z", "--untracked-files=all", "--ignore-submodules=none", "--no-renames")
        arguments = (*options, "--ignored=matching") if ignored else options
        result = await self.run("status", *arguments, config=self.missing_lfs_config(), timeout=LONG_TIMEOUT / 3)
        return [
            change for entry in result.out.split(b"\0") if entry and (change := parse_status_entry(os.fsdecode(entry)))
        ]

    async def untracked(self) -> tuple[str, ...]:
        """Return what is untracked and not ignored; a folder without tracked files is one entry that ends in `/`."""
        result = await self.run(
            "ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory", "-z"
        )
        return tuple(os.fsdecode(name) for name in result.out.split(b"\0") if name)

    async def diff(
        self, base: str, head: str | None = None, *, form: Literal["patch", "stat", "name-status"] = "patch"
    ) -> str:
        """Return what changed since `head` left `base`; without `head`, up to the current files, untracked ones
        included.
        """
        options = {"patch": ("--patch", "--binary"), "stat": ("--stat=120",), "name-status": ("--name-status",)}[form]
        async with self.comparison(base, head) as compare:
            return (await compare("-M", *options)).text

    @asynccontextmanager
    async def comparison(self, base: str, head: str | None) -> AsyncIterator[Callable[..., Awaitable[ProgramResult]]]:
        """Yield a function that returns the same comparison in several forms: `compare(*options, paths=…, most=…)`."""
        fixed_options = ("--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
        env: dict[str, str] = {}
        config: tuple[str, ...] = ()
        folder = ""
        commits, timeout = f"{base}...{head}", 120.0
        if head is None:
            commits, timeout = await self.merge_base(base, "HEAD") or base, DISPLAY_TIMEOUT
            folder = (await self.host.run(["mktemp", "-d"])).text.strip()  # on the machine where the workspace is

        async def compare(*options: str, paths: Sequence[str] = (), most: int | None = None) -> ProgramResult:
            argv = ("diff", *fixed_options, *options, "--end-of-options", commits, "--", *paths)
            return await self.run(*argv, env=env, config=config, timeout=timeout, most=most)

        try:
            if head is None:
                env, config = (
                    {"GIT_INDEX_FILE": await self._write_index_with_untracked(Path(folder))},
                    self.missing_lfs_config(),
                )
            yield compare
        finally:
            if folder:
                await self.host.run(["rm", "-rf", folder])

    async def _write_index_with_untracked(self, folder: Path) -> str:
        """Write a copy of the index that also lists untracked files, and return its path; the real index and the
        object store do not change.
        """
        copy = folder / "index"
        index = await self.text("rev-parse", "--path-format=absolute", "--git-path", "index")
        # Keep the index's times: by them Git knows which files to read again. There may be no index, or a pipe in its place.
        await self.host.run(["find", index, "-maxdepth", "0", "-type", "f", "-exec", "cp", "-p", "{}", str(copy), ";"])
        untracked = (await self.run("ls-files", "--others", "--exclude-standard", "-z")).out.split(b"\0")
        files = b"\0".join(name for name in untracked if name and not name.endswith(b"/"))
        if files:
            options = ("--pathspec-from-file=-", "--pathspec-file-nul")
            env = {"GIT_INDEX_FILE": str(copy), "GIT_LITERAL_PATHSPECS": "1"}
            await self.run("add", "--intent-to-add", "--sparse", *options, env=env, input=files)
        return str(copy)


def _strip_exit_code(result: ProgramResult) -> ProgramResult:
    """Return the result of a command run with a limited output: its exit code is the last line of standard error.

    A command that was ended because it exceeded the limit counts as successful.
    """
    err, _, code = result.err.rstrip(b"\n").rpartition(b"\n")
    exit_code = int(code) if code.isdigit() else result.code
    return ProgramResult(0 if exit_code == _SIGPIPE_EXIT_CODE else exit_code, result.out, err)
