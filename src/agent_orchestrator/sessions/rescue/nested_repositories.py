"""Packs a repository inside a workspace into one archive, safely while an agent changes its files.

Every folder is opened again from the top, and every file from its folder, never through a symlink. So the archive contains only files of
the repository itself, even if something is replaced between two reads.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import tarfile
from contextlib import suppress
from pathlib import Path

from agent_orchestrator.base.files.safe import open_folder, open_in_folder, parts_of

_KINDS = {stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE, stat.S_IFIFO: tarfile.FIFOTYPE}
"""Types of entries that are not regular files and are kept; devices and sockets hold nothing."""


def pack(root: Path, path: str, archive: Path) -> None:
    """Write the folder `path` below `root` to an archive. Raises `UnsafePath` or `OSError`."""
    top_parts = parts_of(path)
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        remaining: list[tuple[str, ...]] = [()]
        while remaining:
            parts = remaining.pop()
            with open_folder(root, (*top_parts, *parts)) as folder:
                name = "/".join((".", *parts))
                tar.addfile(_tar_header(name, os.fstat(folder)))
                with os.scandir(folder) as entries:
                    names = sorted({entry.name for entry in entries})  # may be listed twice if created again
                folders = [
                    (*parts, entry_name) for entry_name in names if not _add_entry(tar, folder, name, entry_name)
                ]
            remaining += reversed(folders)


def _add_entry(tar: tarfile.TarFile, folder: int, parent: str, name: str) -> bool:
    """Add one entry of a folder to the archive; return False if it is a folder, which is added later."""
    status, arcname = os.stat(name, dir_fd=folder, follow_symlinks=False), f"{parent}/{name}"
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFREG:
        with open_in_folder(folder, name) as file:
            tar.addfile(tar.gettarinfo(arcname=arcname, fileobj=file), file)
    elif kind == stat.S_IFLNK:
        info = _tar_header(arcname, status)
        info.linkname = os.readlink(name, dir_fd=folder)
        tar.addfile(info)
    elif kind in _KINDS and kind != stat.S_IFDIR:
        tar.addfile(_tar_header(arcname, status))
    return kind != stat.S_IFDIR


def _tar_header(name: str, status: os.stat_result) -> tarfile.TarInfo:
    """Return the archive's header for an entry."""
    info = tarfile.TarInfo(name)
    info.type = _KINDS[stat.S_IFMT(status.st_mode)]
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), status.st_mtime
    info.uid, info.gid = status.st_uid, status.st_gid
    with suppress(KeyError):
        info.uname = pwd.getpwuid(info.uid).pw_name
    with suppress(KeyError):
        info.gname = grp.getgrgid(info.gid).gr_name
    return info
