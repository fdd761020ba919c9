"""A repository within a workspace as one archive. Whoever works there meanwhile cannot lead us out of it.

Every folder is opened from the top anew, and every file below its folder, never through a symlink: what stands in the archive lay in the
repository itself, whatever was put in its place between two looks.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import tarfile
from contextlib import suppress
from pathlib import Path

from agent_orchestrator.base.files.safe import opened_folder, opened_in, parts_of

_KINDS = {stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE, stat.S_IFIFO: tarfile.FIFOTYPE}
"""What is no file and yet kept; devices and sockets hold nothing."""


def pack(root: Path, path: str, archive: Path) -> None:
    """Put the folder `path` below `root` into an archive. Raises `NotPlain`, or the system's own error."""
    top = parts_of(path)
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            below = waiting.pop()
            with opened_folder(root, (*top, *below)) as folder:
                name = "/".join((".", *below))
                tar.addfile(_described(name, os.fstat(folder)))
                with os.scandir(folder) as entries:
                    names = sorted({entry.name for entry in entries})  # twice, if made anew
                folders = [(*below, inner) for inner in names if not _add(tar, folder, name, inner)]
            waiting += reversed(folders)


def _add(tar: tarfile.TarFile, folder: int, above: str, name: str) -> bool:
    """Add what a folder has under this name; false: it is a folder, which is for later."""
    status, arcname = os.stat(name, dir_fd=folder, follow_symlinks=False), f"{above}/{name}"
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFREG:
        with opened_in(folder, name) as file:
            tar.addfile(tar.gettarinfo(arcname=arcname, fileobj=file), file)
    elif kind == stat.S_IFLNK:
        info = _described(arcname, status)
        info.linkname = os.readlink(name, dir_fd=folder)
        tar.addfile(info)
    elif kind in _KINDS and kind != stat.S_IFDIR:
        tar.addfile(_described(arcname, status))
    return kind != stat.S_IFDIR


def _described(name: str, status: os.stat_result) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = _KINDS[stat.S_IFMT(status.st_mode)]
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), status.st_mtime
    info.uid, info.gid = status.st_uid, status.st_gid
    with suppress(KeyError):
        info.uname = pwd.getpwuid(info.uid).pw_name
    with suppress(KeyError):
        info.gname = grp.getgrgid(info.gid).gr_name
    return info
