"""Reads Git's files without starting a process: where a repository is, what HEAD and refs point to, which branch names
are valid.

Look here for anything that is read too often for a Git process. An agent may write to these files: symlinks, pipes
and oversized files are not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_orchestrator.base.files.safe import open_folder, open_regular_file, parts_of, read_regular_file
from agent_orchestrator.errors import Conflict, resource_shortage

MAX_FILE_BYTES = 1 << 20
"""Maximum bytes of a file of Git's that we read, other than the list of packed refs."""
MAX_UNSORTED_LIST_BYTES = 16 << 20
"""Maximum bytes of an unsorted list of packed refs, which is searched as a whole; Git has sorted them since 2.15."""
MAX_INDEX_BYTES = 512 << 20
"""Maximum bytes of an index that we copy or save: about five million files."""
_MAX_REF_BYTES = 4096
_MAX_POINTER_BYTES = 1 << 14
"""Maximum bytes of the file that says where a worktree is."""
_MAX_LINE_BYTES = 8192
_MAX_SYMBOLIC_REFS = 5
"""How many symbolic refs in a row are followed."""
_MAX_FOLDER_DEPTH = 50
_MAX_LISTED_FILES = 100_000
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a repository are, according to its files."""

    top: Path | None
    """The checkout; None for a bare repository."""
    git_dir: Path
    common: Path


def is_valid_branch(name: str) -> bool:
    """Return whether `git check-ref-format --branch` would accept this name; `@` alone, which means HEAD, is refused too."""
    if (
        not name
        or name in ("@", "HEAD")
        or name.startswith("-")
        or name.endswith((".", "/"))
        or _BAD_IN_REF.search(name)
    ):
        return False
    return not any(part == "" or part.startswith(".") or part.endswith(".lock") for part in name.split("/"))


def escape_for_ref(name: str) -> str:
    """Return the name itself if it may be part of a ref's name, otherwise an escaped form of it."""
    if is_valid_branch(name) and "%" not in name:
        return name
    return "".join(c if c.isalnum() or c in "-_" else "".join(f"%{b:02X}" for b in os.fsencode(c)) for c in name) or "%"


def find_layout(path: Path) -> Layout | None:
    """Find a repository by its files, without a process; `path` is its checkout's top folder or the bare repository."""
    dot = path / ".git"
    if dot.is_dir():
        return Layout(path, dot, _common_folder(dot))
    if dot.is_file():
        try:
            pointer = _read_text(dot)
        except OSError:  # removed or replaced since the check above
            return None
        if not pointer.startswith("gitdir: "):
            return None
        git_dir = Path(os.path.normpath(path / pointer.removeprefix("gitdir: ")))
        return Layout(path, git_dir, _common_folder(git_dir)) if git_dir.is_dir() else None
    if (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir():
        return Layout(None, path, path)
    return None


def _common_folder(git_dir: Path) -> Path:
    """Return the Git folder that all worktrees of a repository share."""
    if not os.path.lexists(git_dir / "commondir"):
        return git_dir
    try:
        pointer = _read_text(git_dir / "commondir")
    except OSError:
        return git_dir
    return git_dir if "\0" in pointer else Path(os.path.normpath(git_dir / pointer))


def _read_text(path: Path, longest: int = MAX_FILE_BYTES) -> str:
    """Return the text of one of Git's files. A pipe, device or symlink, which an agent may put there, raises an `OSError`."""
    return _read_bytes(path, longest).decode(errors="surrogateescape").strip()


def _read_bytes(path: Path, longest: int) -> bytes:
    """Return a file's bytes. Raises `Temporary` if the machine lacks descriptors or memory, so that the file is not taken as missing."""
    try:
        return read_regular_file(path, longest)
    except OSError as error:
        raise resource_shortage(error) or error from None


def _is_ref(name: str) -> bool:
    """Return whether the name is that of a ref, and not of any other file."""
    return name.startswith("refs/") and is_valid_branch(name)


def read_symbolic_head(git_dir: Path) -> str | None:
    """Return the ref that HEAD names (`refs/heads/main`), or None if it is detached or cannot be read from files."""
    try:
        text = _read_text(git_dir / "HEAD")
    except OSError:
        return None
    ref = text.removeprefix("ref:").strip()
    return ref if text.startswith("ref:") and _is_ref(ref) else None


def read_head(git_dir: Path) -> str | None:
    """Return the commit that HEAD names, read from Git's files without a process, or None if there is none yet."""
    ref = read_symbolic_head(git_dir)
    if ref is not None:
        return read_ref(git_dir, ref)
    try:
        text = _read_text(git_dir / "HEAD")
    except OSError:
        return None
    return text if _OBJECT.fullmatch(text) else None


def read_ref(git_dir: Path, ref: str) -> str | None:
    """Return the object that a ref names, read from loose and packed refs without a process, or None if the ref does not exist."""
    ref, commit = _resolve_symbolic(git_dir, ref)
    if commit or not ref:
        return commit
    with _open_packed_refs(git_dir) as packed_refs:
        return packed_refs.get(ref)


def read_refs(git_dir: Path, names: Iterable[str], below: str) -> dict[str, str] | None:
    """Return ref → object for those of `names` that exist, and for all refs below `below`; None if Git does not keep
    refs in files that we can read.

    Raises `Conflict` if the folder of `below` contains what Git cannot have created, which Git would nevertheless
    search.
    """
    common = _common_folder(git_dir)
    if (common / "reftable").exists() or (common / "refs").is_symlink():
        return None
    loose = {name: _resolve_symbolic(git_dir, name) for name in (*names, *_files_below(common, below))}
    # Read after the loose refs: Git packs a ref before it removes its file.
    with _open_packed_refs(git_dir) as packed_refs:
        if not packed_refs.is_complete:
            return None
        targets = {name: (name, None) for name in packed_refs.names_below(below)} | loose
        return {
            name: commit
            for name, (ref, own_commit) in targets.items()
            if (commit := own_commit or (packed_refs.get(ref) if ref else None))
        }


def _resolve_symbolic(git_dir: Path, ref: str) -> tuple[str, str | None]:
    """Return the ref that a ref finally points to by way of symbolic refs ("" if none), and the object in that ref's own file."""
    for _ in range(_MAX_SYMBOLIC_REFS + 1):
        if not _is_ref(ref):
            break
        text = _read_loose(git_dir, ref)
        if not text.startswith("ref:"):
            return ref, text or None
        ref = text.removeprefix("ref:").strip()
    return "", None


def _read_loose(git_dir: Path, ref: str) -> str:
    """Return the content of a ref's own file: an object, or `ref:` and another ref's name; "" if there is no such file."""
    for folder in (git_dir, _common_folder(git_dir)):
        try:
            text = _read_text(folder / ref, _MAX_REF_BYTES)
        except OSError:
            continue
        if text.startswith("ref:") or _OBJECT.fullmatch(text):
            return text
    return ""


def _files_below(common: Path, below: str) -> list[str]:
    """Return the names of all files below one of Git's folders. Links are not followed and the number is limited, as
    an agent writes there too.
    """
    files: list[str] = []
    folders, count = [below], 0
    while folders:
        name = folders.pop()
        try:
            with open_folder(common, parts_of(name)) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    count += 1
                    if count > _MAX_LISTED_FILES:
                        raise _unexpected_contents(common / below, f"more than {_MAX_LISTED_FILES} files in it")
                    _sort_entry(entry, f"{name}/{entry.name}", folders, files)
        except OSError as error:
            if shortage := resource_shortage(error):
                raise shortage from None
            if (common / name).is_symlink() and os.path.isdir(common / name):  # noqa: PTH112 - never raises
                raise _unexpected_contents(common / name, "become a symlink") from None
        if folders and folders[-1].count("/") - below.count("/") > _MAX_FOLDER_DEPTH:
            raise _unexpected_contents(common / below, f"folders more than {_MAX_FOLDER_DEPTH} deep")
    return files


def _sort_entry(entry: os.DirEntry[str], name: str, folders: list[str], files: list[str]) -> None:
    """Append the name of a folder's entry to `folders` or `files`."""
    with suppress(OSError):  # a broken symlink is not a ref
        if entry.is_file(follow_symlinks=False):
            files.append(name)
        elif entry.is_dir():  # also a symlink to a folder, which is refused when it is opened
            folders.append(name)


def _unexpected_contents(path: Path, description: str) -> Conflict:
    """Return the error for a folder with contents that Git cannot have created."""
    return Conflict(
        f"{path} has {description}, which Git has not made", "see what it is and remove it, or choose another name"
    )


class _PackedRefs:
    """The list of packed refs. If Git has sorted it and says so in its header, a name is found by binary search,
    however long the list is.
    """

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file.fileno() if file else -1
        self._size = os.fstat(self._file).st_size if file else 0
        header = os.pread(self._file, _MAX_LINE_BYTES, 0).partition(b"\n")[0] if file else b""
        self._sorted = header.startswith(b"# pack-refs with:") and b"sorted" in header.split()
        self._begin = len(header) + 1
        self.is_complete = self._sorted or self._size <= MAX_UNSORTED_LIST_BYTES
        """False for an unsorted list that is too long to be searched."""
        self._all = file.read(MAX_UNSORTED_LIST_BYTES) if file and self.is_complete and not self._sorted else b""

    def get(self, ref: str) -> str | None:
        """Return the object that a ref names, or None if it is not in the list."""
        name = os.fsencode(ref)
        if self._sorted:
            _, line = self._line_at(position := self._first_position(name), position)
            commit, _, line_name = line.partition(b" ")
        else:
            end = max(self._all.find(b" %b\n" % name), 0)
            commit, line_name = self._all[self._all.rfind(b"\n", 0, end) + 1 : end], name
        text = commit.decode(errors="replace")
        return text if line_name == name and _OBJECT.fullmatch(text) else None

    def names_below(self, name: str) -> list[str]:
        """Return the names of all refs below this one."""
        prefix = os.fsencode(f"{name}/")
        if not self._sorted:
            return [os.fsdecode(ref) for ref in re.findall(rb" (%b.+)" % re.escape(prefix), self._all)]
        refs: list[str] = []
        position = self._first_position(prefix)
        while position < self._size and len(refs) < _MAX_LISTED_FILES:
            begin, line = self._line_at(position, position)
            line_name = line.partition(b" ")[2]
            if not line.startswith(b"^"):
                if not line_name.startswith(prefix):
                    break
                refs.append(os.fsdecode(line_name))
            position = begin + len(line) + 1
        return refs

    def _first_position(self, name: bytes) -> int:
        """Return where the first line begins that has this name, or one that sorts after it."""
        low, high = self._begin, self._size
        while low < high:
            begin, line = self._line_at((low + high) // 2, low)
            if line.startswith(b"^") and begin > low:  # the object of the tag in the line before
                begin, line = self._line_at(begin - 1, low)
            if line.partition(b" ")[2] < name:
                low = begin + len(line) + 1
            else:
                high = begin
        return low

    def _line_at(self, position: int, low: int) -> tuple[int, bytes]:
        """Return where the line begins that has the byte at this position, but not before `low`, and the line."""
        start = max(low, position - _MAX_LINE_BYTES)
        data = os.pread(self._file, 2 * _MAX_LINE_BYTES, start) if self._file >= 0 else b""
        begin = data.rfind(b"\n", 0, position - start) + 1
        return start + begin, data[begin:].partition(b"\n")[0]


@contextmanager
def _open_packed_refs(git_dir: Path) -> Iterator[_PackedRefs]:
    """Yield the list of packed refs, an empty one if there is none. Raises `Temporary` if the machine lacks resources to read it."""
    with ExitStack() as stack:
        try:
            packed_refs = _PackedRefs(stack.enter_context(open_regular_file(_common_folder(git_dir) / "packed-refs")))
        except OSError as error:
            if shortage := resource_shortage(error):
                raise shortage from None
            packed_refs = _PackedRefs(None)
        yield packed_refs


def worktree_entries(common: Path, called: str = r".*") -> list[Path]:
    """Return Git's folders of a repository's worktrees whose names match `called`."""
    try:
        with os.scandir(common / "worktrees") as entries:
            return [Path(entry.path) for entry in entries if re.fullmatch(called, entry.name) and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def worktree_path(entry: Path) -> str | None:
    """Return where a registered worktree's folder is, or None if its entry does not say: Git was ended early, or an
    agent put a pipe there.
    """
    try:
        pointer = read_regular_file(entry / "gitdir", _MAX_POINTER_BYTES).decode(errors="surrogateescape").strip()
        return os.path.realpath((entry / pointer).parent)
    except OSError as error:
        if shortage := resource_shortage(error):
            raise shortage from None
        return None
    except ValueError:  # a null byte, which no path contains
        return None
