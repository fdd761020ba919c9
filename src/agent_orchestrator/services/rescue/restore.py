"""Bringing back: a fresh workspace becomes what the rescued one was, byte for byte."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.errors import NotFound
from agent_orchestrator.git import ABSENT, Git
from agent_orchestrator.git_files import Layout, find_layout
from agent_orchestrator.host import Host
from agent_orchestrator.services.rescue.manifest import Entry, Manifest, rescue_ref, restored_ref
from agent_orchestrator.services.rescue.store import holds, state_commit


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
    main, git = Git(host, repo), Git(host, workspace)
    ref = rescue_ref(session)
    commit = await main.resolve(ref)
    if commit is None:
        return BroughtBack()
    layout = find_layout(workspace)
    state = await state_commit(main, ref)
    if layout is None or state is None:
        raise NotFound(f"{workspace} is not a Git workspace", f"make it first; the saved work waits in {ref}")
    begun = layout.git_dir / "ao-bringing-back"
    if not begun.exists() or begun.read_text() != commit:
        manifest = Manifest.load((await main.run("cat-file", "blob", f"{state}:blobs/manifest.json")).out)
        if await holds(host, repo, workspace, session, [entry.path for entry in manifest.entries]):
            return await _done(main, session, commit)
        waiting = await _in_the_way(git, ref, manifest)
        if waiting:
            return BroughtBack(ref=ref, waiting=waiting)
        begun.write_text(commit)
    with tempfile.TemporaryDirectory(prefix=".ao-bring-back-", dir=workspace.parent) as folder:
        blobs = await _export(host, main, state, Path(folder))
        manifest = Manifest.load((blobs / "manifest.json").read_bytes())
        await _restore_head(git, manifest)
        _restore_files(workspace, manifest, blobs)
        await _restore_refs(git, main, manifest, blobs)
        _restore_git_files(layout, manifest, blobs)
    await _restore_stashes(git, manifest)
    done = await _done(main, session, commit)
    begun.unlink()
    return done


async def _done(main: Git, session: str, commit: str) -> BroughtBack:
    """The work is back: its rescue stays reachable under another name, so that it is not brought back a second time."""
    words = (await main.text("show", "-s", "--format=%s", commit)).partition(": ")[2]
    await main.update_refs([f"update {restored_ref(session)} {commit}", f"delete {rescue_ref(session)} {commit}"])
    return BroughtBack(tuple(words.split(", ")), restored_ref(session))


async def _in_the_way(git: Git, ref: str, manifest: Manifest) -> str:
    """What bringing back would overwrite: changes of the workspace's own, or a branch that has moved."""
    changed = [change.path for change in await git.status()]
    if changed:
        return f"{git.repo} has changes of its own ({changed[0]} …): commit them; git cherry-pick -n -m 1 {ref} applies the saved work"
    if manifest.head_ref and manifest.head and await git.resolve(manifest.head_ref) not in (None, manifest.head):
        branch = manifest.head_ref.removeprefix("refs/heads/")
        return f"branch {branch} has moved since the work was saved: git cherry-pick -n -m 1 {ref} applies it"
    return ""


async def _export(host: Host, main: Git, state: str, folder: Path) -> Path:
    """Write the rescue's blobs out as files, through no filter: the scratch repository has neither configuration nor attributes."""
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
    await export.run("checkout-index", "--all", "--force", "--quiet", config=("core.bare=false",), timeout=None)
    return out


async def _restore_head(git: Git, manifest: Manifest) -> None:
    """Check out the commit that HEAD stood at, then name it as it was named."""
    if manifest.head is None:
        empty = await git.text("hash-object", "-w", "-t", "tree", os.devnull)
    target = manifest.head or empty
    await git.run("read-tree", "--reset", "-u", target, config=("checkout.workers=0", *git.filters()), timeout=None)
    if manifest.head_ref is not None:
        await git.run("symbolic-ref", "-m", "ao: brought back", "HEAD", manifest.head_ref)
        if manifest.head and await git.resolve(manifest.head_ref) is None:
            await git.update_ref(manifest.head_ref, manifest.head, ABSENT, "ao: brought back")
    elif manifest.head:
        await git.update_ref("HEAD", manifest.head, None, "ao: brought back")


def _restore_files(workspace: Path, manifest: Manifest, blobs: Path) -> None:
    for name in manifest.absent:
        path = workspace / name
        if not _through_link(workspace, path) and (path.is_symlink() or path.is_file()):
            path.unlink()
            _remove_empty(path.parent, workspace)
    for entry in manifest.entries:
        _restore_entry(workspace, entry, blobs / entry.blob)
    for name in manifest.empty:
        path = workspace / name
        if not _through_link(workspace, path):
            path.mkdir(parents=True, exist_ok=True)


def _through_link(workspace: Path, path: Path) -> bool:
    return any((workspace / part).is_symlink() for part in list(path.relative_to(workspace).parents)[:-1])


def _remove_empty(folder: Path, workspace: Path) -> None:
    while folder != workspace and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _restore_entry(workspace: Path, entry: Entry, blob: Path) -> None:
    path = workspace / entry.path
    _clear(workspace, path, keep_folder=entry.kind == "nested")
    if entry.kind == "nested":
        path.mkdir(exist_ok=True)
        with tarfile.open(blob) as tar:
            if hasattr(tarfile, "fully_trusted_filter"):
                tar.extractall(path, filter="fully_trusted")
            else:
                tar.extractall(path)
    elif entry.kind == "link":
        path.symlink_to(os.fsdecode(blob.read_bytes()))
    else:
        shutil.copyfile(blob, path)
        path.chmod(entry.mode)


def _clear(workspace: Path, path: Path, *, keep_folder: bool) -> None:
    """Make way: a folder may have become a file, a file a folder, a symlink either."""
    for step in [*reversed(list(path.relative_to(workspace).parents)[:-1])]:
        parent = workspace / step
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            parent.unlink()
        parent.mkdir(exist_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir() and not keep_folder:
        shutil.rmtree(path)


async def _restore_refs(git: Git, main: Git, manifest: Manifest, blobs: Path) -> None:
    for blob in manifest.tags.values():
        await main.text("hash-object", "-w", "-t", "tag", "--stdin", input=(blobs / blob).read_bytes())
    present = await git.refs()
    commands = [f"update {name} {sha}" for name, sha in manifest.refs.items() if present.get(name) != sha]
    if commands:
        await git.update_refs(commands)


def _restore_git_files(layout: Layout, manifest: Manifest, blobs: Path) -> None:
    """Put back index and state files; HEAD itself went through Git."""
    for name, blob in manifest.git_files.items():
        if name != "HEAD":
            target = layout.git_dir / name
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(target.name + ".ao-new")
            shutil.copyfile(blobs / blob, fresh)
            fresh.replace(target)


async def _restore_stashes(git: Git, manifest: Manifest) -> None:
    if not manifest.stashes:
        return
    present = (await git.run("stash", "list", "--format=%H", ok=(0, 128))).text.split()
    for sha, message in reversed(manifest.stashes):
        if sha not in present:
            await git.run("stash", "store", "--quiet", "-m", message, sha)
