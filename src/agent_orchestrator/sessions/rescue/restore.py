"""Bringing back: a fresh workspace becomes what the rescued one was, byte for byte."""

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

from agent_orchestrator.base.files.safe import NotPlain, new_file, parts_in_git, parts_of, read_plain
from agent_orchestrator.base.git.commands import ABSENT, PARALLEL, Git
from agent_orchestrator.base.git.refs import Layout, find_layout
from agent_orchestrator.errors import AoError, NotFound, machine_short
from agent_orchestrator.plugins.workspaces.submodules import fill_submodules
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.rescue.manifest import Entry, Manifest, checkpoint_ref, rescue_ref, restored_ref
from agent_orchestrator.sessions.rescue.save import holds, state_commit
from agent_orchestrator.sessions.rescue.survey import WORKTREE_REFS


@dataclass(frozen=True, slots=True)
class BroughtBack:
    """What was brought back."""

    restored: tuple[str, ...] = ()
    """In words; nothing: nothing had been saved."""
    ref: str | None = None
    """Where the rescue is reachable."""
    waiting: str = ""
    """Why the work was not brought back, and what to do: it stays under `ref`."""


async def bring_back(host: Host, repo: Path, workspace: Path, session: str) -> BroughtBack:
    """Put a session's saved work into its new workspace; safe to repeat until it is done. Overwrites no other work."""
    saved = await _saved(host, repo, workspace, rescue_ref(session))
    if saved is None:
        return BroughtBack()
    if not saved.begun:
        if await saved.is_back():
            return await _done(saved, session)
        waiting = await _changed(saved) or await _moved(saved)
        if waiting:
            return BroughtBack(ref=saved.ref, waiting=waiting)
    notes = await _restore(saved)
    done = await _done(saved, session)
    saved.marker.unlink()
    return replace(done, restored=(*done.restored, *notes))


async def from_checkpoint(host: Host, repo: Path, workspace: Path, session: str) -> BroughtBack:
    """Put a session's last checkpoint into a new workspace, once; the checkpoint stays where it is. Overwrites no other work.

    A branch that went on since then, or another way, keeps what it has: then only the uncommitted changes are put on top.
    """
    saved = await _saved(host, repo, workspace, checkpoint_ref(session))
    if saved is None:
        return BroughtBack()
    words, finished = await saved.words(), saved.layout.git_dir / "ao-checkpoint-is-back"
    if _says(finished, saved.commit):
        return BroughtBack(words, saved.ref)
    if not saved.begun and not await saved.is_back():
        waiting = await _changed(saved)
        if waiting:
            return BroughtBack(ref=saved.ref, waiting=waiting)
        if await _moved(saved) and not await _catch_up(saved):
            waiting = await _put_on_top(saved)
            if waiting:
                return BroughtBack(ref=saved.ref, waiting=waiting)
        else:
            await _restore(saved)
    elif saved.begun:
        await _restore(saved)
    _say(finished, saved.commit)
    saved.marker.unlink(missing_ok=True)
    return BroughtBack(words, saved.ref)


async def settle(host: Host, repo: Path, session: str) -> None:
    """A session's saved work was brought back elsewhere, from a copy of this repository: here it waits no more."""
    main = Git(host, repo)
    if commit := await main.resolve(rescue_ref(session)):
        await _no_longer_waiting(main, session, commit)


@dataclass(slots=True)
class _Saved:
    """What was saved, and where it is to go."""

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
        """Says that bringing back has begun: from then on the workspace's changes are ours."""
        return self.layout.git_dir / "ao-bringing-back"

    @property
    def begun(self) -> bool:
        return _says(self.marker, self.commit)

    async def is_back(self) -> bool:
        """Is the workspace just as it was saved?"""
        named = [entry.path for entry in self.manifest.entries]
        return await holds(self.host, self.main.repo, self.git.repo, self.ref, named)

    async def words(self) -> tuple[str, ...]:
        """What was saved, in words."""
        subject = await self.main.text("show", "-s", "--format=%s", self.commit)
        return tuple(subject.partition(": ")[2].split(", "))


def _says(file: Path, commit: str) -> bool:
    """Is this mark of ours there? In the workspace's own Git folder agents write too."""
    try:
        return read_plain(file) == commit.encode()
    except OSError as error:
        if short := machine_short(error):
            raise short from None
        return False


def _say(file: Path, commit: str) -> None:
    with new_file(file) as stream:
        stream.write(commit.encode())


async def _saved(host: Host, repo: Path, workspace: Path, ref: str) -> _Saved | None:
    main = Git(host, repo)
    commit = await main.resolve(ref)
    if commit is None:
        return None
    layout, state = find_layout(workspace), await state_commit(main, ref)
    if layout is None or state is None:
        raise NotFound(f"{workspace} is not a Git workspace", f"make it first; the saved work waits in {ref}")
    manifest = Manifest.load((await main.run("cat-file", "blob", f"{state}:blobs/manifest.json")).out)
    return _Saved(host, main, Git(host, workspace), layout, ref, commit, state, manifest)


async def _restore(saved: _Saved) -> list[str]:
    """Make the workspace what it was; again until it is, once begun. Returns what could not be."""
    workspace, git = saved.git.repo, saved.git
    _say(saved.marker, saved.commit)
    with tempfile.TemporaryDirectory(prefix=".ao-bring-back-", dir=workspace.parent) as folder:
        blobs = await _export(saved.host, saved.main, saved.state, Path(folder))
        await _restore_head(git, saved.manifest)
        try:
            await asyncio.to_thread(_restore_files, workspace, saved.manifest, blobs)
        except NotPlain as error:
            raise AoError(
                f"this is no rescue that was made here: {error}", f"look at it: git show {saved.ref}"
            ) from None
        await _restore_refs(saved, blobs)
        await asyncio.to_thread(_restore_git_files, saved.layout, saved.manifest, blobs)
        await _leave_out(git, saved.manifest)
    await _look_again(git, saved.manifest)
    await _restore_stashes(git, saved.manifest)
    notes: list[str] = []
    if empty := [path for path in saved.manifest.filled if find_layout(workspace / path) is None]:
        source = await saved.main.layout()
        assert source is not None
        for path in empty:  # Git looks at what is there, also where a sparse checkout leaves it out
            if not _through_link(workspace, workspace / path):
                with contextlib.suppress(OSError):
                    (workspace / path).mkdir(parents=True, exist_ok=True)
        await fill_submodules(git, source, await saved.main.config(), notes, empty)
    return notes


async def _done(saved: _Saved, session: str) -> BroughtBack:
    words = await saved.words()
    await _no_longer_waiting(saved.main, session, saved.commit)
    return BroughtBack(words, restored_ref(session))


async def _no_longer_waiting(main: Git, session: str, commit: str) -> None:
    """The work is back: its rescue stays reachable under another name, so that it is not brought back a second time."""
    await main.update_refs([f"update {restored_ref(session)} {commit}", f"delete {rescue_ref(session)} {commit}"])


async def _changed(saved: _Saved) -> str:
    """Changes of the workspace's own, which bringing back would overwrite."""
    changed = [change.path for change in await saved.git.status()]
    if not changed:
        return ""
    return (
        f"{saved.git.repo} has changes of its own ({changed[0]} …): commit them; "
        f"git cherry-pick -n -m 1 {saved.commit[:12]} applies the saved work"
    )


async def _moved(saved: _Saved) -> str:
    """A branch that is not where it was when the work was saved."""
    name, head = saved.manifest.head_ref, saved.manifest.head
    if not name or not head or await saved.git.resolve(name) in (None, head):
        return ""
    branch = name.removeprefix("refs/heads/")
    return f"branch {branch} has moved since the work was saved: git cherry-pick -n -m 1 {saved.commit[:12]} applies it"


async def _catch_up(saved: _Saved) -> bool:
    """Bring a branch that is behind to where it was when the work was saved; false: it is not behind."""
    name, head = saved.manifest.head_ref, saved.manifest.head
    there = await saved.git.resolve(name) if name else None
    if not name or not head or not there or not await saved.git.is_ancestor(there, head):
        return False
    _say(saved.marker, saved.commit)
    await saved.git.update_ref(name, head, there, "ao: brought back")
    return True


async def _put_on_top(saved: _Saved) -> str:
    """Apply the uncommitted changes to a branch that went on without them; returns why not, if they do not fit."""
    git = saved.git
    done = await git.run("cherry-pick", "--no-commit", "-m", "1", saved.commit, config=git.filters(), ok=(0, 1, 128))
    if done.code:
        await git.run("reset", "--quiet", "--hard", config=git.filters())
        return await _moved(saved)
    await git.run("reset", "--quiet")
    return ""


async def _export(host: Host, main: Git, state: str, folder: Path) -> Path:
    """Write the rescue's blobs out as files, through no filter: the scratch repository has neither configuration nor attributes.
    A symlink among them would be a file with its target in it."""
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
    plain = ("core.bare=false", "core.symlinks=false")
    await export.run("checkout-index", "--all", "--force", "--quiet", config=plain, timeout=None)
    return out


async def _restore_head(git: Git, manifest: Manifest) -> None:
    """Check out the commit that HEAD stood at, then name it as it was named."""
    if manifest.head is None:
        empty = await git.text("hash-object", "-w", "-t", "tree", os.devnull)
    target = manifest.head or empty
    await git.run("read-tree", "--reset", "-u", target, config=(PARALLEL, *git.filters()), timeout=None)
    if manifest.head_ref is not None:
        await git.run("symbolic-ref", "-m", "ao: brought back", "HEAD", manifest.head_ref)
        if manifest.head and await git.resolve(manifest.head_ref) is None:
            await git.update_ref(manifest.head_ref, manifest.head, ABSENT, "ao: brought back")
    elif manifest.head:
        await git.update_ref("HEAD", manifest.head, None, "ao: brought back")


def _restore_files(workspace: Path, manifest: Manifest, blobs: Path) -> None:
    for name in manifest.absent:
        _remove(workspace, name)
    for entry in manifest.entries:
        _restore_entry(workspace, entry, blobs / entry.blob)
    for name in manifest.empty:
        path = workspace / name
        if not _through_link(workspace, path):
            path.mkdir(parents=True, exist_ok=True)


def _remove(workspace: Path, name: str) -> None:
    path = workspace.joinpath(*parts_in_git(name))
    if not _through_link(workspace, path) and (path.is_symlink() or path.is_file()):
        path.unlink()
        _remove_empty(path.parent, workspace)


async def _leave_out(git: Git, manifest: Manifest) -> None:
    """Take away what the index that was brought back leaves out: the new checkout may have been whole."""
    as_marked = ("sparse.expectFilesOutsideOfPatterns=true",)  # also where the file is there
    listing = (await git.run("ls-files", "-v", "-z", config=as_marked, timeout=None)).out
    kept = {entry.path for entry in manifest.entries}

    def remove() -> None:
        for entry in os.fsdecode(listing).split("\0"):
            if entry[:1] in ("S", "s") and entry[2:] not in kept:
                with contextlib.suppress(NotPlain):  # the index may be of an agent's own making
                    _remove(git.repo, entry[2:])

    await asyncio.to_thread(remove)


def _through_link(workspace: Path, path: Path) -> bool:
    return any((workspace / part).is_symlink() for part in list(path.relative_to(workspace).parents)[:-1])


def _remove_empty(folder: Path, workspace: Path) -> None:
    while folder != workspace and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _restore_entry(workspace: Path, entry: Entry, blob: Path) -> None:
    path = workspace / entry.path
    _clear(workspace, path)
    if entry.kind == "nested":
        path.mkdir()
        with tarfile.open(blob) as tar:
            if hasattr(tarfile, "fully_trusted_filter"):
                tar.extractall(path, _inside(tar, path), filter="fully_trusted")
            else:
                tar.extractall(path, _inside(tar, path))
    elif entry.kind == "link":
        path.symlink_to(os.fsdecode(blob.read_bytes()))
    else:
        shutil.copyfile(blob, path)
        path.chmod(entry.mode)


def _inside(tar: tarfile.TarFile, folder: Path) -> Iterator[tarfile.TarInfo]:
    """What an archive has in it, one after the other, as long as all of it is below the folder, and behind no symlink of its own."""
    for member in tar:
        named = [member.name, *([member.linkname] if member.islnk() else [])]
        for name in named:
            if name != "." and _through_link(folder, folder.joinpath(*parts_of(name))):
                raise NotPlain(f"{name!r} lies behind a symlink of the same archive")
        if member.ischr() or member.isblk():
            raise NotPlain(f"{member.name!r} is a device")
        yield member


def _clear(workspace: Path, path: Path) -> None:
    """Make way: a folder may have become a file, a file a folder, a symlink either. Never Git's own, however it is spelled."""
    top = workspace / path.relative_to(workspace).parts[0]
    if top.exists() and top.samefile(workspace / ".git"):
        raise NotPlain(f"{path} is Git's own")
    for step in [*reversed(list(path.relative_to(workspace).parents)[:-1])]:
        parent = workspace / step
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            parent.unlink()
        parent.mkdir(exist_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


async def _restore_refs(saved: _Saved, blobs: Path) -> None:
    """A worktree's own; all of a clone's."""
    for blob in saved.manifest.tags.values():
        await saved.main.text("hash-object", "-w", "-t", "tag", "--stdin", input=(blobs / blob).read_bytes())
    origin = await saved.main.layout()
    shared = origin is not None and origin.common.resolve() == saved.layout.common.resolve()
    own = {name: sha for name, sha in saved.manifest.refs.items() if not shared or name.startswith(WORKTREE_REFS)}
    present = await saved.git.refs()
    commands = [f"update {name} {sha}" for name, sha in own.items() if present.get(name) != sha]
    if commands:
        await saved.git.update_refs(commands)


def _restore_git_files(layout: Layout, manifest: Manifest, blobs: Path) -> None:
    """Put back index and state files; HEAD itself went through Git."""
    for name, blob in manifest.git_files.items():
        if name != "HEAD":
            target = layout.git_dir / name
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(target.name + ".ao-new")
            with (blobs / blob).open("rb") as content, new_file(fresh) as stream:
                shutil.copyfileobj(content, stream)
            fresh.replace(target)


async def _look_again(git: Git, manifest: Manifest) -> None:
    """Where Git takes a file for changed only because the index that was saved knew it in another length: an unchanged file comes back
    with the line endings that its attributes ask for, whatever it had before.
    """
    known = {entry.path for entry in manifest.entries}
    changed = [change for change in await git.status() if change.xy[1] == "M" and change.sub == "N..."]
    wrongly = [change.path for change in changed if change.path not in known]
    if wrongly:
        literally = {"GIT_LITERAL_PATHSPECS": "1"}
        entries = (await git.run("ls-files", "--stage", "-z", "--", *wrongly, env=literally)).out
        await git.run("update-index", "-z", "--index-info", input=entries)
        await git.run("update-index", "-q", "--refresh", config=git.filters(), ok=(0, 1))


async def _restore_stashes(git: Git, manifest: Manifest) -> None:
    if not manifest.stashes:
        return
    present = (await git.text("stash", "list", "--format=%H")).split()
    for sha, message in reversed(manifest.stashes):
        if sha not in present:
            await git.run("stash", "store", "--quiet", "-m", message, sha)
