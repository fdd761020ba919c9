"""Restores saved work: a new workspace becomes what the saved one was, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agent_orchestrator.base.files.safe import UnsafePath, create_file, git_path_parts, parts_of, read_regular_file
from agent_orchestrator.base.git.commands import REF_ABSENT, Git
from agent_orchestrator.base.git.refs import Layout, find_layout
from agent_orchestrator.base.git.settings import PARALLEL_CHECKOUT_CONFIG
from agent_orchestrator.errors import AoError, NotFound, resource_shortage
from agent_orchestrator.plugins.workspaces.submodules import fill_submodules
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.rescue.manifest import Manifest, SavedEntry, checkpoint_ref, rescue_ref, restored_ref
from agent_orchestrator.sessions.rescue.save import is_saved_in, state_commit
from agent_orchestrator.sessions.rescue.survey import WORKTREE_REFS


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was restored."""

    restored: tuple[str, ...] = ()
    """What was restored, in words; empty if nothing had been saved."""
    ref: str | None = None
    """The ref from which the saved work is reachable."""
    waiting: str = ""
    """Why the work was not restored, and what to do; it stays under `ref`."""


async def restore_work(host: Host, repo: Path, workspace: Path, session: str) -> RestoreResult:
    """Restore a session's saved work into its new workspace; may be repeated until it succeeds. Overwrites no other work."""
    saved = await _load_saved(host, repo, workspace, rescue_ref(session))
    if saved is None:
        return RestoreResult()
    if not saved.has_begun:
        if await saved.is_restored():
            return await _finish(saved, session)
        obstacle = await _local_changes(saved) or await _branch_move(saved)
        if obstacle:
            return RestoreResult(ref=saved.ref, waiting=obstacle)
    notes = await _restore(saved)
    result = await _finish(saved, session)
    saved.marker.unlink()
    return replace(result, restored=(*result.restored, *notes))


async def restore_checkpoint(host: Host, repo: Path, workspace: Path, session: str) -> RestoreResult:
    """Restore a session's last checkpoint into a new workspace, once; the checkpoint stays. Overwrites no other work.

    If the branch has commits that the saved workspace never had, it keeps them, and only the uncommitted changes are
    applied on top.
    """
    saved = await _load_saved(host, repo, workspace, checkpoint_ref(session))
    if saved is None:
        return RestoreResult()
    descriptions, marker = await saved.descriptions(), saved.layout.git_dir / "ao-checkpoint-is-back"
    if _has_marker(marker, saved.commit):
        return RestoreResult(descriptions, saved.ref)
    if not saved.has_begun and not await saved.is_restored():
        obstacle = await _local_changes(saved)
        if obstacle:
            return RestoreResult(ref=saved.ref, waiting=obstacle)
        if await _branch_move(saved) and not await _fast_forward_branch(saved):
            obstacle = await _apply_changes(saved)
            if obstacle:
                return RestoreResult(ref=saved.ref, waiting=obstacle)
        else:
            await _restore(saved)
    elif saved.has_begun:
        await _restore(saved)
    _write_marker(marker, saved.commit)
    saved.marker.unlink(missing_ok=True)
    return RestoreResult(descriptions, saved.ref)


async def mark_restored(host: Host, repo: Path, session: str) -> None:
    """Mark a session's saved work as restored in this repository, because that was done in a copy of it."""
    main = Git(host, repo)
    if commit := await main.resolve(rescue_ref(session)):
        await _mark_restored(main, session, commit)


@dataclass(slots=True)
class _SavedWork:
    """Saved work, and the workspace it is restored to."""

    host: Host
    main: Git
    git: Git
    layout: Layout
    ref: str
    commit: str
    state: str
    manifest: Manifest

    @property
    def marker(self) -> Path:
        """The file that says that restoring has begun: from then on, changes in the workspace are ours."""
        return self.layout.git_dir / "ao-bringing-back"

    @property
    def has_begun(self) -> bool:
        """Whether restoring this commit has begun."""
        return _has_marker(self.marker, self.commit)

    async def is_restored(self) -> bool:
        """Return whether the workspace is as it was saved."""
        paths = [entry.path for entry in self.manifest.entries]
        return await is_saved_in(self.host, self.main.repo, self.git.repo, self.ref, paths)

    async def descriptions(self) -> tuple[str, ...]:
        """Return what was saved, in words."""
        subject = await self.main.text("show", "-s", "--format=%s", self.commit)
        return tuple(subject.partition(": ")[2].split(", "))


def _has_marker(file: Path, commit: str) -> bool:
    """Return whether a marker file names this commit; agents too can write to the workspace's Git folder."""
    try:
        return read_regular_file(file) == commit.encode()
    except OSError as error:
        if short := resource_shortage(error):
            raise short from None
        return False


def _write_marker(file: Path, commit: str) -> None:
    """Write a marker file."""
    with create_file(file) as stream:
        stream.write(commit.encode())


async def _load_saved(host: Host, repo: Path, workspace: Path, ref: str) -> _SavedWork | None:
    """Return the saved work under a ref, or None; raise `NotFound` if the workspace is no Git workspace."""
    main = Git(host, repo)
    commit = await main.resolve(ref)
    if commit is None:
        return None
    layout, state = find_layout(workspace), await state_commit(main, ref)
    if layout is None or state is None:
        raise NotFound(f"{workspace} is not a Git workspace", f"make it first; the saved work waits in {ref}")
    manifest = Manifest.load((await main.run("cat-file", "blob", f"{state}:blobs/manifest.json")).out)
    return _SavedWork(host, main, Git(host, workspace), layout, ref, commit, state, manifest)


async def _restore(saved: _SavedWork) -> list[str]:
    """Make the workspace what it was, and return what could not be restored; may be repeated once it has begun."""
    workspace, git = saved.git.repo, saved.git
    _write_marker(saved.marker, saved.commit)
    with tempfile.TemporaryDirectory(prefix=".ao-bring-back-", dir=workspace.parent) as folder:
        blobs = await _export(saved.host, saved.main, saved.state, Path(folder))
        await _restore_head(git, saved.manifest)
        try:
            await asyncio.to_thread(_restore_files, workspace, saved.manifest, blobs)
        except UnsafePath as error:
            raise AoError(
                f"this is no rescue that was made here: {error}", f"look at it: git show {saved.ref}"
            ) from None
        await _restore_refs(saved, blobs)
        await asyncio.to_thread(_restore_git_files, saved.layout, saved.manifest, blobs)
        await _remove_sparse_files(git, saved.manifest)
    await _refresh_index(git, saved.manifest)
    await _restore_stashes(git, saved.manifest)
    notes: list[str] = []
    if empty := [path for path in saved.manifest.filled if find_layout(workspace / path) is None]:
        source = await saved.main.layout()
        assert source is not None
        for path in empty:  # Git checks whether the folder exists, even if a sparse checkout leaves it out
            if not _is_through_link(workspace, workspace / path):
                with contextlib.suppress(OSError):
                    (workspace / path).mkdir(parents=True, exist_ok=True)
        await fill_submodules(git, source, await saved.main.config(), notes, empty)
    return notes


async def _finish(saved: _SavedWork, session: str) -> RestoreResult:
    """Mark the saved work as restored, and return what was restored."""
    words = await saved.descriptions()
    await _mark_restored(saved.main, session, saved.commit)
    return RestoreResult(words, restored_ref(session))


async def _mark_restored(main: Git, session: str, commit: str) -> None:
    """Move the rescue to another ref: it stays reachable, and is not restored a second time."""
    await main.update_refs([f"update {restored_ref(session)} {commit}", f"delete {rescue_ref(session)} {commit}"])


async def _local_changes(saved: _SavedWork) -> str:
    """Return why uncommitted changes of the workspace prevent the restore, or ""."""
    changed_paths = [change.path for change in await saved.git.status()]
    if not changed_paths:
        return ""
    return (
        f"{saved.git.repo} has changes of its own ({changed_paths[0]} …): commit them; "
        f"git cherry-pick -n -m 1 {saved.commit[:12]} applies the saved work"
    )


async def _branch_move(saved: _SavedWork) -> str:
    """Return why a branch that has moved since the work was saved prevents the restore, or ""."""
    name, head = saved.manifest.head_ref, saved.manifest.head
    if not name or not head or await saved.git.resolve(name) in (None, head):
        return ""
    branch = name.removeprefix("refs/heads/")
    return f"branch {branch} has moved since the work was saved: git cherry-pick -n -m 1 {saved.commit[:12]} applies it"


async def _fast_forward_branch(saved: _SavedWork) -> bool:
    """Move a branch that is behind to where it was when the work was saved; return False if it is not behind.

    It is behind too at a commit that the workspace's HEAD has left, as an amended one.
    """
    name, head = saved.manifest.head_ref, saved.manifest.head
    current = await saved.git.resolve(name) if name else None
    if not name or not head or not current:
        return False
    if not await saved.git.is_ancestor(current, head) and current not in await _earlier_heads(saved):
        return False
    _write_marker(saved.marker, saved.commit)
    await saved.git.update_ref(name, head, current, "ao: brought back")
    return True


async def _earlier_heads(saved: _SavedWork) -> set[str]:
    """Return the commits that HEAD has been at in the saved workspace, by its log."""
    blob = saved.manifest.git_files.get("logs/HEAD")
    if blob is None:
        return set()
    entries = (await saved.main.run("cat-file", "blob", blob)).out.splitlines()
    return {commit.decode(errors="replace") for entry in entries for commit in entry.split(maxsplit=2)[:2]}


async def _apply_changes(saved: _SavedWork) -> str:
    """Apply the uncommitted changes to a branch that has moved; return why that failed, or ""."""
    git = saved.git
    result = await git.run(
        "cherry-pick", "--no-commit", "-m", "1", saved.commit, config=git.missing_lfs_config(), ok=(0, 1, 128)
    )
    if result.code:
        await git.run("reset", "--quiet", "--hard", config=git.missing_lfs_config())
        return await _branch_move(saved)
    await git.run("reset", "--quiet")
    return ""


async def _export(host: Host, main: Git, state: str, folder: Path) -> Path:
    """Write the rescue's blobs to files without any filter: the scratch repository has neither configuration nor attributes.

    A symlink among them becomes a file that contains its target.
    """
    layout = await main.layout()
    assert layout is not None
    scratch, out = folder / "git", folder / "blobs"
    out.mkdir()
    algorithm = "sha256" if len(state) == 64 else "sha1"
    await main.run("init", "--quiet", "--bare", "--template=", f"--object-format={algorithm}", "--", str(scratch))
    env = {
        "GIT_DIR": str(scratch),
        "GIT_WORK_TREE": str(out),
        "GIT_OBJECT_DIRECTORY": str(layout.common / "objects"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
    }
    export = Git(host, out, env)
    await export.run("read-tree", f"{state}:blobs", config=("core.bare=false",))
    settings = ("core.bare=false", "core.symlinks=false")
    await export.run("checkout-index", "--all", "--force", "--quiet", config=settings, timeout=None)
    return out


async def _restore_head(git: Git, manifest: Manifest) -> None:
    """Check out the commit of HEAD, then set HEAD to the name it had."""
    if manifest.head is None:
        empty = await git.text("hash-object", "-w", "-t", "tree", os.devnull)
    target = manifest.head or empty
    await git.run(
        "read-tree", "--reset", "-u", target, config=(PARALLEL_CHECKOUT_CONFIG, *git.missing_lfs_config()), timeout=None
    )
    if manifest.head_ref is not None:
        await git.run("symbolic-ref", "-m", "ao: brought back", "HEAD", manifest.head_ref)
        if manifest.head and await git.resolve(manifest.head_ref) is None:
            await git.update_ref(manifest.head_ref, manifest.head, REF_ABSENT, "ao: brought back")
    elif manifest.head:
        await git.update_ref("HEAD", manifest.head, None, "ao: brought back")


def _restore_files(workspace: Path, manifest: Manifest, blobs: Path) -> None:
    """Remove the absent files, and restore the saved entries and empty folders."""
    for name in manifest.absent:
        _remove(workspace, name)
    for entry in manifest.entries:
        _restore_entry(workspace, entry, blobs / entry.blob)
    for name in manifest.empty:
        path = workspace / name
        if not _is_through_link(workspace, path):
            path.mkdir(parents=True, exist_ok=True)


def _remove(workspace: Path, name: str) -> None:
    """Remove a file of the workspace, and folders that become empty, unless the path leads through a symlink."""
    path = workspace.joinpath(*git_path_parts(name))
    if not _is_through_link(workspace, path) and (path.is_symlink() or path.is_file()):
        path.unlink()
        _remove_empty(path.parent, workspace)


async def _remove_sparse_files(git: Git, manifest: Manifest) -> None:
    """Remove the files that the restored index leaves out (sparse checkout): the new checkout may have been complete."""
    config = ("sparse.expectFilesOutsideOfPatterns=true",)  # also if the file exists
    listing = (await git.run("ls-files", "-v", "-z", config=config, timeout=None)).out
    restored_paths = {entry.path for entry in manifest.entries}

    def remove() -> None:
        """Remove the files that the index leaves out and the rescue does not have."""
        for entry in os.fsdecode(listing).split("\0"):
            if entry[:1] in ("S", "s") and entry[2:] not in restored_paths:
                with contextlib.suppress(UnsafePath):  # an agent may have written the index
                    _remove(git.repo, entry[2:])

    await asyncio.to_thread(remove)


def _is_through_link(workspace: Path, path: Path) -> bool:
    """Return whether a folder on the way to the path is a symlink."""
    return any((workspace / part).is_symlink() for part in list(path.relative_to(workspace).parents)[:-1])


def _remove_empty(folder: Path, workspace: Path) -> None:
    """Remove a folder and its parents, up to the workspace, while they are empty."""
    while folder != workspace and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _restore_entry(workspace: Path, entry: SavedEntry, blob: Path) -> None:
    """Write one saved file, symlink or nested repository."""
    path = workspace / entry.path
    _clear_path(workspace, path)
    if entry.kind == "nested":
        path.mkdir()
        with tarfile.open(blob) as tar:
            if hasattr(tarfile, "fully_trusted_filter"):
                tar.extractall(path, _safe_members(tar, path), filter="fully_trusted")
            else:
                tar.extractall(path, _safe_members(tar, path))
    elif entry.kind == "link":
        path.symlink_to(os.fsdecode(blob.read_bytes()))
    else:
        shutil.copyfile(blob, path)
        path.chmod(entry.mode)


def _safe_members(tar: tarfile.TarFile, folder: Path) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive; raise `UnsafePath` for one outside the folder, behind a symlink of the archive, or a device."""
    for member in tar:
        names = [member.name, *([member.linkname] if member.islnk() else [])]
        for name in names:
            if name != "." and _is_through_link(folder, folder.joinpath(*parts_of(name))):
                raise UnsafePath(f"{name!r} lies behind a symlink of the same archive")
        if member.ischr() or member.isblk():
            raise UnsafePath(f"{member.name!r} is a device")
        yield member


def _clear_path(workspace: Path, path: Path) -> None:
    """Remove what is at a path or blocks it, because a folder may have become a file or the reverse. Git's own folder is refused."""
    top = workspace / path.relative_to(workspace).parts[0]
    if top.exists() and top.samefile(workspace / ".git"):
        raise UnsafePath(f"{path} is Git's own")
    for relative_parent in [*reversed(list(path.relative_to(workspace).parents)[:-1])]:
        parent = workspace / relative_parent
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            parent.unlink()
        parent.mkdir(exist_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


async def _restore_refs(saved: _SavedWork, blobs: Path) -> None:
    """Restore a worktree's own refs, or all refs of a clone."""
    for blob in saved.manifest.tags.values():
        await saved.main.text("hash-object", "-w", "-t", "tag", "--stdin", input=(blobs / blob).read_bytes())
    origin = await saved.main.layout()
    is_shared = origin is not None and origin.common.resolve() == saved.layout.common.resolve()
    own_refs = {
        name: sha for name, sha in saved.manifest.refs.items() if not is_shared or name.startswith(WORKTREE_REFS)
    }
    present = await saved.git.refs()
    commands = [f"update {name} {sha}" for name, sha in own_refs.items() if present.get(name) != sha]
    if commands:
        await saved.git.update_refs(commands)


def _restore_git_files(layout: Layout, manifest: Manifest, blobs: Path) -> None:
    """Restore the index and Git's state files; HEAD was restored by Git."""
    for name, blob in manifest.git_files.items():
        if name != "HEAD":
            target = layout.git_dir / name
            target.parent.mkdir(parents=True, exist_ok=True)
            new_file_path = target.with_name(target.name + ".ao-new")
            with (blobs / blob).open("rb") as content, create_file(new_file_path) as stream:
                shutil.copyfileobj(content, stream)
            new_file_path.replace(target)


async def _refresh_index(git: Git, manifest: Manifest) -> None:
    """Refresh index entries of files that count as changed only because of their recorded size.

    An unchanged file is checked out with the line endings that its attributes ask for, which may differ from what it had before.
    """
    restored_paths = {entry.path for entry in manifest.entries}
    changed = [change for change in await git.status() if change.xy[1] == "M" and change.sub == "N..."]
    wrongly = [change.path for change in changed if change.path not in restored_paths]
    if wrongly:
        env = {"GIT_LITERAL_PATHSPECS": "1"}
        entries = (await git.run("ls-files", "--stage", "-z", "--", *wrongly, env=env)).out
        await git.run("update-index", "-z", "--index-info", input=entries)
        await git.run("update-index", "-q", "--refresh", config=git.missing_lfs_config(), ok=(0, 1))


async def _restore_stashes(git: Git, manifest: Manifest) -> None:
    """Restore the stash entries that are missing."""
    if not manifest.stashes:
        return
    present = (await git.text("stash", "list", "--format=%H")).split()
    for sha, message in reversed(manifest.stashes):
        if sha not in present:
            await git.run("stash", "store", "--quiet", "-m", message, sha)
