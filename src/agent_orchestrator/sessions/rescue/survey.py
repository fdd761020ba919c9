"""Lists what a workspace has that is nowhere else. It only reads: it runs no failing filter and no hook, and writes nothing."""

from __future__ import annotations

import asyncio
import filecmp
import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agent_orchestrator.base.files.safe import UnsafePath, find_mounts_below, open_regular_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.listings import StatusEntry
from agent_orchestrator.base.git.refs import MAX_INDEX_BYTES, Layout, find_layout, read_head, read_symbolic_head
from agent_orchestrator.base.git.settings import SPARSE_MARK
from agent_orchestrator.errors import NotFound, UsageError, resource_shortage
from agent_orchestrator.plugins.workspaces.git_exclude import previously_copied_paths
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.rescue.missing_head import as_unborn, is_commit, stay_reason
from agent_orchestrator.sessions.rescue.nested_worktrees import operations_in_progress, survey_worktrees
from agent_orchestrator.sessions.rescue.size_limits import MAX_FILE_SIZE, MAX_STATE_FILE_BYTES, MAX_TOTAL_SIZE

_STATE_FOLDERS = ("rebase-merge", "rebase-apply", "sequencer")
_NOT_STATE = {"FETCH_HEAD"}
WORKTREE_REFS = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")
_TEMPORARY_REFS = ("refs/ao/keep/", "refs/ao/clone/", "refs/ao/published/", "refs/ao/checkpoint/")
"""Refs that are removed with the workspace, or overwritten by the next one: they keep nothing for good."""
_PIECE_SIZE = 1 << 20
_OVERLAP = 66
"""Bytes of a piece that are searched again with the next one: an object's name, and the characters around it."""
_OBJECT = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")


@dataclass(slots=True)
class Survey:
    """The state of a workspace at one time."""

    git: Git
    main: Git
    layout: Layout
    branch: str
    """The branch that the workspace was made for, or "" if unknown."""
    own_objects: bool
    """Whether it is a separate repository (a clone), whose commits may be missing in the main one."""
    head_ref: str | None
    head: str | None
    has_missing_head: bool = False
    """Whether HEAD names a commit that does not exist."""
    changes: list[StatusEntry] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    is_sparse: bool = False
    """Whether files of Git's are left out by a sparse checkout that is not ours."""
    nested: list[str] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)
    """Submodules that are checked out."""
    empty: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    large: set[str] = field(default_factory=set)
    """Files and nested repositories that are too large to be saved."""
    unsafe: list[str] = field(default_factory=list)
    """What cannot be saved: the workspace must stay."""
    git_files: list[str] = field(default_factory=list)
    in_progress: list[str] = field(default_factory=list)
    refs: dict[str, str] = field(default_factory=dict)
    stashes: list[tuple[str, str]] = field(default_factory=list)
    mentioned: dict[str, str] = field(default_factory=dict)
    """Objects that Git's state files name → their kind."""
    unreachable: list[str] = field(default_factory=list)
    """Commits that no ref of the main repository holds."""
    heads: set[str] = field(default_factory=set)
    """Commits at the HEADs of other worktrees that are removed with this workspace."""

    @property
    def other_branch(self) -> str:
        """The branch of HEAD, if it is another than the workspace's own, or ""."""
        name = (self.head_ref or "").removeprefix("refs/heads/")
        return name if self.branch and name != self.branch else ""

    def describe_unsaved(self) -> list[str]:
        """Return what would be lost with the workspace, in words."""
        changes = [change for change in self.changes if change.path not in self.large]
        tracked = [change for change in changes if change.xy != "??" and not change.sub.startswith("S")]
        parts = [
            _count_text(sum(change.xy[0] != "." and "U" not in change.xy for change in tracked), "staged file"),
            _count_text(sum(change.xy[1] != "." and "U" not in change.xy for change in tracked), "unstaged file"),
            _count_text(sum("U" in change.xy or change.xy in ("AA", "DD") for change in tracked), "conflicted file"),
            _count_text(
                sum(change.xy == "??" and not change.path.endswith("/") for change in changes), "untracked file"
            ),
            _count_text(len(self.hidden), "file hidden from Git's status", "files hidden from Git's status"),
            _count_text(len(self.named), "ignored file that is to be kept", "ignored files that are to be kept"),
            _count_text(len(self.nested), "nested repository", "nested repositories"),
            _count_text(len(self.stashes), "stash entry", "stash entries"),
            _count_text(len(self.unreachable), "commit that no branch has", "commits that no branch has"),
            "detached HEAD" if self.head_ref is None and self.head else "",
            "sparse checkout" if self.is_sparse else "",
            f"branch {self.other_branch} checked out" if self.other_branch else "",
            *(f"{operation} in progress" for operation in self.in_progress),
        ]
        return [part for part in parts if part]


def _count_text(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, or "" for zero."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}" if number else ""


async def describe_uncommitted(host: Host, workspace: Path) -> str:
    """Return what is not committed in a few words for a status line (`2 files uncommitted`), or ""."""
    layout = find_layout(workspace)
    if layout is None:
        return ""
    count = len(await Git(host, workspace).status())
    parts = [_count_text(count, "file") + " uncommitted" if count else "", *operations_in_progress(layout.git_dir)]
    return ", ".join(part for part in parts if part)


async def survey(host: Host, repo: Path, workspace: Path, named: Sequence[str], branch: str = "") -> Survey:
    """List everything in a workspace that matters for saving it; raise `NotFound` if it or its repository is missing."""
    git, main = Git(host, workspace), Git(host, repo)
    layout, origin = find_layout(workspace), await main.layout()
    if layout is None or origin is None:
        if origin is None:
            raise NotFound(
                f"{repo} is not a Git repository", "bring it back to its place; the workspace stays as it is"
            )
        remedy = "its files stay as they are; have its repository know it again: ao shutdown, then ao doctor --repair"
        remedy += "; or move the folder away"
        raise NotFound(f"{workspace} is not a Git repository", remedy)
    snapshot = Survey(
        git=git,
        main=main,
        layout=layout,
        branch=branch,
        own_objects=layout.common.resolve() != origin.common.resolve(),
        head_ref=read_symbolic_head(layout.git_dir),
        head=read_head(layout.git_dir),
    )
    if snapshot.head_ref is None and snapshot.head is None:
        snapshot.head_ref, snapshot.head = await git.current_branch(), await git.resolve("HEAD")
        snapshot.head_ref = f"refs/heads/{snapshot.head_ref}" if snapshot.head_ref else None
    if snapshot.head and not await is_commit(git, snapshot.head):
        snapshot.unsafe.append(stay_reason(workspace, snapshot.head))
        snapshot.head, snapshot.has_missing_head = None, True
    await _add_files(snapshot, origin, named)
    snapshot.in_progress = operations_in_progress(layout.git_dir)
    snapshot.git_files = _git_files(layout.git_dir, is_own_repository=snapshot.own_objects)
    await asyncio.to_thread(_exclude_large, snapshot)
    try:
        snapshot.unsafe += [f"something is mounted in it: {place}" for place in find_mounts_below(workspace)]
    except OSError as error:
        raise (resource_shortage(error) or error) from None
    await _add_commits(snapshot)
    return snapshot


# -- files -------------------------------------------------------------------------------------------------------------


async def _add_files(survey: Survey, origin: Layout, named: Sequence[str]) -> None:
    """Add the files, submodules and nested repositories of the workspace."""
    with as_unborn(survey.git, survey.layout) if survey.has_missing_head else nullcontext(survey.git) as git:
        status, listing = await asyncio.gather(
            git.status(ignored=True), survey.git.run("ls-files", "-v", "--stage", "-z", timeout=None)
        )
    survey.changes = [change for change in status if change.xy != "!!"]
    ignored = {change.path.rstrip("/") for change in status if change.xy == "!!"}
    links, hidden = await asyncio.to_thread(_parse_tracked, listing.out)
    root = survey.git.repo
    await asyncio.to_thread(_walk, survey, root, links, ignored)
    for change in survey.changes:
        if change.sub.startswith("S"):
            if change.sub != "S...":
                survey.unsafe.append(f"submodule {change.path} has work of its own")
        elif (
            change.path.endswith("/")
            or any(_is_in_folder(change.path, folder) for folder in survey.nested)
            or change.path in links
        ):
            continue
        elif _is_content(root, change.path):
            survey.files.append(change.path)
        elif not hidden.get(change.path):
            survey.absent.append(change.path)
    present = await asyncio.to_thread(_existing, root, hidden)
    survey.hidden += present
    known_absent = {*survey.absent, *present}
    is_ours = (survey.layout.git_dir / SPARSE_MARK).exists()
    survey.is_sparse = not is_ours and any(skipped and path not in known_absent for path, skipped in hidden.items())
    survey.absent += [path for path, skipped in hidden.items() if not skipped and path not in known_absent]
    known_paths = {*survey.files, *survey.hidden, *survey.nested}
    copied = await asyncio.to_thread(previously_copied_paths, survey.layout, root)
    candidates = await asyncio.to_thread(_matching_paths, root, origin.top, (*named, *copied), ignored)
    new_paths = [name for name in candidates if name not in known_paths]
    survey.named = [name for name in new_paths if not _is_repository(root / name)]
    survey.nested = sorted([*survey.nested, *(name for name in new_paths if _is_repository(root / name))])
    worktrees = await survey_worktrees(survey.git, survey.layout, own=survey.own_objects)
    survey.nested = sorted({*survey.nested, *worktrees.changed})
    survey.heads, survey.unsafe = worktrees.heads, [*survey.unsafe, *worktrees.unsafe]
    survey.unsafe += await asyncio.to_thread(_former_submodules, survey)
    for path in sorted(links):
        if find_layout(root / path) is not None:
            survey.filled.append(path)
        elif (root / path).is_dir() and not (root / path).is_symlink():
            survey.empty = sorted([*survey.empty, path])
        survey.unsafe += await _submodule(survey.git.host, root / path, path)


def _exclude_large(snapshot: Survey) -> None:
    """Move what is too large to read from the lists of files to `unsafe` and `large`."""
    root, git_dir, remaining = snapshot.git.repo, snapshot.layout.git_dir, MAX_TOTAL_SIZE
    for folder, names in (
        (git_dir, snapshot.git_files),
        *((root, names) for names in (snapshot.files, snapshot.named, snapshot.hidden, snapshot.nested)),
    ):
        kept_names = []
        for name in names:
            size = _size_of(folder / name)
            max_size = MAX_FILE_SIZE
            if folder is git_dir:
                max_size = MAX_INDEX_BYTES if _is_index(name) else MAX_STATE_FILE_BYTES
            if size <= min(max_size, remaining):
                kept_names.append(name)
                remaining -= size
            else:
                display_name, limit = (
                    os.fsencode(name).decode(errors="replace")[:200],
                    max_size if size > max_size else MAX_TOTAL_SIZE,
                )
                suffix = "" if size > max_size else " with what else is to be saved"
                snapshot.unsafe.append(
                    f"{display_name} is too large to be saved: more than {limit / (1 << 30):g} GB{suffix}"
                )
                snapshot.large.update([name] if folder is root else [])
        names[:] = kept_names


def _is_index(name: str) -> bool:
    """Return whether the file is Git's index or a part of it."""
    return name.startswith(("index", "sharedindex"))


def _size_of(path: Path) -> int:
    """Return the bytes that must be read to save a path; counting stops above `MAX_FILE_SIZE`."""
    try:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        entries = list(os.scandir(path))
    except OSError:
        return 0
    total = 0
    while entries and total <= MAX_FILE_SIZE:
        entry = entries.pop()
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                entries += os.scandir(entry.path)
            elif entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _parse_tracked(listing: bytes) -> tuple[set[str], dict[str, bool]]:
    """Return the submodules, and the files that `status` ignores → whether they are missing on purpose (sparse checkout)."""
    links: set[str] = set()
    hidden: dict[str, bool] = {}
    for entry in listing.decode(errors="surrogateescape").split("\0"):
        facts, _, path = entry.partition("\t")
        flag, _, rest = facts.partition(" ")
        if rest.startswith("160000 "):
            links.add(path)
        elif flag and (flag.islower() or flag == "S"):
            hidden[path] = flag in "Ss"
    return links, hidden


def _existing(root: Path, paths: Iterable[str]) -> list[str]:
    """Return the paths that exist nevertheless: in a sparse checkout few of very many."""
    return [path for path in paths if os.path.lexists(f"{root}/{path}") and _is_content(root, path)]


def _walk(snapshot: Survey, root: Path, links: set[str], ignored: set[str]) -> None:
    """Find what `git status` does not list: empty folders, nested repositories, pipes and sockets."""
    remaining = [""]
    while remaining:
        folder = remaining.pop()
        try:
            entries = list(os.scandir(root / folder))
        except OSError as error:  # for example a path that is too long: its content is unknown, so the workspace stays
            snapshot.unsafe.append(f"a folder cannot be read ({error.strerror}): {folder[:100]}")
            continue
        names = {entry.name for entry in entries}
        if folder and ".git" in names:
            snapshot.nested.append(folder)
            continue
        if folder and not any(entry.is_symlink() or entry.is_dir() or entry.is_file() for entry in entries):
            snapshot.empty.append(folder)  # empty apart from pipes and sockets, which hold nothing
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path in ignored or path in links or entry.name == ".git":
                continue
            if entry.is_dir(follow_symlinks=False):
                remaining.append(path)
            elif not entry.is_symlink() and not entry.is_file(follow_symlinks=False):
                snapshot.special.append(path)
    snapshot.nested.sort()
    snapshot.empty.sort()
    snapshot.special.sort()


def _is_in_folder(path: str, folder: str) -> bool:
    """Return whether a path is the folder or in it."""
    return path == folder or path.startswith(f"{folder}/")


def _is_content(root: Path, path: str) -> bool:
    """Return whether there is a file or symlink at this path, not reached through a symlink."""
    if _is_through_link(root, path):
        return False
    try:
        mode = (root / path).lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _is_through_link(root: Path, path: str) -> bool:
    """Return whether a folder on the way to the path is a symlink."""
    parent = PurePosixPath(path).parent
    return any((root / step).is_symlink() for step in [parent, *parent.parents][:-1])


def _matching_paths(root: Path, top: Path | None, patterns: Sequence[str], ignored: set[str]) -> list[str]:
    """Return the ignored files and nested repositories that match the patterns, without those that are the same in the main checkout."""
    named_paths: dict[str, None] = {}
    for pattern in patterns:
        parts = PurePosixPath(pattern).parts
        if not parts or ".." in parts or PurePosixPath(pattern).is_absolute():
            raise UsageError(
                f"{pattern!r} is not a path inside the workspace", "give a path relative to its top folder"
            )
        matches = [root / pattern] if os.path.lexists(root / pattern) else sorted(root.glob(pattern))
        for match in matches:
            for path in _contents_of(match):
                name = path.relative_to(root).as_posix()
                is_ignored = not ignored.isdisjoint((name, *(str(parent) for parent in PurePosixPath(name).parents)))
                kept = _is_content(root, name) or (_is_repository(path) and not _is_through_link(root, name))
                if is_ignored and kept and not (top and _has_same_content(path, top / name)):
                    named_paths[name] = None
    return list(named_paths)


def _is_repository(path: Path) -> bool:
    """Return whether a folder is a separate repository, which is saved as a whole."""
    return not path.is_symlink() and os.path.lexists(path / ".git")


def _contents_of(path: Path) -> list[Path]:
    """Return all files and repositories below a path."""
    paths: list[Path] = []
    remaining = [path]
    while remaining:
        path = remaining.pop()
        if path.is_symlink() or not path.is_dir() or _is_repository(path):
            paths.append(path)
        else:
            remaining += sorted(path.iterdir(), reverse=True)
    return paths


def _has_same_content(path: Path, other: Path) -> bool:
    """Return whether two paths have the same content."""
    if path.is_symlink():
        return (other.is_symlink() and path.readlink() == other.readlink()) or path.resolve() == other.resolve()
    if path.is_dir():
        return other.is_dir() and _same_folder(path, other)
    return not other.is_symlink() and other.is_file() and filecmp.cmp(path, other, shallow=False)


def _same_folder(path: Path, other: Path) -> bool:
    """Return whether two folders have the same content."""
    names = {entry.name for entry in path.iterdir()}
    return names == {entry.name for entry in other.iterdir()} and all(
        _has_same_content(path / name, other / name) for name in names
    )


def _former_submodules(snapshot: Survey) -> list[str]:
    """Return the nested repositories whose history is in the workspace's own Git folder, and would be lost with it."""
    own_git_dir = snapshot.layout.git_dir.resolve()
    layouts = {path: find_layout(snapshot.git.repo / path) for path in snapshot.nested}
    return [
        f"{path} was a submodule, or is a worktree, and its history is in the workspace's own Git folder"
        for path, layout in layouts.items()
        if layout is not None and layout.git_dir.resolve().is_relative_to(own_git_dir)
    ]


async def _submodule(host: Host, path: Path, name: str) -> list[str]:
    """Return why a submodule's folder must stay: it has changes, or commits that no remote has."""
    layout = find_layout(path)
    if layout is None:
        return [f"submodule {name} holds files of its own"] if path.is_dir() and any(path.iterdir()) else []
    git = Git(host, path)
    if await git.status() or operations_in_progress(layout.git_dir):
        return [f"submodule {name} has uncommitted work"]
    head = ("HEAD",) if await git.resolve("HEAD") else ()
    if (await git.run("rev-list", "-n1", *head, "--all", "--not", "--remotes")).out:
        return [f"submodule {name} has commits that are not pushed"]
    return []


# -- Git's own -----------------------------------------------------------------------------------------------------------


def _git_files(git_dir: Path, *, is_own_repository: bool) -> list[str]:
    """Return the files that make up this checkout's state: index, HEAD's log, and what an unfinished command left."""
    names = [
        entry.name
        for entry in git_dir.iterdir()
        if _is_regular_file(entry)
        and (re.fullmatch(r"[A-Z_]+|index|sharedindex\.[0-9a-f]+", entry.name))
        and entry.name not in _NOT_STATE
    ]
    for folder in _STATE_FOLDERS:
        names += [path.relative_to(git_dir).as_posix() for path in _files_below(git_dir / folder)]
    single_files = [
        "logs/HEAD",
        "info/sparse-checkout",
        SPARSE_MARK,
        "config.worktree",
        *(("config", "info/exclude", "info/attributes") if is_own_repository else ()),
    ]
    names += [
        name for name in single_files if _is_regular_file(git_dir / name) and not (git_dir / name).parent.is_symlink()
    ]
    return sorted(names)


def _is_regular_file(path: Path) -> bool:
    """Return whether a path is a regular file, not a symlink by which an agent could make us read other files."""
    return not path.is_symlink() and path.is_file()


def _files_below(folder: Path) -> list[Path]:
    """Return all files below one of Git's folders; symlinks are not followed."""
    files: list[Path] = []
    remaining = [] if folder.is_symlink() else [folder]
    while remaining:
        with suppress(OSError), os.scandir(remaining.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remaining.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    files.append(Path(entry.path))
    return files


async def _add_commits(snapshot: Survey) -> None:
    """Add the commits, stashes and refs that would be lost with the workspace."""
    main_refs = {
        name: sha
        for name, sha in (await snapshot.main.refs()).items()
        if not name.startswith((*WORKTREE_REFS, *_TEMPORARY_REFS))
    }
    own_refs = await snapshot.git.refs()
    if snapshot.own_objects:
        clone_refs = {
            name: sha for name, sha in own_refs.items() if not name.startswith(("refs/remotes/", "refs/stash"))
        }
        snapshot.refs = {name: sha for name, sha in clone_refs.items() if main_refs.get(name) != sha}
    else:
        snapshot.refs = {name: sha for name, sha in own_refs.items() if name.startswith(WORKTREE_REFS)}
    snapshot.stashes = await _stashes(snapshot)
    log, state = set[str](), set[str]()
    for name in snapshot.git_files:
        if not _is_index(name):
            objects = await asyncio.to_thread(_objects_in, snapshot.layout.git_dir / name)
            (log if name == "logs/HEAD" else state).update(objects)
    heads = {*snapshot.heads, *([snapshot.head] if snapshot.head else [])}
    kinds = await snapshot.git.object_kinds(sorted({*log, *state, *snapshot.refs.values(), *heads}))
    snapshot.refs = {name: sha for name, sha in snapshot.refs.items() if sha in kinds}
    snapshot.mentioned = {sha: kinds[sha] for sha in sorted(state) if sha in kinds}
    candidates = sorted(sha for sha, kind in kinds.items() if kind in ("commit", "tag"))
    if candidates:
        lines = "".join(f"{sha}\n" for sha in [*candidates, *(f"^{sha}" for sha in sorted(set(main_refs.values())))])
        result = await snapshot.git.run("rev-list", "--ignore-missing", "--stdin", input=lines.encode(), timeout=None)
        loose = set(result.text.split())
        snapshot.unreachable = [sha for sha in candidates if sha in loose]


def _objects_in(file: Path) -> set[str]:
    """Return what looks like an object's name in one of Git's state files, read in pieces because an agent may have made it long."""
    objects: set[str] = set()
    rest = b""
    with open_regular_file(file) as stream:
        while piece := stream.read(_PIECE_SIZE):
            if stream.tell() > MAX_STATE_FILE_BYTES:
                raise UnsafePath(f"{file} is too long")
            text = rest + piece
            objects.update(match.decode() for match in _OBJECT.findall(text))
            rest = text[-_OVERLAP:]
    return objects


async def _stashes(snapshot: Survey) -> list[tuple[str, str]]:
    """Return the stash entries: all of a clone, or for a worktree, whose repository shares one list, those made on its branch."""
    result = await snapshot.git.run("stash", "list", "-z", "--format=%H %gs")
    entries = [line.partition(" ")[::2] for line in result.out.decode(errors="surrogateescape").split("\0") if line]
    if snapshot.own_objects:
        return entries
    branch = (snapshot.head_ref or "").removeprefix("refs/heads/")
    return [
        (sha, message)
        for sha, message in entries
        if branch and re.match(rf"(WIP on|On) {re.escape(branch)}: ", message)
    ]
