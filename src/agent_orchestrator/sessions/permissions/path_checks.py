"""Checks that the paths of a permission request really lie in the workspace, before a rule allows the request.

Rules decide by the names alone; here the files are read: symlinks, hard links, nested repositories.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agent_orchestrator.base.files.safe import escapes_folder
from agent_orchestrator.sessions.permissions.autorun_files import is_sensitive
from agent_orchestrator.sessions.permissions.rules import RuleDecision

if TYPE_CHECKING:  # an agent's hook starts for each command and should start fast
    from agent_orchestrator.protocols.host import Host


def paths_stay_inside(workspace: Path, verdict: RuleDecision, hooks: Collection[str] = ()) -> bool:
    """Return whether the paths of a verdict are safe: no symlink leads out, no file is a hard link, no folder is another repository."""
    is_edit = verdict.folder is None and bool(verdict.changed)
    if any(escapes_folder(workspace, path, writing=is_edit) for path in verdict.paths):
        return False
    top = os.path.realpath(workspace)
    real_paths = [os.path.relpath(os.path.realpath(f"{top}/{path}"), top) for path in verdict.changed]
    if any(is_sensitive(path, hooks) for path in real_paths) or not all(
        _is_single_file(top, path) for path in verdict.files
    ):
        return False
    if verdict.folder is None:
        return not any(
            os.path.lexists(f"{top}/{folder}/HEAD") for path in real_paths for folder in _parent_folders(path)
        )
    return not _is_other_repository(top, verdict.folder)


def _is_other_repository(top: str, folder: str) -> bool:
    """Return whether Git, run in this folder, would use another repository than the workspace's.

    A folder with `HEAD` may be a repository even without the other files: they may be in another folder that a file in it names.
    """
    real_folder = os.path.realpath(f"{top}/{folder}")
    if (real_folder != top and not real_folder.startswith(f"{top}/")) or not Path(real_folder).is_dir():
        return True
    inner = os.path.relpath(real_folder, top)
    return any(
        os.path.lexists(f"{top}/{parent}/{name}")
        for parent in (inner, *_parent_folders(inner))
        if parent != "."
        for name in (".git", "HEAD")
    )


async def paths_stay_inside_remote(
    host: Host, workspace: Path, verdict: RuleDecision, hooks: Collection[str] = ()
) -> bool:
    """Return the same for a workspace on another machine, using programs of that machine."""
    literal_paths = [re.split(r"[*?]", path, maxsplit=1)[0] or "." for path in verdict.paths]
    words = ("realpath", "-m", "-z", "--", str(workspace), *(f"{workspace}/{path}" for path in literal_paths))
    result = await host.run(words, timeout=10.0)
    top, *real_paths = result.out.decode(errors="surrogateescape").split("\0")[:-1] or [""]
    paths_inside = [path for path in real_paths if f"{path}/".startswith(f"{top}/") and "/.git/" not in f"{path}/"]
    if result.code or not top or len(paths_inside) != len(literal_paths):
        return False
    pairs = zip(verdict.paths, real_paths, strict=True)
    changed = [path[len(top) + 1 :] for name, path in pairs if name in verdict.changed]
    if any(is_sensitive(path, hooks) for path in changed):
        return False
    single_paths = {f"{top}/{path}" for path in verdict.files}
    if single_paths and await _count_existing(host, single_paths, "!", "-type", "d") != len(single_paths):
        return False
    heads = (
        {f"{top}/{folder}/HEAD" for path in changed for folder in _parent_folders(path)}
        if verdict.folder is None
        else ()
    )
    return not heads or await _count_existing(host, heads) == 0


async def _count_existing(host: Host, paths: Collection[str], *conditions: str) -> int | None:
    """Return how many of the paths exist and match the conditions, or None if that is unknown."""
    result = await host.run(("find", "-L", *sorted(paths), "-maxdepth", "0", *conditions, "-print0"), timeout=10.0)
    return result.out.count(b"\0") if result.code in (0, 1) else None


def _parent_folders(path: str) -> Iterator[str]:
    """Return the parent folders of a path, within the workspace."""
    return (str(folder) for folder in PurePosixPath(path).parents if str(folder) != ".")


def _is_single_file(top: str, path: str) -> bool:
    """Return whether the path is a file. A missing path may become a whole folder when it is restored from a revision."""
    file = Path(top, path)
    return os.path.lexists(file) and not file.is_dir()
