"""Files where an agent writes too, reached so that it cannot lead us elsewhere.

A name below such a folder may be a symlink that leads out of it, a hard link to a file of the user's, a pipe that nobody writes to, a
device, or far too long; and it may become so between two looks. So each folder on the way is opened by itself, never through a link, and
what is read is a plain file, up to a bound.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from agent_orchestrator.errors import machine_short

LONGEST = 16 << 20

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 20


class NotPlain(OSError):
    """It is no plain file there, or the way to it leads elsewhere."""


def parts_of(name: str | os.PathLike[str]) -> tuple[str, ...]:
    """A relative name's parts; raises `NotPlain` for one that goes up, or begins at the root."""
    text = os.fspath(name)
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    if text.startswith("/") or not parts or ".." in parts or "\0" in text:
        raise NotPlain(f"{text!r} is no name below the folder")
    return parts


def parts_in_git(name: str) -> tuple[str, ...]:
    """The parts of a name from a tree or an index, which anybody may have made; raises `NotPlain` for one that Git would not check out."""
    parts = tuple(name.split("/"))
    if any(part in ("", ".", "..") or part.casefold() == ".git" or "\0" in part for part in parts):
        raise NotPlain(f"{name!r} is no name that Git would check out")
    return parts


def is_in_git(name: str) -> bool:
    """Is it such a name?"""
    try:
        return bool(parts_in_git(name))
    except NotPlain:
        return False


@contextmanager
def opened_folder(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """The descriptor of a folder below `root`, which itself is taken as it is; no step follows a symlink."""
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            try:
                below = os.open(part, _FOLDER, dir_fd=here)
            except NotADirectoryError as error:
                raise NotPlain(f"{part} is a symlink, or no folder") from error
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _file(descriptor: int, name: str) -> BinaryIO:
    """What was opened, if it is a plain file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlain(f"{name!r} is no plain file")
    return os.fdopen(descriptor, "rb")


@contextmanager
def opened(root: Path, name: str | os.PathLike[str], longest: int = LONGEST) -> Iterator[BinaryIO]:
    """A plain file below `root`, for reading; raises `NotPlain`, or the system's own error."""
    *folders, last = parts_of(name)
    with opened_folder(root, tuple(folders)) as folder:
        file = opened_in(folder, last)
    with file:
        if os.fstat(file.fileno()).st_size > longest:
            raise NotPlain(f"{os.fspath(name)!r} is too long")
        yield file


def opened_in(folder: int, name: str) -> BinaryIO:
    """A plain file of an open folder, for reading; raises `NotPlain`, or the system's own error."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise NotPlain(f"{name!r} is no plain file") from error
    return _file(descriptor, name)


def read(root: Path, name: str | os.PathLike[str], longest: int = LONGEST) -> bytes:
    """What a plain file below `root` holds; raises `NotPlain`, or the system's own error."""
    with opened(root, name, longest) as file:
        content = file.read(longest + 1)
    if len(content) > longest:
        raise NotPlain(f"{os.fspath(name)!r} is too long")
    return content


def read_text(root: Path, name: str | os.PathLike[str], longest: int = LONGEST) -> str:
    """The same as text, as well as it can be read."""
    return read(root, name, longest).decode(errors="replace")


@contextmanager
def plain(path: Path) -> Iterator[BinaryIO]:
    """A plain file by its whole name, for reading: no symlink at its end, and nothing that would keep us waiting."""
    try:
        descriptor = os.open(path, _FILE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPlain(f"{path} is a symlink") from error
        raise
    with _file(descriptor, str(path)) as file:
        yield file


def read_plain(path: Path, longest: int = LONGEST) -> bytes:
    """What such a file holds, if it is not too long; raises `NotPlain`, or the system's own error."""
    with plain(path) as file:
        content = file.read(longest + 1)
    if len(content) > longest:
        raise NotPlain(f"{path} is too long")
    return content


def new_file(path: Path, mode: int = 0o666) -> BinaryIO:
    """A new file to be written in the place of whatever has this name: nothing that a symlink leads to is, and no pipe is waited for."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, _NEW, mode), "wb")


def copy_plain(source: Path, target: Path, longest: int = LONGEST) -> None:
    """Copy such a file, if it is not too long, to a new one, with its mode and times; what takes no room in it takes none in the copy."""
    with plain(source) as reading, new_file(target, 0o600) as writing:
        about, left, nothing = os.fstat(reading.fileno()), longest, bytes(_PIECE)
        try:
            while piece := reading.read(_PIECE):
                left -= len(piece)
                if left < 0 or about.st_size > longest:
                    raise NotPlain(f"{source} is too long")
                if piece == nothing[: len(piece)]:
                    writing.seek(len(piece), os.SEEK_CUR)
                else:
                    writing.write(piece)
            writing.truncate()
            os.fchmod(writing.fileno(), stat.S_IMODE(about.st_mode) & 0o777)
            os.utime(writing.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def copy_some(source: Path, target: Path, room: int, most: int) -> list[Path]:
    """Copy a file, a symlink or a folder with all that is in it: `room` bytes and `most` names, plain files alone, nothing followed.

    Returns what was left out. Raises the system's error where the machine lacks what it takes.
    """
    waiting, left_out = [(source, target)], []
    while waiting:
        here, there = waiting.pop()
        try:
            about = here.lstat()
            if stat.S_ISDIR(about.st_mode):
                names = _names(here, most + 1)
                left_out += [here / "…"] if len(names) > most else []
                there.mkdir(mode=0o700)
                waiting += [(here / name, there / name) for name in names[:most]]
                most -= len(names[:most])
            elif stat.S_ISLNK(about.st_mode):
                there.symlink_to(here.readlink())
            else:
                copy_plain(here, there, room)
                room -= about.st_size
        except OSError as error:
            if machine_short(error):
                raise
            left_out.append(here)
    return left_out


def _names(folder: Path, most: int) -> list[str]:
    descriptor = os.open(folder, _FOLDER)
    try:
        with os.scandir(descriptor) as entries:
            return [entry.name for entry in islice(entries, most)]
    finally:
        os.close(descriptor)


@contextmanager
def made_folder(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """The same as `opened_folder`; what is missing on the way is made, for its owner alone."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number, part in enumerate(parts):
        with opened_folder(root, parts[:number]) as above, suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=above)
    with opened_folder(root, parts) as folder:
        yield folder


def put(root: Path, name: str | os.PathLike[str], content: bytes, mode: int = 0o600) -> None:
    """Write a file below `root` in one step. What stood in its place is replaced, a symlink too, and never followed."""
    *folders, last = parts_of(name)
    draft = f".{last}.{secrets.token_hex(6)}"
    with made_folder(root, tuple(folders)) as folder:
        try:
            with os.fdopen(os.open(draft, _NEW, 0o600, dir_fd=folder), "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), mode)
            os.rename(draft, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            raise


def touch(path: Path) -> None:
    """Make an empty file, unless there is one; a symlink in its place goes."""
    if path.is_symlink():
        path.unlink()
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644))


def leads_out(root: Path, name: str, *, writing: bool = False) -> bool:
    """Does a name below `root` lead out of it, or into Git's own folder, or (for writing) to a file that has another name too?"""
    top = os.path.realpath(root)
    fixed = re.split(r"[*?]", name, maxsplit=1)[0]
    real = os.path.realpath(f"{top}/{fixed if fixed == name else fixed.rpartition('/')[0]}")
    if real != top and not real.startswith(f"{top}/"):
        return True
    if any(part.casefold() == ".git" for part in os.path.relpath(real, top).split("/")):
        return True
    try:
        about = os.lstat(real)
    except (OSError, ValueError):
        return False
    if stat.S_ISDIR(about.st_mode):
        return False
    return not stat.S_ISREG(about.st_mode) or (writing and about.st_nlink > 1)


def mounted_below(folder: Path) -> list[Path]:
    """What is mounted somewhere in a folder, where the system tells (Linux): whoever removes the folder would empty it."""
    inside = f"{os.path.realpath(folder)}/"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []
    points = [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in lines]
    return [Path(point) for point in points if point.startswith(inside)]
