"""What Git's files tell without starting a process: where a repository is, what HEAD names, which names are names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_orchestrator.base.files.safe import opened_folder, parts_of, plain, read_plain
from agent_orchestrator.errors import Conflict, machine_short

LONGEST = 1 << 20
"""Bytes that a file of Git's may have for us, but for the list of packed refs."""
LONGEST_LIST = 16 << 20
"""Bytes of a list of packed refs that is not sorted, as Git's have been since 2.15: it is looked through as a whole."""
LONGEST_INDEX = 512 << 20
"""Bytes of an index that we copy or save: about five million files."""
_LONGEST_REF = 4096
_LONGEST_POINTER = 1 << 14
"""Bytes of the file that says where a worktree is."""
_LONGEST_LINE = 8192
_DEEPEST = 5
"""Refs that name another one after the other."""
_DEEPEST_FOLDER = 50
_MOST = 100_000
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a repository's parts are, as far as its files tell."""

    top: Path | None
    """The checkout; none for a bare repository."""
    git_dir: Path
    common: Path


def valid_branch(name: str) -> bool:
    """Would `git check-ref-format --branch` take this name? (`@` alone, which means HEAD, is refused too.)"""
    if (
        not name
        or name in ("@", "HEAD")
        or name.startswith("-")
        or name.endswith((".", "/"))
        or _BAD_IN_REF.search(name)
    ):
        return False
    return not any(part == "" or part.startswith(".") or part.endswith(".lock") for part in name.split("/"))


def ref_safe(name: str) -> str:
    """The name itself where it may be part of a ref's name, otherwise a spelling of it that may."""
    if valid_branch(name) and "%" not in name:
        return name
    return "".join(c if c.isalnum() or c in "-_" else "".join(f"%{b:02X}" for b in os.fsencode(c)) for c in name) or "%"


def find_layout(path: Path) -> Layout | None:
    """Find a repository by its files, without a process; `path` is its checkout's top folder or the bare repository."""
    dot = path / ".git"
    if dot.is_dir():
        return Layout(path, dot, _common(dot))
    if dot.is_file():
        try:
            pointer = _text(dot)
        except OSError:  # removed this very moment, or not what it was
            return None
        if not pointer.startswith("gitdir: "):
            return None
        git_dir = Path(os.path.normpath(path / pointer.removeprefix("gitdir: ")))
        return Layout(path, git_dir, _common(git_dir)) if git_dir.is_dir() else None
    if (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir():
        return Layout(None, path, path)
    return None


def _common(git_dir: Path) -> Path:
    if not os.path.lexists(git_dir / "commondir"):
        return git_dir
    try:
        pointer = _text(git_dir / "commondir")
    except OSError:
        return git_dir
    return git_dir if "\0" in pointer else Path(os.path.normpath(git_dir / pointer))


def _text(path: Path, longest: int = LONGEST) -> str:
    """One of Git's files. An agent may write there: a pipe, a device or a symlink in its place is not read."""
    return _bytes(path, longest).decode(errors="surrogateescape").strip()


def _bytes(path: Path, longest: int) -> bytes:
    """A file that cannot be looked at for want of descriptors or memory is not taken for one that is not there."""
    try:
        return read_plain(path, longest)
    except OSError as error:
        raise machine_short(error) or error from None


def _is_ref(name: str) -> bool:
    """Is it the name of a ref, and not of any other file?"""
    return name.startswith("refs/") and valid_branch(name)


def read_symbolic_head(git_dir: Path) -> str | None:
    """The ref that HEAD names (`refs/heads/main`); none when it is detached or cannot be read from files."""
    try:
        text = _text(git_dir / "HEAD")
    except OSError:
        return None
    ref = text.removeprefix("ref:").strip()
    return ref if text.startswith("ref:") and _is_ref(ref) else None


def read_head(git_dir: Path) -> str | None:
    """The commit that HEAD names, read from Git's files without a process; none when there is none yet."""
    ref = read_symbolic_head(git_dir)
    if ref is not None:
        return read_ref(git_dir, ref)
    try:
        text = _text(git_dir / "HEAD")
    except OSError:
        return None
    return text if _OBJECT.fullmatch(text) else None


def read_ref(git_dir: Path, ref: str) -> str | None:
    """The object that a ref names, read from loose and packed refs without a process."""
    ref, commit = _followed(git_dir, ref)
    if commit or not ref:
        return commit
    with _packed(git_dir) as packed:
        return packed.get(ref)


def read_refs(git_dir: Path, names: Iterable[str], below: str) -> dict[str, str] | None:
    """Those of these refs that there are, and all below one more; none where Git keeps refs in no files that we would read.

    Raises `Conflict` where below that one lies what no Git has made, which Git would look through all the same.
    """
    common = _common(git_dir)
    if (common / "reftable").exists() or (common / "refs").is_symlink():
        return None
    found = {name: _followed(git_dir, name) for name in (*names, *_files_below(common, below))}
    with _packed(git_dir) as packed:  # after the others: Git packs a ref before it removes its file
        if not packed.complete:
            return None
        listed = {name: (name, None) for name in packed.below(below)} | found
        return {
            name: commit for name, (ref, own) in listed.items() if (commit := own or (packed.get(ref) if ref else None))
        }


def _followed(git_dir: Path, ref: str) -> tuple[str, str | None]:
    """The ref that a ref comes to by way of others (nothing: to none), and what that one's own file names."""
    for _ in range(_DEEPEST + 1):
        if not _is_ref(ref):
            break
        text = _loose(git_dir, ref)
        if not text.startswith("ref:"):
            return ref, text or None
        ref = text.removeprefix("ref:").strip()
    return "", None


def _loose(git_dir: Path, ref: str) -> str:
    """What a ref's own file says: an object, or `ref:` and another's name."""
    for folder in (git_dir, _common(git_dir)):
        try:
            text = _text(folder / ref, _LONGEST_REF)
        except OSError:
            continue
        if text.startswith("ref:") or _OBJECT.fullmatch(text):
            return text
    return ""


def _files_below(common: Path, below: str) -> list[str]:
    """The names of all files below one of Git's folders. An agent writes there too: no link is followed, and there is an end to it."""
    found: list[str] = []
    waiting, seen = [below], 0
    while waiting:
        name = waiting.pop()
        try:
            with opened_folder(common, parts_of(name)) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _MOST:
                        raise _strange(common / below, f"more than {_MOST} files in it")
                    _sort(entry, f"{name}/{entry.name}", waiting, found)
        except OSError as error:
            if short := machine_short(error):
                raise short from None
            if (common / name).is_symlink() and os.path.isdir(common / name):  # noqa: PTH112 - never raises
                raise _strange(common / name, "become a symlink") from None
        if waiting and waiting[-1].count("/") - below.count("/") > _DEEPEST_FOLDER:
            raise _strange(common / below, f"folders more than {_DEEPEST_FOLDER} deep")
    return found


def _sort(entry: os.DirEntry[str], name: str, folders: list[str], files: list[str]) -> None:
    with suppress(OSError):  # a symlink that leads nowhere is no ref
        if entry.is_file(follow_symlinks=False):
            files.append(name)
        elif entry.is_dir():  # also a symlink to one, which is refused when it is opened
            folders.append(name)


def _strange(path: Path, what: str) -> Conflict:
    return Conflict(
        f"{path} has {what}, which Git has not made", "see what it is and remove it, or choose another name"
    )


class _Packed:
    """The list of packed refs. Git sorts it and says so: then a name is found by a few looks at it, however long it is."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file.fileno() if file else -1
        self._size = os.fstat(self._file).st_size if file else 0
        about = os.pread(self._file, _LONGEST_LINE, 0).partition(b"\n")[0] if file else b""
        self._sorted = about.startswith(b"# pack-refs with:") and b"sorted" in about.split()
        self._begin = len(about) + 1
        self.complete = self._sorted or self._size <= LONGEST_LIST
        """False: nobody looks through one that is this long and not sorted."""
        self._all = file.read(LONGEST_LIST) if file and self.complete and not self._sorted else b""

    def get(self, ref: str) -> str | None:
        """What a ref names."""
        name = os.fsencode(ref)
        if self._sorted:
            _, line = self._line(at := self._first(name), at)
            found, _, other = line.partition(b" ")
        else:
            end = max(self._all.find(b" %b\n" % name), 0)
            found, other = self._all[self._all.rfind(b"\n", 0, end) + 1 : end], name
        text = found.decode(errors="replace")
        return text if other == name and _OBJECT.fullmatch(text) else None

    def below(self, name: str) -> list[str]:
        """All that are below this one."""
        start = os.fsencode(f"{name}/")
        if not self._sorted:
            return [os.fsdecode(one) for one in re.findall(rb" (%b.+)" % re.escape(start), self._all)]
        found: list[str] = []
        at = self._first(start)
        while at < self._size and len(found) < _MOST:
            begin, line = self._line(at, at)
            other = line.partition(b" ")[2]
            if not line.startswith(b"^"):
                if not other.startswith(start):
                    break
                found.append(os.fsdecode(other))
            at = begin + len(line) + 1
        return found

    def _first(self, name: bytes) -> int:
        """Where the first line is that has this name, or one that comes after it."""
        low, high = self._begin, self._size
        while low < high:
            begin, line = self._line((low + high) // 2, low)
            if line.startswith(b"^") and begin > low:  # of the tag in the line before: what that names
                begin, line = self._line(begin - 1, low)
            if line.partition(b" ")[2] < name:
                low = begin + len(line) + 1
            else:
                high = begin
        return low

    def _line(self, at: int, low: int) -> tuple[int, bytes]:
        """The line that has the byte at this place, and where it begins, but not before `low`."""
        start = max(low, at - _LONGEST_LINE)
        piece = os.pread(self._file, 2 * _LONGEST_LINE, start) if self._file >= 0 else b""
        begin = piece.rfind(b"\n", 0, at - start) + 1
        return start + begin, piece[begin:].partition(b"\n")[0]


@contextmanager
def _packed(git_dir: Path) -> Iterator[_Packed]:
    with ExitStack() as stack:
        try:
            found = _Packed(stack.enter_context(plain(_common(git_dir) / "packed-refs")))
        except OSError as error:
            if short := machine_short(error):
                raise short from None
            found = _Packed(None)
        yield found


def worktree_entries(common: Path, called: str = r".*") -> list[Path]:
    """Git's folders of a repository's worktrees."""
    try:
        with os.scandir(common / "worktrees") as entries:
            return [Path(entry.path) for entry in entries if re.fullmatch(called, entry.name) and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def worktree_place(entry: Path) -> str | None:
    """Where a registered worktree's folder is; one killed in its first moments does not say, nor one whose agent put a pipe there."""
    try:
        pointer = read_plain(entry / "gitdir", _LONGEST_POINTER).decode(errors="surrogateescape").strip()
        return os.path.realpath((entry / pointer).parent)
    except OSError as error:
        if short := machine_short(error):
            raise short from None
        return None
    except ValueError:  # no path has such a byte in it
        return None
