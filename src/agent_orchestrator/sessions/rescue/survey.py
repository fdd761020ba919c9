"""What is in a workspace that is nowhere else. Looks only: runs no filter that fails, no hook, and writes nothing."""

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

from agent_orchestrator.base.files.safe import NotPlain, mounted_below, plain
from agent_orchestrator.base.git.commands import SPARSE_MARK, Change, Git
from agent_orchestrator.base.git.refs import LONGEST_INDEX, Layout, find_layout, read_head, read_symbolic_head
from agent_orchestrator.errors import NotFound, UsageError, machine_short
from agent_orchestrator.plugins.workspaces.contents import copied_before
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.rescue.missing_head import is_there, why_it_stays, without_commits
from agent_orchestrator.sessions.rescue.nested_worktrees import in_progress, linked

_STATE_FOLDERS = ("rebase-merge", "rebase-apply", "sequencer")
_NOT_STATE = {"FETCH_HEAD"}
WORKTREE_REFS = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")
_PASSING = ("refs/ao/keep/", "refs/ao/clone/", "refs/ao/published/", "refs/ao/checkpoint/")
"""What goes with the workspace, or is overwritten by the next: holds nothing for good."""
LARGEST = 4 << 30
"""Bytes of a file, or of all that is in a repository within, that are saved; what is larger keeps its workspace."""
TOGETHER = 4 * LARGEST
"""Bytes of all of them together."""
_LONGEST_STATE = 1 << 28
"""Bytes of a file of Git's state, but for its index."""
_PIECE = 1 << 20
_OVERLAP = 66
"""Bytes of a piece that are looked at with the next one too: an object's name, and what stands before and behind it."""
_OBJECT = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")


@dataclass(slots=True)
class Survey:
    """One look at a workspace."""

    git: Git
    main: Git
    layout: Layout
    branch: str
    """The one that the workspace was made for, if that is known."""
    own_objects: bool
    """A repository of its own (a clone): what it has committed may be unknown to the main one."""
    head_ref: str | None
    head: str | None
    lost: bool = False
    """HEAD names a commit that is not there."""
    changes: list[Change] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    narrowed: bool = False
    """Files of Git's are left out, by a sparse checkout that is not ours."""
    nested: list[str] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)
    """Submodules that are checked out."""
    empty: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    large: set[str] = field(default_factory=set)
    """Files and repositories within that are too large to be saved."""
    unsafe: list[str] = field(default_factory=list)
    """What cannot be saved by us: the workspace must stay."""
    git_files: list[str] = field(default_factory=list)
    in_progress: list[str] = field(default_factory=list)
    refs: dict[str, str] = field(default_factory=dict)
    stashes: list[tuple[str, str]] = field(default_factory=list)
    mentioned: dict[str, str] = field(default_factory=dict)
    """Objects that Git's state files name → their kind."""
    unreachable: list[str] = field(default_factory=list)
    """Commits that no ref of the main repository holds."""
    heads: set[str] = field(default_factory=set)
    """Commits at which worktrees stand that go with this one."""

    @property
    def elsewhere(self) -> str:
        """The branch that HEAD is on, if that is another than the workspace's own."""
        name = (self.head_ref or "").removeprefix("refs/heads/")
        return name if self.branch and name != self.branch else ""

    def needs_saving(self) -> list[str]:
        """What would be lost with the workspace, in words."""
        changes = [change for change in self.changes if change.path not in self.large]
        tracked = [change for change in changes if change.xy != "??" and not change.sub.startswith("S")]
        found = [
            _counted(sum(change.xy[0] != "." and "U" not in change.xy for change in tracked), "staged file"),
            _counted(sum(change.xy[1] != "." and "U" not in change.xy for change in tracked), "unstaged file"),
            _counted(sum("U" in change.xy or change.xy in ("AA", "DD") for change in tracked), "conflicted file"),
            _counted(sum(change.xy == "??" and not change.path.endswith("/") for change in changes), "untracked file"),
            _counted(len(self.hidden), "file hidden from Git's status", "files hidden from Git's status"),
            _counted(len(self.named), "ignored file that is to be kept", "ignored files that are to be kept"),
            _counted(len(self.nested), "nested repository", "nested repositories"),
            _counted(len(self.stashes), "stash entry", "stash entries"),
            _counted(len(self.unreachable), "commit that no branch has", "commits that no branch has"),
            "detached HEAD" if self.head_ref is None and self.head else "",
            "sparse checkout" if self.narrowed else "",
            f"branch {self.elsewhere} checked out" if self.elsewhere else "",
            *(f"{what} in progress" for what in self.in_progress),
        ]
        return [words for words in found if words]


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}" if number else ""


async def unsaved(host: Host, workspace: Path) -> str:
    """What is not committed, in a few words for a status line (`2 files uncommitted`); nothing: all is."""
    layout = find_layout(workspace)
    if layout is None:
        return ""
    count = len(await Git(host, workspace).status())
    words = [_counted(count, "file") + " uncommitted" if count else "", *in_progress(layout.git_dir)]
    return ", ".join(word for word in words if word)


async def survey(host: Host, repo: Path, workspace: Path, named: Sequence[str], branch: str = "") -> Survey:
    """Look at everything in a workspace."""
    git, main = Git(host, workspace), Git(host, repo)
    layout, origin = find_layout(workspace), await main.layout()
    if layout is None or origin is None:
        if origin is None:
            raise NotFound(
                f"{repo} is not a Git repository", "bring it back to its place; the workspace stays as it is"
            )
        mend = "its files stay as they are; have its repository know it again: ao shutdown, then ao doctor --repair"
        mend += "; or move the folder away"
        raise NotFound(f"{workspace} is not a Git repository", mend)
    found = Survey(
        git=git,
        main=main,
        layout=layout,
        branch=branch,
        own_objects=layout.common.resolve() != origin.common.resolve(),
        head_ref=read_symbolic_head(layout.git_dir),
        head=read_head(layout.git_dir),
    )
    if found.head_ref is None and found.head is None:
        found.head_ref, found.head = await git.current_branch(), await git.resolve("HEAD")
        found.head_ref = f"refs/heads/{found.head_ref}" if found.head_ref else None
    if found.head and not await is_there(git, found.head):
        found.unsafe.append(why_it_stays(workspace, found.head))
        found.head, found.lost = None, True
    await _look_at_files(found, origin, named)
    found.in_progress = in_progress(layout.git_dir)
    found.git_files = _git_files(layout.git_dir, own=found.own_objects)
    await asyncio.to_thread(_leave_large_ones, found)
    try:
        found.unsafe += [f"something is mounted in it: {place}" for place in mounted_below(workspace)]
    except OSError as error:
        raise (machine_short(error) or error) from None
    await _look_at_commits(found)
    return found


# -- files -------------------------------------------------------------------------------------------------------------


async def _look_at_files(found: Survey, origin: Layout, named: Sequence[str]) -> None:
    with without_commits(found.git, found.layout) if found.lost else nullcontext(found.git) as git:
        status, listing = await asyncio.gather(
            git.status(ignored=True), found.git.run("ls-files", "-v", "--stage", "-z", timeout=None)
        )
    found.changes = [change for change in status if change.xy != "!!"]
    ignored = {change.path.rstrip("/") for change in status if change.xy == "!!"}
    links, hidden = await asyncio.to_thread(_tracked, listing.out)
    root = found.git.repo
    await asyncio.to_thread(_walk, found, root, links, ignored)
    for change in found.changes:
        if change.sub.startswith("S"):
            if change.sub != "S...":
                found.unsafe.append(f"submodule {change.path} has work of its own")
        elif (
            change.path.endswith("/")
            or any(_below(change.path, folder) for folder in found.nested)
            or change.path in links
        ):
            continue
        elif _is_content(root, change.path):
            found.files.append(change.path)
        elif not hidden.get(change.path):
            found.absent.append(change.path)
    present = await asyncio.to_thread(_present, root, hidden)
    found.hidden += present
    known_absent = {*found.absent, *present}
    ours = (found.layout.git_dir / SPARSE_MARK).exists()
    found.narrowed = not ours and any(skipped and path not in known_absent for path, skipped in hidden.items())
    found.absent += [path for path, skipped in hidden.items() if not skipped and path not in known_absent]
    known = {*found.files, *found.hidden, *found.nested}
    before = await asyncio.to_thread(copied_before, found.layout, root)
    wanted = await asyncio.to_thread(_named, root, origin.top, (*named, *before), ignored)
    fresh = [name for name in wanted if name not in known]
    found.named = [name for name in fresh if not _is_repository(root / name)]
    found.nested = sorted([*found.nested, *(name for name in fresh if _is_repository(root / name))])
    beside = await linked(found.git, found.layout, own=found.own_objects)
    found.nested = sorted({*found.nested, *beside.changed})
    found.heads, found.unsafe = beside.heads, [*found.unsafe, *beside.unsafe]
    found.unsafe += await asyncio.to_thread(_former_submodules, found)
    for path in sorted(links):
        if find_layout(root / path) is not None:
            found.filled.append(path)
        elif (root / path).is_dir() and not (root / path).is_symlink():
            found.empty = sorted([*found.empty, path])
        found.unsafe += await _submodule(found.git.host, root / path, path)


def _leave_large_ones(found: Survey) -> None:
    """What would take too long to be read, however little of the disk it takes: it is named, and stays."""
    root, git_dir, left = found.git.repo, found.layout.git_dir, TOGETHER
    for folder, names in (
        (git_dir, found.git_files),
        *((root, names) for names in (found.files, found.named, found.hidden, found.nested)),
    ):
        kept = []
        for name in names:
            size = _size(folder / name)
            most = LARGEST
            if folder is git_dir:
                most = LONGEST_INDEX if _is_index(name) else _LONGEST_STATE
            if size <= min(most, left):
                kept.append(name)
                left -= size
            else:
                shown, limit = os.fsencode(name).decode(errors="replace")[:200], most if size > most else TOGETHER
                also = "" if size > most else " with what else is to be saved"
                found.unsafe.append(f"{shown} is too large to be saved: more than {limit / (1 << 30):g} GB{also}")
                found.large.update([name] if folder is root else [])
        names[:] = kept


def _is_index(name: str) -> bool:
    return name.startswith(("index", "sharedindex"))


def _size(path: Path) -> int:
    """Bytes that something has to be read for, as far as that matters."""
    try:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        entries = list(os.scandir(path))
    except OSError:
        return 0
    total = 0
    while entries and total <= LARGEST:
        entry = entries.pop()
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                entries += os.scandir(entry.path)
            elif entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _tracked(listing: bytes) -> tuple[set[str], dict[str, bool]]:
    """Submodules, and files that `status` does not look at → whether they are meant to be missing (sparse checkout)."""
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


def _present(root: Path, paths: Iterable[str]) -> list[str]:
    """Those that are there all the same: of a sparse checkout few of very many."""
    return [path for path in paths if os.path.lexists(f"{root}/{path}") and _is_content(root, path)]


def _walk(found: Survey, root: Path, links: set[str], ignored: set[str]) -> None:
    """Find what `git status` never tells of: empty folders, repositories within, pipes and sockets."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(root / folder))
        except OSError as error:  # too deep for any name, say: what is in it cannot be told, so it stays
            found.unsafe.append(f"a folder cannot be read ({error.strerror}): {folder[:100]}")
            continue
        names = {entry.name for entry in entries}
        if folder and ".git" in names:
            found.nested.append(folder)
            continue
        if folder and not any(entry.is_symlink() or entry.is_dir() or entry.is_file() for entry in entries):
            found.empty.append(folder)  # but for pipes and sockets, which hold nothing
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path in ignored or path in links or entry.name == ".git":
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif not entry.is_symlink() and not entry.is_file(follow_symlinks=False):
                found.special.append(path)
    found.nested.sort()
    found.empty.sort()
    found.special.sort()


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _is_content(root: Path, path: str) -> bool:
    """Is there a file or symlink at this very path, not reached through a symlink on the way?"""
    if _through_link(root, path):
        return False
    try:
        mode = (root / path).lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _through_link(root: Path, path: str) -> bool:
    parent = PurePosixPath(path).parent
    return any((root / step).is_symlink() for step in [parent, *parent.parents][:-1])


def _named(root: Path, top: Path | None, patterns: Sequence[str], ignored: set[str]) -> list[str]:
    """Ignored files, and repositories within, that the project names, but for those that are the same in the main checkout."""
    found: dict[str, None] = {}
    for pattern in patterns:
        parts = PurePosixPath(pattern).parts
        if not parts or ".." in parts or PurePosixPath(pattern).is_absolute():
            raise UsageError(
                f"{pattern!r} is not a path inside the workspace", "give a path relative to its top folder"
            )
        matches = [root / pattern] if os.path.lexists(root / pattern) else sorted(root.glob(pattern))
        for match in matches:
            for path in _contents(match):
                name = path.relative_to(root).as_posix()
                is_ignored = not ignored.isdisjoint((name, *(str(above) for above in PurePosixPath(name).parents)))
                kept = _is_content(root, name) or (_is_repository(path) and not _through_link(root, name))
                if is_ignored and kept and not (top and _same(path, top / name)):
                    found[name] = None
    return list(found)


def _is_repository(path: Path) -> bool:
    """A folder that holds a repository of its own, which is kept as one."""
    return not path.is_symlink() and os.path.lexists(path / ".git")


def _contents(path: Path) -> list[Path]:
    found: list[Path] = []
    waiting = [path]
    while waiting:
        path = waiting.pop()
        if path.is_symlink() or not path.is_dir() or _is_repository(path):
            found.append(path)
        else:
            waiting += sorted(path.iterdir(), reverse=True)
    return found


def _same(path: Path, other: Path) -> bool:
    if path.is_symlink():
        return (other.is_symlink() and path.readlink() == other.readlink()) or path.resolve() == other.resolve()
    if path.is_dir():
        return other.is_dir() and _same_folder(path, other)
    return not other.is_symlink() and other.is_file() and filecmp.cmp(path, other, shallow=False)


def _same_folder(path: Path, other: Path) -> bool:
    names = {entry.name for entry in path.iterdir()}
    return names == {entry.name for entry in other.iterdir()} and all(
        _same(path / name, other / name) for name in names
    )


def _former_submodules(found: Survey) -> list[str]:
    """Repositories within whose history is in the workspace's own Git folder, and would go with it."""
    own = found.layout.git_dir.resolve()
    layouts = {path: find_layout(found.git.repo / path) for path in found.nested}
    return [
        f"{path} was a submodule, or is a worktree, and its history is in the workspace's own Git folder"
        for path, layout in layouts.items()
        if layout is not None and layout.git_dir.resolve().is_relative_to(own)
    ]


async def _submodule(host: Host, path: Path, name: str) -> list[str]:
    """Why a submodule's folder must stay: it has changes, or commits that no remote has."""
    layout = find_layout(path)
    if layout is None:
        return [f"submodule {name} holds files of its own"] if path.is_dir() and any(path.iterdir()) else []
    git = Git(host, path)
    if await git.status() or in_progress(layout.git_dir):
        return [f"submodule {name} has uncommitted work"]
    head = ("HEAD",) if await git.resolve("HEAD") else ()
    if (await git.run("rev-list", "-n1", *head, "--all", "--not", "--remotes")).out:
        return [f"submodule {name} has commits that are not pushed"]
    return []


# -- Git's own -----------------------------------------------------------------------------------------------------------


def _git_files(git_dir: Path, *, own: bool) -> list[str]:
    """The files that make up this checkout's state: index, HEAD's log, and what an unfinished command left."""
    names = [
        entry.name
        for entry in git_dir.iterdir()
        if _is_plain(entry)
        and (re.fullmatch(r"[A-Z_]+|index|sharedindex\.[0-9a-f]+", entry.name))
        and entry.name not in _NOT_STATE
    ]
    for folder in _STATE_FOLDERS:
        names += [path.relative_to(git_dir).as_posix() for path in _below_folder(git_dir / folder)]
    single = [
        "logs/HEAD",
        "info/sparse-checkout",
        SPARSE_MARK,
        "config.worktree",
        *(("config", "info/exclude", "info/attributes") if own else ()),
    ]
    names += [name for name in single if _is_plain(git_dir / name) and not (git_dir / name).parent.is_symlink()]
    return sorted(names)


def _is_plain(path: Path) -> bool:
    """A file itself: an agent may have put a symlink there that leads to what it cannot read."""
    return not path.is_symlink() and path.is_file()


def _below_folder(folder: Path) -> list[Path]:
    """All files below one of Git's folders; no symlink is followed."""
    found: list[Path] = []
    waiting = [] if folder.is_symlink() else [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    found.append(Path(entry.path))
    return found


async def _look_at_commits(found: Survey) -> None:
    """Find commits, stashes and refs that go with the workspace."""
    main_refs = {
        name: sha for name, sha in (await found.main.refs()).items() if not name.startswith((*WORKTREE_REFS, *_PASSING))
    }
    own_refs = await found.git.refs()
    if found.own_objects:
        mine = {name: sha for name, sha in own_refs.items() if not name.startswith(("refs/remotes/", "refs/stash"))}
        found.refs = {name: sha for name, sha in mine.items() if main_refs.get(name) != sha}
    else:
        found.refs = {name: sha for name, sha in own_refs.items() if name.startswith(WORKTREE_REFS)}
    found.stashes = await _stashes(found)
    log, state = set[str](), set[str]()
    for name in found.git_files:
        if not _is_index(name):
            objects = await asyncio.to_thread(_objects_in, found.layout.git_dir / name)
            (log if name == "logs/HEAD" else state).update(objects)
    heads = {*found.heads, *([found.head] if found.head else [])}
    kinds = await found.git.kinds(sorted({*log, *state, *found.refs.values(), *heads}))
    found.refs = {name: sha for name, sha in found.refs.items() if sha in kinds}
    found.mentioned = {sha: kinds[sha] for sha in sorted(state) if sha in kinds}
    named = sorted(sha for sha, kind in kinds.items() if kind in ("commit", "tag"))
    if named:
        lines = "".join(f"{sha}\n" for sha in [*named, *(f"^{sha}" for sha in sorted(set(main_refs.values())))])
        done = await found.git.run("rev-list", "--ignore-missing", "--stdin", input=lines.encode(), timeout=None)
        loose = set(done.text.split())
        found.unreachable = [sha for sha in named if sha in loose]


def _objects_in(file: Path) -> set[str]:
    """What looks like an object's name in one of Git's state files; read piece by piece, for an agent may have made it long."""
    found: set[str] = set()
    rest = b""
    with plain(file) as stream:
        while piece := stream.read(_PIECE):
            if stream.tell() > _LONGEST_STATE:
                raise NotPlain(f"{file} is too long")
            text = rest + piece
            found.update(match.decode() for match in _OBJECT.findall(text))
            rest = text[-_OVERLAP:]
    return found


async def _stashes(found: Survey) -> list[tuple[str, str]]:
    """The stash entries: a clone's all, of a worktree (where the whole repository shares one list) those made on its branch."""
    done = await found.git.run("stash", "list", "-z", "--format=%H %gs")
    entries = [line.partition(" ")[::2] for line in done.out.decode(errors="surrogateescape").split("\0") if line]
    if found.own_objects:
        return entries
    branch = (found.head_ref or "").removeprefix("refs/heads/")
    return [
        (sha, message)
        for sha, message in entries
        if branch and re.match(rf"(WIP on|On) {re.escape(branch)}: ", message)
    ]
