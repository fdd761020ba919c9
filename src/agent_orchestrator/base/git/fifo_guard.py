"""Keeps Git from hanging on pipes that stand in place of files it reads: an agent can create them in its workspace.

While a Git command takes long, pipes with the names of files that Git reads are opened for writing and closed, so
that Git reads an empty file. Pipes with other names are left alone, as programs of the agent may wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from agent_orchestrator.base.git.refs import find_layout

FIRST_CHECK_SECONDS = 1.0
"""Seconds that Git may take before pipes are searched; each further interval is twice as long."""
_FILES_GIT_READS = {".gitattributes", ".gitignore", ".gitmodules", ".mailmap", ".git"}
"""Names of files in a workspace that Git reads."""


@contextlib.asynccontextmanager
async def fifo_guard(repo: Path) -> AsyncIterator[None]:
    """Answer pipes in a repository or workspace while Git works in it."""
    task = asyncio.ensure_future(_unblock_pipes_repeatedly(repo))
    try:
        yield
    finally:
        task.cancel()


async def _unblock_pipes_repeatedly(repo: Path) -> None:
    """Answer pipes at growing intervals, until cancelled."""
    pause = FIRST_CHECK_SECONDS
    while True:
        await asyncio.sleep(pause)
        # Git continues with the next file, which may be a pipe too.
        while await asyncio.to_thread(unblock_pipes, repo):  # noqa: ASYNC110 - there is no event for "Git waits at a pipe"
            await asyncio.sleep(0.05)
        pause *= 2


def unblock_pipes(repo: Path) -> int:
    """Let every process that waits to read a pipe which Git would read see an empty file, and return how many pipes were answered."""
    answered_pipes = 0
    for path in _find_pipes(repo):
        with contextlib.suppress(OSError):  # no process waits to read it
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
            answered_pipes += 1
    return answered_pipes


def _find_pipes(repo: Path) -> Iterator[str]:
    """Yield the pipes with names of files that Git reads, in the workspace and in its Git folders."""
    layout = find_layout(repo)
    folders = {str(repo)} if layout is None else {str(repo), str(layout.git_dir), str(layout.common)}
    for start in folders:
        folders_left = [(start, start != str(repo))]
        while folders_left:
            folder, is_inside_git = folders_left.pop()
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders_left.append((entry.path, is_inside_git or entry.name == ".git"))
                    elif (is_inside_git or entry.name in _FILES_GIT_READS) and _is_pipe(entry.path):
                        yield entry.path


def _is_pipe(path: str) -> bool:
    """Return whether a path is a pipe."""
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except OSError:
        return False
