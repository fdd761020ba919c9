"""The base class of Git workspaces: a workspace is made completely or not at all, and a later call finishes what an earlier one left.

Before anything is made, a record in the session's private folder says what will be made (`workspace_record.py`). A call that finds the
record of an unfinished attempt removes its remains and starts again; one that finds a finished workspace returns it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import find_mounts_below
from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.refs import Layout, find_layout, is_valid_branch
from agent_orchestrator.base.git.settings import GitConfig
from agent_orchestrator.errors import AoError, Conflict, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.workspaces import copied_and_linked_files, git_exclude
from agent_orchestrator.plugins.workspaces.git_isolation import forget_hooks, git_environment
from agent_orchestrator.plugins.workspaces.start_point import (
    SourceRepository,
    StartPoint,
    find_start,
    relevant_refs,
)
from agent_orchestrator.plugins.workspaces.submodules import fill_submodules
from agent_orchestrator.plugins.workspaces.workspace_record import (
    WorkspaceRecord,
    forget_record,
    read_record,
    write_record,
)
from agent_orchestrator.protocols import LineCallback, Workspace, WorkspaceInfo, WorkspaceSpec
from agent_orchestrator.protocols.host import Host

CONFIG_CACHE_SECONDS = 10.0
"""Seconds for which a configuration whose files did not change is not read again."""
ORPHAN_TIMEOUT = 5.0
"""Seconds that a new attempt waits for processes that an interrupted one left running."""
_MAX_FOLDER_DEPTH = 200
"""Most levels of nested folders that are removed as they are."""
_FLATTENED_DEPTH = 8
"""Levels after which deeper folders are moved up, so that their paths never become too long."""


class GitWorkspace(Workspace):
    """A workspace on a branch of a Git repository."""

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._config = config
        self._host = host

    async def create(self, spec: WorkspaceSpec, report: LineCallback) -> WorkspaceInfo:
        """Make the workspace, or return the finished one of an earlier attempt; leave nothing behind on failure."""
        check_names(spec)
        git, layout = await self._repository(spec)
        earlier = read_record(spec)
        if earlier and earlier.made and find_layout(spec.path) is not None:
            return earlier.info()
        if earlier:
            await self._wait_until_unused(spec.path)
            await self._undo(spec, git, layout, earlier)
        _check_path_is_free(spec)
        self._check_registration(spec, layout)
        config, refs = await asyncio.gather(effective_config(git, layout), relevant_refs(git, layout, spec))
        if layout.top is not None and config.is_true("core.bare") and layout.common == layout.git_dir:
            layout = Layout(None, layout.git_dir, layout.common)
        continued = earlier is not None and earlier.made_branch and f"refs/heads/{spec.branch}" in refs
        source = SourceRepository(git, layout, config)
        start = await find_start(source, spec, refs, continued=continued)
        record = WorkspaceRecord(
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
            raise _with_context(error, spec) from None

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove folder and symlink; the branch stays. The caller has made sure that nothing in it is lost.

        The folder is there completely or not at all: half of one would look like work that deletes files. The remains of an interrupted
        removal are deleted by the next call.
        """
        git = Git(self._host, spec.repo)
        layout = await git.layout()
        copied_and_linked_files.remove_link(spec)
        await asyncio.to_thread(_move_away, spec.path)
        if layout is not None:
            await self._unregister(spec, git, layout)
        forget_hooks(spec)
        await asyncio.to_thread(remove_tree, removal_path(spec.path))
        forget_record(spec)

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Remove what an interrupted attempt left, including its new branch; a finished workspace stays and is returned."""
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
    async def _create_folder(self, spec: WorkspaceSpec, source: SourceRepository, start: StartPoint) -> Path:
        """Make the folder with its files; return its Git folder."""

    def _check_registration(self, spec: WorkspaceSpec, layout: Layout) -> None:
        """Raise `Conflict` if the repository uses this path for something else."""

    @abstractmethod
    async def _unregister(self, spec: WorkspaceSpec, git: Git, layout: Layout) -> None:
        """Delete the repository's records of a workspace whose folder is gone."""

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _repository(self, spec: WorkspaceSpec) -> tuple[Git, Layout]:
        """Return the repository and its layout. Raises `NotFound` if there is none."""
        git = Git(self._host, spec.repo)
        layout = await git.layout()
        if layout is None:
            problem = "is not a Git repository" if spec.repo.is_dir() else "is not there"
            raise NotFound(f"{spec.repo} {problem}", "give a repository, or make one with git init and a first commit")
        return git, layout

    async def _wait_until_unused(self, folder: Path) -> None:
        """Wait until no process uses the folder: what an earlier attempt started may outlive the daemon. Raises `Temporary`."""
        deadline = time.monotonic() + ORPHAN_TIMEOUT
        while users := self._host.users_of(folder) if folder.exists() else []:
            if time.monotonic() > deadline:
                user_list = ", ".join(f"{name} ({pid})" for pid, name in users)
                raise Temporary(
                    f"the unfinished workspace {folder} is still in use by {user_list}", "end that, or wait for it"
                )
            await asyncio.sleep(0.1)

    async def _build(
        self,
        spec: WorkspaceSpec,
        source: SourceRepository,
        start: StartPoint,
        record: WorkspaceRecord,
        report: LineCallback,
    ) -> WorkspaceInfo:
        """Make everything that belongs to the workspace, and write its completed record."""
        spec.path.parent.mkdir(parents=True, exist_ok=True)
        notes = start.notes
        git_dir = await self._create_folder(spec, source, start)
        workspace_git = Git(self._host, spec.path)
        git_env = git_environment(self._host, spec, source.layout, source.config, notes)
        await fill_submodules(workspace_git, source.layout, source.config, notes)
        await copied_and_linked_files.share_files(workspace_git, spec, source.layout, notes)
        copied_and_linked_files.make_link(spec, source.layout, notes)
        await copied_and_linked_files.set_up(self._host, spec, git_env, report)
        if spec.post_create and (layout := find_layout(spec.path)):
            await git_exclude.exclude_tool_output(workspace_git, layout, await workspace_git.untracked())
        record = record.complete(git_dir, notes, git_env)
        await asyncio.to_thread(write_record, spec, record)
        return record.info()

    async def _fill(self, spec: WorkspaceSpec, notes: list[str]) -> None:
        """Write the files; large files that cannot be fetched now stay pointers."""
        workspace_git = Git(self._host, spec.path)
        if spec.sparse:
            await workspace_git.set_sparse_folders(spec.sparse)
        try:
            await workspace_git.checkout_files()
        except GitFailed as error:
            if "lfs" not in error.stderr:
                raise
            await workspace_git.checkout_files(env={"GIT_LFS_SKIP_SMUDGE": "1"})
            notes.append("large files could not be fetched and stay pointers: git lfs pull fetches them")
        missing = [folder for folder in spec.sparse if not (spec.path / folder).is_dir()]
        if missing:
            notes.append(f"sparse: {', '.join(missing)} is no folder of {spec.branch}")

    async def _undo(self, spec: WorkspaceSpec, git: Git, layout: Layout, record: WorkspaceRecord) -> None:
        """Remove what an unfinished attempt left: folder, symlink, registration, and the branch unless it has new commits.

        The branch of a finished workspace whose folder is gone is never removed.
        """
        copied_and_linked_files.remove_link(spec)
        for folder in (spec.path, removal_path(spec.path)):
            await asyncio.to_thread(remove_tree, folder)
        await self._unregister(spec, git, layout)
        if record.made_branch and not record.made and await git.resolve(f"refs/heads/{spec.branch}") == record.start:
            await git.delete_ref(f"refs/heads/{spec.branch}", record.start)
        forget_hooks(spec)
        forget_record(spec)


def check_names(spec: WorkspaceSpec) -> None:
    """Raise `UsageError` if the branch, the base or a path is not valid."""
    if not is_valid_branch(spec.branch):
        raise UsageError(f"{spec.branch!r} is not a name for a branch", "use letters, digits, '-', '_' and '/'")
    if not spec.base or spec.base.startswith("-"):
        raise UsageError(f"{spec.base!r} is not a base to start from", "give a branch, a tag or a commit")
    for path in (spec.repo, spec.path):
        if not path.is_absolute() or "\n" in str(path):
            raise UsageError(
                f"{str(path)!r} cannot be a workspace's place", "give an absolute path without line breaks"
            )


def _check_path_is_free(spec: WorkspaceSpec) -> None:
    """Raise `Conflict` if something is at the path of the workspace or of its symlink."""
    copied_and_linked_files.check_link(spec)
    if spec.path.is_symlink() or (spec.path.exists() and not (spec.path.is_dir() and not any(spec.path.iterdir()))):
        raise Conflict(
            f"{spec.path} is in the way of the workspace", "move it away, or choose another name with --name"
        )


def _with_context(error: BaseException, spec: WorkspaceSpec) -> BaseException:
    """Return the error, an `OSError` as one that names the workspace."""
    if isinstance(error, OSError):
        return AoError(
            f"the workspace {spec.path} could not be made: {error.strerror or error}", "mend that and try again"
        )
    return error


_configs: dict[Path, tuple[float, tuple[tuple[int, int], ...], GitConfig]] = {}


async def effective_config(git: Git, layout: Layout) -> GitConfig:
    """Return the effective configuration.

    It is read again when one of its files changed, or after `CONFIG_CACHE_SECONDS` (files may include others).
    """
    home = Path(os.environ.get("HOME") or "/")
    files = (
        layout.common / "config",
        layout.git_dir / "config.worktree",
        home / ".gitconfig",
        home / ".config/git/config",
    )
    stamps = tuple(_stamp(file) for file in (*files, Path("/etc/gitconfig")))
    cached = _configs.get(layout.common)
    if cached and cached[1] == stamps and time.monotonic() - cached[0] < CONFIG_CACHE_SECONDS:
        return cached[2]
    config = await git.config()
    _configs[layout.common] = (time.monotonic(), stamps, config)
    return config


def _stamp(file: Path) -> tuple[int, int]:
    """Return the file's modification time and size, or zeros."""
    try:
        status = file.stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def removal_path(path: Path) -> Path:
    """Return the path of a folder while it is being removed."""
    return path.with_name(f".{path.name}.removed")


def _move_away(path: Path) -> None:
    """Rename the folder out of the way. Raises `OSError` if something is mounted in it."""
    if os.path.lexists(path):
        _refuse_mounts(path)
        remove_tree(removal_path(path))
        path.rename(removal_path(path))


def _refuse_mounts(path: Path) -> None:
    """Raise `OSError` if something is mounted below the path."""
    if mount_points := find_mounts_below(path):
        raise OSError(errno.EBUSY, "something is mounted there", str(mount_points[0]))


def remove_tree(path: Path) -> None:
    """Remove a folder whatever its permissions, without following symlinks. Raises `OSError` if something is mounted in it."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    if not path.exists():
        return
    _refuse_mounts(path)
    if _is_too_deep(path):
        _flatten(path)
    for attempt in range(5):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except PermissionError:
            _flatten(path)
        except OSError as error:
            # A process is still writing into it.
            if error.errno != errno.ENOTEMPTY or attempt == 4:
                raise
            time.sleep(0.05)
        else:
            return


def _is_too_deep(path: Path) -> bool:
    """Return whether folders are nested too deeply to be entered one from the other: each takes a file descriptor meanwhile."""
    pending = [(str(path), 0)]
    while pending:
        folder, depth = pending.pop()
        if depth > _MAX_FOLDER_DEPTH:
            return True
        try:
            with os.scandir(folder) as entries:
                pending += [(entry.path, depth + 1) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return True
    return False


def _flatten(path: Path) -> None:
    """Make all folders accessible, and move deeply nested ones up so that they can be removed."""
    pending = [(path, 0)]
    while pending:
        folder, depth = pending.pop()
        folder.chmod(0o700)
        with os.scandir(folder) as entries:
            subfolders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        for subfolder in subfolders:
            if depth < _FLATTENED_DEPTH:
                pending.append((subfolder, depth + 1))
            else:
                subfolder.chmod(0o700)
                pending.append((subfolder.rename(path / f".{secrets.token_hex(8)}"), 1))
