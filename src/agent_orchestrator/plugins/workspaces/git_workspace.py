"""What all Git workspaces share: made completely or not at all, and finished by the next call whatever ended the last one.

Before anything is made, a record in the session's private folder says what will be ours (`record.py`). A call that finds the
record of an unfinished try takes that try's remains away and begins anew; one that finds a finished workspace returns it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import mounted_below
from agent_orchestrator.base.git.commands import Config, Git, GitFailed
from agent_orchestrator.base.git.refs import Layout, find_layout, valid_branch
from agent_orchestrator.errors import AoError, Conflict, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.workspaces import contents
from agent_orchestrator.plugins.workspaces.git_isolation import forget_hooks, git_environment
from agent_orchestrator.plugins.workspaces.record import Record, forget_record, read_record, write_record
from agent_orchestrator.plugins.workspaces.start_point import Start, choose_start, wanted_refs
from agent_orchestrator.plugins.workspaces.submodules import fill_submodules
from agent_orchestrator.protocols import Report, WorkspaceInfo, WorkspaceSpec
from agent_orchestrator.protocols.host import Host

CONFIG_FRESH_FOR = 10.0
"""Seconds for which a configuration whose files did not change is believed."""
ORPHANS_MAY_TAKE = 5.0
"""Seconds that a new try waits for what an interrupted one left running."""
_DEEP = 200
"""Folders one within the other that are removed as they are."""
_DEEPEST = 8
"""The same where there are deeper ones: their names together are never too long."""


@dataclass(frozen=True, slots=True)
class Source:
    """The repository that a workspace is made from."""

    git: Git
    layout: Layout
    config: Config


class GitWorkspace(ABC):
    """A workspace on a branch of a Git repository."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._config = config
        self._host = host

    async def create(self, spec: WorkspaceSpec, report: Report) -> WorkspaceInfo:
        """Make the workspace, or finish what an earlier try began; leave nothing behind on failure."""
        check_names(spec)
        git, layout = await self._repository(spec)
        earlier = read_record(spec)
        if earlier and earlier.made and find_layout(spec.path) is not None:
            return earlier.info()
        if earlier:
            await self._wait_until_unused(spec.path)
            await self._undo(spec, git, layout, earlier)
        _check_way(spec)
        self._check_place(spec, layout)
        config, refs = await asyncio.gather(config_of(git, layout), wanted_refs(git, layout, spec))
        if layout.top is not None and config.true("core.bare") and layout.common == layout.git_dir:
            layout = Layout(None, layout.git_dir, layout.common)
        continued = earlier is not None and earlier.made_branch and f"refs/heads/{spec.branch}" in refs
        source = Source(git, layout, config)
        start = await find_start(source, spec, refs, continued=continued)
        record = Record(
            path=str(spec.path),
            branch=spec.branch,
            base=spec.base,
            base_commit=start.base_commit,
            start=start.commit,
            made_branch=start.new_branch,
        )
        try:
            await asyncio.to_thread(write_record, spec, record)
            return await self._build(spec, source, start, record, report)
        except BaseException as error:
            await asyncio.shield(self._undo(spec, git, layout, record))
            raise _explained(error, spec) from None

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove folder and symlink; the branch stays. The caller has made sure that nothing in it is lost.

        The folder is there whole or not at all: half of one would look like work that deletes files. What a try that was cut
        short left is cleared away by the next.
        """
        git = Git(self._host, spec.repo)
        layout = await git.layout()
        contents.remove_link(spec)
        await asyncio.to_thread(_put_away, spec.path)
        if layout is not None:
            await self._unregister(spec, git, layout)
        forget_hooks(spec)
        await asyncio.to_thread(remove_tree, away(spec.path))
        forget_record(spec)

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Take away what a try that was cut short left, its new branch included; a finished workspace stays, and is told."""
        earlier = read_record(spec)
        if earlier is None:
            return None
        if earlier.made and find_layout(spec.path) is not None:
            return earlier.info()
        git = Git(self._host, spec.repo)
        if layout := await git.layout():
            await self._wait_until_unused(spec.path)
            await self._undo(spec, git, layout, earlier)
        return None

    # -- what differs --------------------------------------------------------------------------------------------------

    @abstractmethod
    async def _make(self, spec: WorkspaceSpec, source: Source, start: Start) -> Path:
        """Make the folder with its files; returns its Git folder."""

    def _check_place(self, spec: WorkspaceSpec, layout: Layout) -> None:  # noqa: B027
        """Refuse a place that the repository has for something else."""

    @abstractmethod
    async def _unregister(self, spec: WorkspaceSpec, git: Git, layout: Layout) -> None:
        """Make the repository forget a workspace whose folder is gone."""

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _repository(self, spec: WorkspaceSpec) -> tuple[Git, Layout]:
        git = Git(self._host, spec.repo)
        layout = await git.layout()
        if layout is None:
            problem = "is not a Git repository" if spec.repo.is_dir() else "is not there"
            raise NotFound(f"{spec.repo} {problem}", "give a repository, or make one with git init and a first commit")
        return git, layout

    async def _wait_until_unused(self, folder: Path) -> None:
        """What an earlier try started may outlive the daemon that started it: let it end."""
        deadline = time.monotonic() + ORPHANS_MAY_TAKE
        while users := self._host.users_of(folder) if folder.exists() else []:
            if time.monotonic() > deadline:
                named = ", ".join(f"{name} ({pid})" for pid, name in users)
                raise Temporary(
                    f"the unfinished workspace {folder} is still in use by {named}", "end that, or wait for it"
                )
            await asyncio.sleep(0.1)

    async def _build(
        self, spec: WorkspaceSpec, source: Source, start: Start, record: Record, report: Report
    ) -> WorkspaceInfo:
        spec.path.parent.mkdir(parents=True, exist_ok=True)
        notes = start.notes
        git_dir = await self._make(spec, source, start)
        inside = Git(self._host, spec.path)
        git_env = git_environment(self._host, spec, source.layout, source.config, notes)
        await fill_submodules(inside, source.layout, source.config, notes)
        await contents.share(inside, spec, source.layout, notes)
        contents.make_link(spec, source.layout, notes)
        await contents.set_up(self._host, spec, git_env, report)
        if spec.post_create and (layout := find_layout(spec.path)):
            await contents.exclude_made(inside, layout, await inside.untracked())
        record = record.complete(git_dir, notes, git_env)
        await asyncio.to_thread(write_record, spec, record)
        return record.info()

    async def _fill(self, spec: WorkspaceSpec, notes: list[str]) -> None:
        """Write the files; large files that cannot be had just now stay pointers."""
        inside = Git(self._host, spec.path)
        if spec.sparse:
            await inside.narrow(spec.sparse)
        try:
            await inside.fill()
        except GitFailed as error:
            if "lfs" not in error.stderr:
                raise
            await inside.fill(env={"GIT_LFS_SKIP_SMUDGE": "1"})
            notes.append("large files could not be fetched and stay pointers: git lfs pull fetches them")
        missing = [folder for folder in spec.sparse if not (spec.path / folder).is_dir()]
        if missing:
            notes.append(f"sparse: {', '.join(missing)} is no folder of {spec.branch}")

    async def _undo(self, spec: WorkspaceSpec, git: Git, layout: Layout, record: Record) -> None:
        """Take away what an unfinished try left: folder, symlink, registration, and the branch unless it has grown.

        A finished workspace whose folder is gone had its branch for good.
        """
        contents.remove_link(spec)
        for folder in (spec.path, away(spec.path)):
            await asyncio.to_thread(remove_tree, folder)
        await self._unregister(spec, git, layout)
        if record.made_branch and not record.made and await git.resolve(f"refs/heads/{spec.branch}") == record.start:
            await git.delete_ref(f"refs/heads/{spec.branch}", record.start)
        forget_hooks(spec)
        forget_record(spec)


async def find_start(source: Source, spec: WorkspaceSpec, refs: dict[str, str], *, continued: bool) -> Start:
    """Where the branch begins: where it stands, where it is to be continued, or at its base. Raises `Conflict` if it cannot be made."""
    own = f"refs/heads/{spec.branch}"
    if continued:
        commit = refs[own]
        return Start(commit, await source.git.merge_base(spec.base, commit) or commit, False)
    if not spec.existing and own in refs:
        raise Conflict(
            f"branch {spec.branch} exists already in {spec.repo}",
            f"continue it with --branch {spec.branch}, or choose another name with --name",
        )
    for ref in refs:
        if own not in refs and (own.startswith(f"{ref}/") or ref.startswith(f"{own}/")):
            other = ref.removeprefix("refs/heads/")
            raise Conflict(
                f"branch {spec.branch} cannot be beside branch {other}: Git keeps one as a folder of the other",
                "choose another name with --branch",
            )
    return await choose_start(source.git, source.layout, spec, source.config, refs)


def check_names(spec: WorkspaceSpec) -> None:
    """Refuse what is no name for a branch, a base or a place."""
    if not valid_branch(spec.branch):
        raise UsageError(f"{spec.branch!r} is not a name for a branch", "use letters, digits, '-', '_' and '/'")
    if not spec.base or spec.base.startswith("-"):
        raise UsageError(f"{spec.base!r} is not a base to start from", "give a branch, a tag or a commit")
    for path in (spec.repo, spec.path):
        if not path.is_absolute() or "\n" in str(path):
            raise UsageError(
                f"{str(path)!r} cannot be a workspace's place", "give an absolute path without line breaks"
            )


def _check_way(spec: WorkspaceSpec) -> None:
    contents.check_link(spec)
    if spec.path.is_symlink() or (spec.path.exists() and not (spec.path.is_dir() and not any(spec.path.iterdir()))):
        raise Conflict(
            f"{spec.path} is in the way of the workspace", "move it away, or choose another name with --name"
        )


def _explained(error: BaseException, spec: WorkspaceSpec) -> BaseException:
    if isinstance(error, OSError):
        return AoError(
            f"the workspace {spec.path} could not be made: {error.strerror or error}", "mend that and try again"
        )
    return error


_configs: dict[Path, tuple[float, tuple[tuple[int, int], ...], Config]] = {}


async def config_of(git: Git, layout: Layout) -> Config:
    """The configuration in force; asked for anew when a file of it changed, or after a while (files may include others)."""
    home = Path(os.environ.get("HOME") or "/")
    files = (
        layout.common / "config",
        layout.git_dir / "config.worktree",
        home / ".gitconfig",
        home / ".config/git/config",
    )
    stamps = tuple(_stamp(file) for file in (*files, Path("/etc/gitconfig")))
    known = _configs.get(layout.common)
    if known and known[1] == stamps and time.monotonic() - known[0] < CONFIG_FRESH_FOR:
        return known[2]
    config = await git.config()
    _configs[layout.common] = (time.monotonic(), stamps, config)
    return config


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def away(path: Path) -> Path:
    """Where a folder is while it is being removed."""
    return path.with_name(f".{path.name}.removed")


def _put_away(path: Path) -> None:
    if os.path.lexists(path):
        _refuse_mounts(path)
        remove_tree(away(path))
        path.rename(away(path))


def _refuse_mounts(path: Path) -> None:
    if mounted := mounted_below(path):
        raise OSError(errno.EBUSY, "something is mounted there", str(mounted[0]))


def remove_tree(path: Path) -> None:
    """Remove a folder whatever its permissions; nothing that a symlink in it leads to, or that is mounted in it, is touched."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    if not path.exists():
        return
    _refuse_mounts(path)
    if _too_deep(path):
        _open_up(path)
    for attempt in range(5):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except PermissionError:
            _open_up(path)
        except OSError as error:
            # Somebody is still writing into it.
            if error.errno != errno.ENOTEMPTY or attempt == 4:
                raise
            time.sleep(0.05)
        else:
            return


def _too_deep(path: Path) -> bool:
    """Are there more folders one within the other than can be entered one from the other? Each takes a descriptor meanwhile."""
    waiting = [(str(path), 0)]
    while waiting:
        folder, depth = waiting.pop()
        if depth > _DEEP:
            return True
        try:
            with os.scandir(folder) as entries:
                waiting += [(entry.path, depth + 1) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return True
    return False


def _open_up(path: Path) -> None:
    """Make all folders our own, and none too deep to be removed: what is far down comes up."""
    waiting = [(path, 0)]
    while waiting:
        folder, depth = waiting.pop()
        folder.chmod(0o700)
        with os.scandir(folder) as entries:
            inner = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        for one in inner:
            if depth < _DEEPEST:
                waiting.append((one, depth + 1))
            else:
                one.chmod(0o700)
                waiting.append((one.rename(path / f".{secrets.token_hex(8)}"), 1))
