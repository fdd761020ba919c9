"""Access to files in folders where an agent writes too, such that the agent cannot redirect it elsewhere.

A name below such a folder may be a symlink that leads out of it, a hard link to a file of the user's, a pipe that
nothing writes to, a device, or far too large; and it may become so between two accesses. So each folder on the way
is opened separately, never through a link, and only regular files are read, up to a limit.
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

from agent_orchestrator.errors import resource_shortage

MAX_FILE_BYTES = 16 << 20
"""Maximum bytes of a file, where the caller gives no other limit."""

_OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_SIZE = 1 << 20


class UnsafePath(OSError):
    """The path is not a regular file, or leads through a symlink."""


def parts_of(name: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the parts of a relative name. Raises `UnsafePath` if it is absolute or contains `..`."""
    text = os.fspath(name)
    parts = tuple(part for part in text.split("/") if part not in ("", "."))
    if text.startswith("/") or not parts or ".." in parts or "\0" in text:
        raise UnsafePath(f"{text!r} is no name below the folder")
    return parts


def git_path_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name from a tree or an index, which anyone may have written. Raises `UnsafePath` if Git
    would not check it out.
    """
    parts = tuple(name.split("/"))
    if any(part in ("", ".", "..") or part.casefold() == ".git" or "\0" in part for part in parts):
        raise UnsafePath(f"{name!r} is no name that Git would check out")
    return parts


def is_git_path(name: str) -> bool:
    """Return whether Git would check out a file of this name."""
    try:
        return bool(git_path_parts(name))
    except UnsafePath:
        return False


@contextmanager
def open_folder(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """Yield the descriptor of a folder below `root`. Symlinks are followed in `root` itself, but not below it."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            try:
                child = os.open(part, _OPEN_FOLDER_FLAGS, dir_fd=descriptor)
            except NotADirectoryError as error:
                raise UnsafePath(f"{part} is a symlink, or no folder") from error
            os.close(descriptor)
            descriptor = child
        yield descriptor
    finally:
        os.close(descriptor)


def _require_regular_file(descriptor: int, name: str) -> BinaryIO:
    """Return an opened file. Raises `UnsafePath` if it is not a regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafePath(f"{name!r} is no plain file")
    return os.fdopen(descriptor, "rb")


@contextmanager
def open_below(root: Path, name: str | os.PathLike[str], longest: int = MAX_FILE_BYTES) -> Iterator[BinaryIO]:
    """Yield a regular file below `root`, for reading. Raises `UnsafePath`, or the system's own error."""
    *folders, last = parts_of(name)
    with open_folder(root, tuple(folders)) as folder:
        file = open_in_folder(folder, last)
    with file:
        if os.fstat(file.fileno()).st_size > longest:
            raise UnsafePath(f"{os.fspath(name)!r} is too long")
        yield file


def open_in_folder(folder: int, name: str) -> BinaryIO:
    """Return a regular file of an open folder, for reading. Raises `UnsafePath`, or the system's own error."""
    try:
        descriptor = os.open(name, _OPEN_FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise UnsafePath(f"{name!r} is no plain file") from error
    return _require_regular_file(descriptor, name)


def read(root: Path, name: str | os.PathLike[str], longest: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of a regular file below `root`. Raises `UnsafePath`, or the system's own error."""
    with open_below(root, name, longest) as file:
        content = file.read(longest + 1)
    if len(content) > longest:
        raise UnsafePath(f"{os.fspath(name)!r} is too long")
    return content


def read_text(root: Path, name: str | os.PathLike[str], longest: int = MAX_FILE_BYTES) -> str:
    """Return the content of a regular file below `root` as text, with undecodable bytes replaced. Raises as `read` does."""
    return read(root, name, longest).decode(errors="replace")


@contextmanager
def open_regular_file(path: Path) -> Iterator[BinaryIO]:
    """Yield the regular file at a whole path, for reading. The path must not end in a symlink; opening does not block on a pipe."""
    try:
        descriptor = os.open(path, _OPEN_FILE_FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePath(f"{path} is a symlink") from error
        raise
    with _require_regular_file(descriptor, str(path)) as file:
        yield file


def read_regular_file(path: Path, longest: int = MAX_FILE_BYTES) -> bytes:
    """Return the content of the regular file at a whole path. Raises `UnsafePath`, also if it is too long, or the system's own error."""
    with open_regular_file(path) as file:
        content = file.read(longest + 1)
    if len(content) > longest:
        raise UnsafePath(f"{path} is too long")
    return content


def create_file(path: Path, mode: int = 0o666) -> BinaryIO:
    """Return a new file for writing, in place of whatever has this name. A symlink is replaced, not followed; a pipe
    is not waited for.
    """
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, _CREATE_FILE_FLAGS, mode), "wb")


def copy_regular_file(source: Path, target: Path, longest: int = MAX_FILE_BYTES) -> None:
    """Copy a regular file, if it is not too long, to a new one, with its mode and times. Blocks of zeros become holes in the copy."""
    with open_regular_file(source) as source_file, create_file(target, 0o600) as target_file:
        status, remaining, zeros = os.fstat(source_file.fileno()), longest, bytes(_CHUNK_SIZE)
        try:
            while chunk := source_file.read(_CHUNK_SIZE):
                remaining -= len(chunk)
                if remaining < 0 or status.st_size > longest:
                    raise UnsafePath(f"{source} is too long")
                if chunk == zeros[: len(chunk)]:
                    target_file.seek(len(chunk), os.SEEK_CUR)
                else:
                    target_file.write(chunk)
            target_file.truncate()
            os.fchmod(target_file.fileno(), stat.S_IMODE(status.st_mode) & 0o777)
            os.utime(target_file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def copy_tree_limited(source: Path, target: Path, room: int, most: int) -> list[Path]:
    """Copy a file, a symlink or a folder with its contents: at most `room` bytes and `most` names, only regular files,
    links not followed.

    Returns what was left out. Raises the system's error if the machine lacks resources.
    """
    pending, left_out = [(source, target)], []
    while pending:
        source_path, target_path = pending.pop()
        try:
            status = source_path.lstat()
            if stat.S_ISDIR(status.st_mode):
                names = _list_names(source_path, most + 1)
                left_out += [source_path / "…"] if len(names) > most else []
                target_path.mkdir(mode=0o700)
                pending += [(source_path / name, target_path / name) for name in names[:most]]
                most -= len(names[:most])
            elif stat.S_ISLNK(status.st_mode):
                target_path.symlink_to(source_path.readlink())
            else:
                copy_regular_file(source_path, target_path, room)
                room -= status.st_size
        except OSError as error:
            if resource_shortage(error):
                raise
            left_out.append(source_path)
    return left_out


def _list_names(folder: Path, most: int) -> list[str]:
    """Return at most so many names of a folder's entries."""
    descriptor = os.open(folder, _OPEN_FOLDER_FLAGS)
    try:
        with os.scandir(descriptor) as entries:
            return [entry.name for entry in islice(entries, most)]
    finally:
        os.close(descriptor)


@contextmanager
def create_and_open_folder(root: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """Yield the descriptor of a folder below `root`, like `open_folder`; missing folders are created, for their owner only."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number, part in enumerate(parts):
        with open_folder(root, parts[:number]) as parent, suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=parent)
    with open_folder(root, parts) as folder:
        yield folder


def write_atomically(root: Path, name: str | os.PathLike[str], content: bytes, mode: int = 0o600) -> None:
    """Write a file below `root` atomically. What has this name is replaced; a symlink is not followed."""
    *folders, last = parts_of(name)
    draft = f".{last}.{secrets.token_hex(6)}"
    with create_and_open_folder(root, tuple(folders)) as folder:
        try:
            with os.fdopen(os.open(draft, _CREATE_FILE_FLAGS, 0o600, dir_fd=folder), "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), mode)
            os.rename(draft, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            raise


def touch(path: Path) -> None:
    """Create an empty file, unless there is one; a symlink in its place is removed."""
    if path.is_symlink():
        path.unlink()
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644))


def escapes_folder(root: Path, name: str, *, writing: bool = False) -> bool:
    """Return whether a name below `root` leads out of it, or into Git's own folder, or (for writing) to a file that
    has several hard links.
    """
    top = os.path.realpath(root)
    literal_part = re.split(r"[*?]", name, maxsplit=1)[0]
    real = os.path.realpath(f"{top}/{literal_part if literal_part == name else literal_part.rpartition('/')[0]}")
    if real != top and not real.startswith(f"{top}/"):
        return True
    if any(part.casefold() == ".git" for part in os.path.relpath(real, top).split("/")):
        return True
    try:
        status = os.lstat(real)
    except (OSError, ValueError):
        return False
    if stat.S_ISDIR(status.st_mode):
        return False
    return not stat.S_ISREG(status.st_mode) or (writing and status.st_nlink > 1)


def find_mounts_below(folder: Path) -> list[Path]:
    """Return what is mounted somewhere below a folder (Linux only): removing the folder would delete the contents of the mounts."""
    prefix = f"{os.path.realpath(folder)}/"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []
    mount_points = [re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split(" ")[4]) for line in lines]
    return [Path(mount_point) for mount_point in mount_points if mount_point.startswith(prefix)]
