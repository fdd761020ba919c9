"""Saving: every byte becomes a blob of the main repository, and one ref moves at the very end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import opened
from agent_orchestrator.base.git.commands import ABSENT, Git, GitFailed
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.rescue.manifest import (
    IDENTITY,
    Entry,
    Manifest,
    checkpoint_ref,
    rescue_ref,
    restored_ref,
)
from agent_orchestrator.sessions.rescue.nested_repositories import pack
from agent_orchestrator.sessions.rescue.survey import LARGEST, Survey, survey

_AT_ONCE = 64
"""Files that are open at the same time."""
_TRIES = 3
"""How often a workspace is looked at whose files come and go meanwhile."""
_ANY_OBJECT = "git -c uploadpack.allowAnySHA1InWant=true upload-pack"


@dataclass(frozen=True, slots=True)
class Rescue:
    """What was saved, and where."""

    clean: bool
    """Nothing needed saving."""
    saved: tuple[str, ...] = ()
    """What was, in words: `2 untracked files`."""
    ref: str | None = None
    commit: str | None = None
    skipped: tuple[str, ...] = ()
    """Pipes, sockets and the like, which hold nothing."""
    unsafe: tuple[str, ...] = ()
    """What could not be saved: while there is any, the workspace must stay."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A working session's state, as it was saved."""

    ref: str
    commit: str
    changed: bool
    """It is another than the last one."""
    unsafe: tuple[str, ...] = ()
    """What could not be saved."""


async def rescue(
    host: Host, repo: Path, workspace: Path, session: str, named: Sequence[str] = (), branch: str = ""
) -> Rescue:
    """Save everything in the workspace that is nowhere else; `named` are patterns of ignored files to save too. If another branch
    than `branch` is checked out, that is saved too.
    """
    found = await survey(host, repo, workspace, named, branch)
    words = tuple(found.needs_saving())
    skipped, unsafe = tuple(found.special), tuple(found.unsafe)
    if not words:
        return Rescue(clean=not unsafe, skipped=skipped, unsafe=unsafe)
    ref = rescue_ref(session)
    with tempfile.TemporaryDirectory(prefix="ao-rescue-") as folder:
        try:
            about = f"Rescue of {session}: {', '.join(words)}\n\nao restore {session} brings it back.\n"
            waiting = await found.main.resolve(ref)
            earlier = waiting or await found.main.resolve(restored_ref(session))
            commit = await _save(found, ref, session, Path(folder), about, [earlier] if earlier else [])
        except OSError as error:
            raise AoError(
                f"{workspace} could not be saved: {error.strerror or error}", "mend that; nothing was removed"
            ) from None
    if waiting not in (None, commit):
        words = (*words, f"and below it {waiting[:12]}, which was saved before and not brought back")
    return Rescue(clean=False, saved=words, ref=ref, commit=commit, skipped=skipped, unsafe=unsafe)


async def checkpoint(host: Host, repo: Path, workspace: Path, session: str, named: Sequence[str] = ()) -> Checkpoint:
    """Save the state of a workspace while its agent works in it: also one without changes, so that it is never mistaken for what it
    was before. Saves nothing if nothing changed since the last one.
    """
    ref = checkpoint_ref(session)
    for attempt in range(_TRIES):
        found = await survey(host, repo, workspace, named)
        about = f"Checkpoint of {session}: {', '.join(found.needs_saving()) or 'nothing uncommitted'}\n"
        before = await found.main.resolve(ref)
        with tempfile.TemporaryDirectory(prefix="ao-checkpoint-") as folder:
            try:
                commit = await _save(found, ref, session, Path(folder), about, [])
            except (OSError, GitFailed) as error:
                if attempt == _TRIES - 1:
                    raise Temporary(f"{workspace} could not be saved just now: {error}") from None
            else:
                return Checkpoint(ref, commit, commit != before, tuple(found.unsafe))
    raise AssertionError("unreachable")


async def saved_before(host: Host, repo: Path, session: str) -> Rescue:
    """What waits under the session's rescue ref, saved by a try whose end was not seen."""
    main, ref = Git(host, repo), rescue_ref(session)
    commit = await main.resolve(ref)
    if commit is None:
        return Rescue(clean=True)
    words = (await main.text("show", "-s", "--format=%s", commit)).partition(": ")[2]
    return Rescue(clean=False, saved=tuple(words.split(", ")), ref=ref, commit=commit)


async def is_safe(host: Host, repo: Path, workspace: Path, session: str, named: Sequence[str] = ()) -> tuple[str, ...]:
    """Why the workspace may not be removed yet; nothing: all of it is on a branch, pushed, or under the session's rescue ref."""
    found = await survey(host, repo, workspace, named)
    words = found.needs_saving()
    if words and await _is_stored(found, rescue_ref(session)):
        words = []
    return (*words, *found.unsafe)


async def holds(host: Host, repo: Path, workspace: Path, ref: str, named: Sequence[str]) -> bool:
    """Is the workspace just as this ref has it?"""
    return await _is_stored(await survey(host, repo, workspace, named), ref)


async def _is_stored(found: Survey, ref: str) -> bool:
    stored = await _stored(found.main, ref)
    if stored is None:
        return False
    with tempfile.TemporaryDirectory(prefix="ao-rescue-") as folder:
        manifest = await _capture(found, Path(folder))
    return stored == await found.main.hash_bytes(manifest.dump())


async def _stored(main: Git, ref: str) -> str | None:
    """The manifest's blob of the rescue that a ref holds."""
    state = await state_commit(main, ref)
    return await main.text("rev-parse", "--verify", f"{state}:blobs/manifest.json") if state else None


async def state_commit(main: Git, ref: str) -> str | None:
    """The commit that holds a rescue's state: its last parent."""
    commit = await main.resolve(ref)
    return next(iter((await main.text("show", "-s", "--format=%P", commit)).split()[::-1]), None) if commit else None


async def _save(found: Survey, ref: str, session: str, folder: Path, about: str, earlier: Sequence[str]) -> str:
    """Put the workspace's state under a ref, which is not moved if it has that state; it goes on holding what was saved `earlier`."""
    main = found.main
    manifest = await _capture(found, folder)
    manifest_blob = await main.hash_bytes(manifest.dump())
    waiting = await main.resolve(ref)
    if waiting and await _stored(main, ref) == manifest_blob:
        return waiting
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
    keep = _kept_objects(found)
    if any(change.xy == ".A" for change in found.changes):
        nothing = await main.hash_bytes(b"")
        keep.append(("100644", "blob", nothing, nothing))
    if keep:
        tree.append(("040000", "tree", await main.make_tree(keep), "keep"))
    parents = [*_kept_commits(found), *earlier]
    message = f"State of {session}\n\nRead by Agent Orchestrator.\n"
    state = await main.commit_tree(await main.make_tree(tree), list(dict.fromkeys(parents)), message, IDENTITY)
    visible = await _visible_tree(found, manifest, folder)
    commit = await main.commit_tree(visible, [*([found.head] if found.head else []), state], about, IDENTITY)
    await main.update_ref(ref, commit, waiting or ABSENT, "ao: saved")
    return commit


async def _capture(found: Survey, folder: Path) -> Manifest:
    """Store all bytes in the main repository, unreferenced as yet."""
    main, root, git_dir = found.main, found.git.repo, found.layout.git_dir
    if found.own_objects:
        await _bring_objects(found)
    manifest = Manifest(
        head_ref=found.head_ref,
        head=found.head,
        absent=sorted(set(found.absent)),
        empty=found.empty,
        refs=found.refs,
        stashes=found.stashes,
        filled=found.filled,
    )
    sources: list[tuple[Path, str]] = []
    for path in sorted({*found.files, *found.named, *found.hidden}):
        entry, source = _as_entry(root, path, folder, f"link-{len(sources)}")
        manifest.entries.append(entry)
        sources.append(source)
    for path in found.nested:
        archive = f"nested-{len(sources)}.tar"
        await asyncio.to_thread(pack, root, path, folder / archive)
        manifest.entries.append(Entry(path, "nested", 0o755))
        sources.append((folder, archive))
    files = await _stored_files(main, sources)
    for entry, blob in zip(manifest.entries, files, strict=True):
        entry.blob = blob
    state = await _stored_files(main, [(git_dir, name) for name in found.git_files])
    manifest.git_files = dict(zip(found.git_files, state, strict=True))
    for sha, kind in (await found.git.kinds(sorted(set(found.refs.values())))).items():
        if kind == "tag":
            manifest.tags[sha] = await main.hash_bytes((await found.git.run("cat-file", "tag", sha)).out)
    return manifest


async def _stored_files(main: Git, files: Sequence[tuple[Path, str]]) -> list[str]:
    """Store files as blobs, each given by a folder and a name in it. Git gets what we have opened ourselves: an agent that works
    meanwhile may put a symlink in the place of a file, or of a folder on the way to it.
    """
    found: list[str] = []
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        with contextlib.ExitStack() as stack:
            ready = [stack.enter_context(opened(root, name, longest=2 * LARGEST)) for root, name in some]
            paths = [root / name for root, name in some]
            if (descriptors := Path(f"/proc/{os.getpid()}/fd")).is_dir():
                paths = [descriptors / str(file.fileno()) for file in ready]
            found += await main.hash_files(paths)
    return found


def _as_entry(root: Path, path: str, folder: Path, link: str) -> tuple[Entry, tuple[Path, str]]:
    file = root / path
    status = file.lstat()
    if not stat.S_ISLNK(status.st_mode):
        return Entry(path, "file", stat.S_IMODE(status.st_mode)), (root, path)
    (folder / link).write_bytes(os.fsencode(os.readlink(file)))  # noqa: PTH115 - Path would tidy the target
    return Entry(path, "link", 0o777), (folder, link)


def _kept_commits(found: Survey) -> list[str]:
    named = [sha for sha, kind in found.mentioned.items() if kind == "commit"]
    loose = [sha for sha in found.unreachable if sha != found.head]
    return list(dict.fromkeys([*(sha for sha, _ in found.stashes), *named, *loose]))


def _kept_objects(found: Survey) -> list[tuple[str, str, str, str]]:
    """Blobs that only the index holds, and trees that Git's state files name."""
    blobs = {sha for change in found.changes for sha in change.blobs} | {
        s for s, k in found.mentioned.items() if k == "blob"
    }
    trees = {sha for sha, kind in found.mentioned.items() if kind == "tree"}
    return sorted([("100644", "blob", sha, sha) for sha in blobs] + [("040000", "tree", sha, sha) for sha in trees])


async def _bring_objects(found: Survey) -> None:
    """Copy a clone's own objects into the main repository, without a ref on either side."""
    kept = [sha for _, _, sha, _ in _kept_objects(found)]
    wanted = [*kept, *_kept_commits(found), *([found.head] if found.head else []), *found.refs.values()]
    if not wanted:
        return
    options = (
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-auto-maintenance",
        "--no-recurse-submodules",
        "--stdin",
    )
    stdin = "".join(f"{sha}\n" for sha in dict.fromkeys(wanted)).encode()
    source = (f"--upload-pack={_ANY_OBJECT}", "--end-of-options", str(found.git.repo))
    await found.main.run("fetch", *options, *source, input=stdin, timeout=None)


async def _visible_tree(found: Survey, manifest: Manifest, folder: Path) -> str:
    """HEAD's tree with the files as they were, for people to read; what a tree cannot hold is in the state alone."""
    main, env = found.main, {"GIT_INDEX_FILE": str(folder / "visible-index")}
    await main.run("read-tree", found.head or "--empty", env=env)
    zero = "0" * len(found.head or "0" * 40)
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
        await main.run("read-tree", found.head or "--empty", env=env)
    return await main.text("write-tree", "--missing-ok", env=env)
