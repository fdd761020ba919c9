"""Files where an agent writes too, reached so that it cannot lead us elsewhere.

A name below such a folder may be a symlink that leads out of it, a hard link to a file of the user's, a pipe that nobody writes to, a
device, or far too long; and it may become so between two looks. So each folder on the way is opened by itself, never through a link, and
what is read is a plain file, up to a bound.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

LONGEST = 16 << 20

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotPlain(OSError):
    """It is no plain file there, or the way to it leads elsewhere."""


def parts_of(name: str | os.PathLike[str]) -> tuple[str, ...]:
    """A relative name's parts; raises `NotPlain` for one that goes up, or begins at the root."""
    text = os.fspath(name)
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    if text.startswith("/") or not parts or ".." in parts or "\0" in text:
        raise NotPlain(f"{text!r} is no name below the folder")
    return parts


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
