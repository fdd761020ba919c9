"""Do the files of a workspace bear out what a rule reads in a request's letters? Whoever allows by rule looks here first."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agent_orchestrator.base.files.safe import leads_out
from agent_orchestrator.sessions.permissions.rules import Verdict
from agent_orchestrator.sessions.permissions.sensitive_files import steers

if TYPE_CHECKING:  # an agent's hook starts with each of its commands
    from agent_orchestrator.protocols.host import Host


def borne_out(workspace: Path, verdict: Verdict, hooks: Collection[str] = ()) -> bool:
    """A person is asked where not: a symlink leads elsewhere, a file has a second name, a folder is a repository of its own."""
    edits = verdict.folder is None and bool(verdict.changed)
    if any(leads_out(workspace, path, writing=edits) for path in verdict.paths):
        return False
    top = os.path.realpath(workspace)
    real = [os.path.relpath(os.path.realpath(f"{top}/{path}"), top) for path in verdict.changed]
    if any(steers(path, hooks) for path in real) or not all(_single(top, path) for path in verdict.files):
        return False
    if verdict.folder is None:
        return not any(os.path.lexists(f"{top}/{folder}/HEAD") for path in real for folder in _above(path))
    return not _other_repository(top, verdict.folder)


def _other_repository(top: str, folder: str) -> bool:
    """Would a Git that is run in this folder of the workspace find another repository than the workspace's? Where a folder has `HEAD`
    it may be one, whatever else it has: the rest may be in any other folder, which a file in it names.
    """
    real = os.path.realpath(f"{top}/{folder}")
    if (real != top and not real.startswith(f"{top}/")) or not Path(real).is_dir():
        return True
    inner = os.path.relpath(real, top)
    return any(
        os.path.lexists(f"{top}/{at}/{name}")
        for at in (inner, *_above(inner))
        if at != "."
        for name in (".git", "HEAD")
    )


async def borne_out_there(host: Host, workspace: Path, verdict: Verdict, hooks: Collection[str] = ()) -> bool:
    """The same on another machine, by what its own programs say."""
    fixed = [re.split(r"[*?]", path, maxsplit=1)[0] or "." for path in verdict.paths]
    words = ("realpath", "-m", "-z", "--", str(workspace), *(f"{workspace}/{path}" for path in fixed))
    done = await host.run(words, timeout=10.0)
    top, *real = done.out.decode(errors="surrogateescape").split("\0")[:-1] or [""]
    inside = [path for path in real if f"{path}/".startswith(f"{top}/") and "/.git/" not in f"{path}/"]
    if done.code or not top or len(inside) != len(fixed):
        return False
    named = zip(verdict.paths, real, strict=True)
    changed = [path[len(top) + 1 :] for name, path in named if name in verdict.changed]
    if any(steers(path, hooks) for path in changed):
        return False
    single = {f"{top}/{path}" for path in verdict.files}
    if single and await _found(host, single, "!", "-type", "d") != len(single):
        return False
    heads = {f"{top}/{folder}/HEAD" for path in changed for folder in _above(path)} if verdict.folder is None else ()
    return not heads or await _found(host, heads) == 0


async def _found(host: Host, paths: Collection[str], *such: str) -> int | None:
    """How many of them there are; none: nobody can tell."""
    done = await host.run(("find", "-L", *sorted(paths), "-maxdepth", "0", *such, "-print0"), timeout=10.0)
    return done.out.count(b"\0") if done.code in (0, 1) else None


def _above(path: str) -> Iterator[str]:
    """The folders of the workspace that it lies in."""
    return (str(folder) for folder in PurePosixPath(path).parents if str(folder) != ".")


def _single(top: str, path: str) -> bool:
    """Is it a file? What is not there may be a whole folder where it is taken from, whatever its name."""
    here = Path(top, path)
    return os.path.lexists(here) and not here.is_dir()
