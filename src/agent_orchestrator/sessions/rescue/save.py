"""Saves a workspace: every byte becomes a blob of the main repository, and one ref moves at the very end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import open_below
from agent_orchestrator.base.git.commands import REF_ABSENT, Git, GitFailed
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.rescue.manifest import (
    IDENTITY,
    Manifest,
    SavedEntry,
    checkpoint_ref,
    rescue_ref,
    restored_ref,
)
from agent_orchestrator.sessions.rescue.nested_repositories import pack
from agent_orchestrator.sessions.rescue.size_limits import MAX_FILE_SIZE
from agent_orchestrator.sessions.rescue.survey import Survey, survey

_MAX_OPEN_FILES = 64
"""Number of files that are open at the same time."""
_MAX_TRIES = 3
"""How often a checkpoint is tried while files of the workspace appear and disappear."""
_ANY_OBJECT = "git -c uploadpack.allowAnySHA1InWant=true upload-pack"


@dataclass(frozen=True, slots=True)
class Rescue:
    """What was saved, and where."""

    clean: bool
    """Whether nothing needed saving."""
    saved: tuple[str, ...] = ()
    """What was saved, in words: `2 untracked files`."""
    ref: str | None = None
    commit: str | None = None
    skipped: tuple[str, ...] = ()
    """Pipes, sockets and the like, which hold nothing."""
    unsafe: tuple[str, ...] = ()
    """What could not be saved; if there is any, the workspace must stay."""


@dataclass(frozen=True, slots=True)
class CheckpointResult:
    """The saved state of a working session."""

    ref: str
    commit: str
    changed: bool
    """Whether it differs from the checkpoint before."""
    unsafe: tuple[str, ...] = ()
    """What could not be saved."""


async def rescue(
    host: Host, repo: Path, workspace: Path, session: str, named: Sequence[str] = (), branch: str = ""
) -> Rescue:
    """Save everything in the workspace that is nowhere else, and the name of its branch if that is not `branch`.

    `named` are patterns of ignored files to save too.
    """
    snapshot = await survey(host, repo, workspace, named, branch)
    descriptions = tuple(snapshot.describe_unsaved())
    skipped, unsafe = tuple(snapshot.special), tuple(snapshot.unsafe)
    if not descriptions:
        return Rescue(clean=not unsafe, skipped=skipped, unsafe=unsafe)
    ref = rescue_ref(session)
    with tempfile.TemporaryDirectory(prefix="ao-rescue-") as folder:
        try:
            about = f"Rescue of {session}: {', '.join(descriptions)}\n\nao restore {session} brings it back.\n"
            current = await snapshot.main.resolve(ref)
            earlier = current or await snapshot.main.resolve(restored_ref(session))
            commit = await _save(snapshot, ref, session, Path(folder), about, [earlier] if earlier else [])
        except OSError as error:
            raise AoError(
                f"{workspace} could not be saved: {error.strerror or error}", "mend that; nothing was removed"
            ) from None
    if current not in (None, commit):
        descriptions = (*descriptions, f"and below it {current[:12]}, which was saved before and not brought back")
    return Rescue(clean=False, saved=descriptions, ref=ref, commit=commit, skipped=skipped, unsafe=unsafe)


async def checkpoint(
    host: Host, repo: Path, workspace: Path, session: str, named: Sequence[str] = ()
) -> CheckpointResult:
    """Save the state of a workspace while its agent works in it, unless it equals the last checkpoint.

    A state without changes is saved too, so that an older checkpoint is not mistaken for it.
    """
    ref = checkpoint_ref(session)
    for attempt in range(_MAX_TRIES):
        snapshot = await survey(host, repo, workspace, named)
        about = f"Checkpoint of {session}: {', '.join(snapshot.describe_unsaved()) or 'nothing uncommitted'}\n"
        previous = await snapshot.main.resolve(ref)
        with tempfile.TemporaryDirectory(prefix="ao-checkpoint-") as folder:
            try:
                commit = await _save(snapshot, ref, session, Path(folder), about, [])
            except (OSError, GitFailed) as error:
                if attempt == _MAX_TRIES - 1:
                    raise Temporary(f"{workspace} could not be saved just now: {error}") from None
            else:
                return CheckpointResult(ref, commit, commit != previous, tuple(snapshot.unsafe))
    raise AssertionError("unreachable")


async def stored_rescue(host: Host, repo: Path, session: str) -> Rescue:
    """Return what is stored under the session's rescue ref, by an attempt that may not have been recorded."""
    main, ref = Git(host, repo), rescue_ref(session)
    commit = await main.resolve(ref)
    if commit is None:
        return Rescue(clean=True)
    descriptions = (await main.text("show", "-s", "--format=%s", commit)).partition(": ")[2]
    return Rescue(clean=False, saved=tuple(descriptions.split(", ")), ref=ref, commit=commit)


async def removal_obstacles(
    host: Host, repo: Path, workspace: Path, session: str, named: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return why the workspace may not be removed yet.

    The result is empty if all of it is on a branch, pushed, or stored under the session's rescue ref.
    """
    snapshot = await survey(host, repo, workspace, named)
    descriptions = snapshot.describe_unsaved()
    if descriptions and await _is_stored(snapshot, rescue_ref(session)):
        descriptions = []
    return (*descriptions, *snapshot.unsafe)


async def is_saved_in(host: Host, repo: Path, workspace: Path, ref: str, named: Sequence[str]) -> bool:
    """Return whether the workspace equals the state under this ref."""
    return await _is_stored(await survey(host, repo, workspace, named), ref)


async def _is_stored(snapshot: Survey, ref: str) -> bool:
    """Return whether the ref holds the surveyed state."""
    stored_blob = await _stored_manifest(snapshot.main, ref)
    if stored_blob is None:
        return False
    with tempfile.TemporaryDirectory(prefix="ao-rescue-") as folder:
        manifest = await _capture(snapshot, Path(folder))
    return stored_blob == await snapshot.main.hash_bytes(manifest.dump())


async def _stored_manifest(main: Git, ref: str) -> str | None:
    """Return the manifest's blob of the rescue that a ref holds, or None."""
    state = await state_commit(main, ref)
    return await main.text("rev-parse", "--verify", f"{state}:blobs/manifest.json") if state else None


async def state_commit(main: Git, ref: str) -> str | None:
    """Return the commit that holds a rescue's state, which is its last parent, or None."""
    commit = await main.resolve(ref)
    return next(iter((await main.text("show", "-s", "--format=%P", commit)).split()[::-1]), None) if commit else None


async def _save(snapshot: Survey, ref: str, session: str, folder: Path, about: str, earlier: Sequence[str]) -> str:
    """Store the workspace's state under a ref, unless the ref has that state; return the commit.

    The commits in `earlier` stay reachable from it.
    """
    main = snapshot.main
    manifest = await _capture(snapshot, folder)
    manifest_blob = await main.hash_bytes(manifest.dump())
    current = await main.resolve(ref)
    if current and await _stored_manifest(main, ref) == manifest_blob:
        return current
    blobs = {entry.blob for entry in manifest.entries} | {*manifest.git_files.values(), *manifest.tags.values()}
    listing = [("100644", "blob", sha, sha) for sha in sorted(blobs)]
    tree = [
        (
            "040000",
            "tree",
            await main.make_tree([*listing, ("100644", "blob", manifest_blob, "manifest.json")]),
            "blobs",
        )
    ]
    keep = _kept_objects(snapshot)
    if any(change.xy == ".A" for change in snapshot.changes):
        empty_blob = await main.hash_bytes(b"")
        keep.append(("100644", "blob", empty_blob, empty_blob))
    if keep:
        tree.append(("040000", "tree", await main.make_tree(keep), "keep"))
    parents = [*_kept_commits(snapshot), *earlier]
    message = f"State of {session}\n\nRead by Agent Orchestrator.\n"
    state = await main.commit_tree(await main.make_tree(tree), list(dict.fromkeys(parents)), message, IDENTITY)
    tree_for_people = await _visible_tree(snapshot, manifest, folder)
    commit = await main.commit_tree(
        tree_for_people, [*([snapshot.head] if snapshot.head else []), state], about, IDENTITY
    )
    await main.update_ref(ref, commit, current or REF_ABSENT, "ao: saved")
    return commit


async def _capture(snapshot: Survey, folder: Path) -> Manifest:
    """Store all bytes as blobs in the main repository, not referenced yet, and return the manifest."""
    main, root, git_dir = snapshot.main, snapshot.git.repo, snapshot.layout.git_dir
    if snapshot.own_objects:
        await _copy_objects(snapshot)
    manifest = Manifest(
        head_ref=snapshot.head_ref,
        head=snapshot.head,
        absent=sorted(set(snapshot.absent)),
        empty=snapshot.empty,
        refs=snapshot.refs,
        stashes=snapshot.stashes,
        filled=snapshot.filled,
    )
    sources: list[tuple[Path, str]] = []
    for path in sorted({*snapshot.files, *snapshot.named, *snapshot.hidden}):
        entry, source = _entry_and_source(root, path, folder, f"link-{len(sources)}")
        manifest.entries.append(entry)
        sources.append(source)
    for path in snapshot.nested:
        archive = f"nested-{len(sources)}.tar"
        await asyncio.to_thread(pack, root, path, folder / archive)
        manifest.entries.append(SavedEntry(path, "nested", 0o755))
        sources.append((folder, archive))
    files = await _store_files(main, sources)
    for entry, blob in zip(manifest.entries, files, strict=True):
        entry.blob = blob
    state = await _store_files(main, [(git_dir, name) for name in snapshot.git_files])
    manifest.git_files = dict(zip(snapshot.git_files, state, strict=True))
    for sha, kind in (await snapshot.git.object_kinds(sorted(set(snapshot.refs.values())))).items():
        if kind == "tag":
            manifest.tags[sha] = await main.hash_bytes((await snapshot.git.run("cat-file", "tag", sha)).out)
    return manifest


async def _store_files(main: Git, files: Sequence[tuple[Path, str]]) -> list[str]:
    """Store files as blobs, each given by a folder and a name in it.

    We open the files ourselves and pass them to Git: an agent that works meanwhile may replace a file, or a folder on the way to it, with a
    symlink.
    """
    blobs: list[str] = []
    for start in range(0, len(files), _MAX_OPEN_FILES):
        batch = files[start : start + _MAX_OPEN_FILES]
        with contextlib.ExitStack() as stack:
            open_files = [
                stack.enter_context(open_below(root, name, longest=2 * MAX_FILE_SIZE)) for root, name in batch
            ]
            paths = [root / name for root, name in batch]
            if (descriptors := Path(f"/proc/{os.getpid()}/fd")).is_dir():
                paths = [descriptors / str(file.fileno()) for file in open_files]
            blobs += await main.hash_files(paths)
    return blobs


def _entry_and_source(root: Path, path: str, folder: Path, link: str) -> tuple[SavedEntry, tuple[Path, str]]:
    """Return the manifest's entry of a path, and the file that has its content: for a symlink a new file with its target."""
    file = root / path
    status = file.lstat()
    if not stat.S_ISLNK(status.st_mode):
        return SavedEntry(path, "file", stat.S_IMODE(status.st_mode)), (root, path)
    (folder / link).write_bytes(os.fsencode(os.readlink(file)))  # noqa: PTH115 - Path would tidy the target
    return SavedEntry(path, "link", 0o777), (folder, link)


def _kept_commits(snapshot: Survey) -> list[str]:
    """Return the commits that must stay reachable: stashes, and those that no branch has."""
    mentioned = [sha for sha, kind in snapshot.mentioned.items() if kind == "commit"]
    loose = [sha for sha in snapshot.unreachable if sha != snapshot.head]
    return list(dict.fromkeys([*(sha for sha, _ in snapshot.stashes), *mentioned, *loose]))


def _kept_objects(snapshot: Survey) -> list[tuple[str, str, str, str]]:
    """Return blobs that only the index holds, and trees that Git's state files name."""
    blobs = {sha for change in snapshot.changes for sha in change.blobs} | {
        object_id for object_id, object_kind in snapshot.mentioned.items() if object_kind == "blob"
    }
    trees = {sha for sha, kind in snapshot.mentioned.items() if kind == "tree"}
    return sorted([("100644", "blob", sha, sha) for sha in blobs] + [("040000", "tree", sha, sha) for sha in trees])


async def _copy_objects(snapshot: Survey) -> None:
    """Copy a clone's own objects into the main repository, without a ref on either side."""
    kept_objects = [sha for _, _, sha, _ in _kept_objects(snapshot)]
    objects = [
        *kept_objects,
        *_kept_commits(snapshot),
        *([snapshot.head] if snapshot.head else []),
        *snapshot.refs.values(),
    ]
    if not objects:
        return
    options = (
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-auto-maintenance",
        "--no-recurse-submodules",
        "--stdin",
    )
    stdin = "".join(f"{sha}\n" for sha in dict.fromkeys(objects)).encode()
    source = (f"--upload-pack={_ANY_OBJECT}", "--end-of-options", str(snapshot.git.repo))
    await snapshot.main.run("fetch", *options, *source, input=stdin, timeout=None)


async def _visible_tree(snapshot: Survey, manifest: Manifest, folder: Path) -> str:
    """Return HEAD's tree with the files as they were, for people to read; paths that a tree cannot hold are only in the state."""
    main, env = snapshot.main, {"GIT_INDEX_FILE": str(folder / "visible-index")}
    await main.run("read-tree", snapshot.head or "--empty", env=env)
    zero = "0" * len(snapshot.head or "0" * 40)
    lines = [f"0 {zero}\t{path}" for path in manifest.absent]
    for entry in manifest.entries:
        if entry.kind != "nested" and ".git" not in entry.path.lower().split("/"):
            mode = "120000" if entry.kind == "link" else "100755" if entry.mode & 0o100 else "100644"
            lines.append(f"{mode} {entry.blob}\t{entry.path}")
    listing = os.fsencode("".join(f"{line}\0" for line in lines))
    try:
        await main.run("update-index", "-z", "--index-info", env=env, input=listing)
    except GitFailed as error:
        if "nvalid path" not in error.stderr and "gnoring path" not in error.stderr:
            raise
        await main.run("read-tree", snapshot.head or "--empty", env=env)
    return await main.text("write-tree", "--missing-ok", env=env)
