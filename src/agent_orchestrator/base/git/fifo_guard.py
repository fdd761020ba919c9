"""Pipes in the place of files that Git reads: an agent can put them into its workspace, and Git would wait at one for ever.

A Git that takes long is looked after: where it waits to read such a pipe, it is told that there is nothing in it. Pipes of other names are
left alone, for programs of the agent's may wait there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from agent_orchestrator.base.git.refs import find_layout

FIRST_LOOK = 1.0
"""Seconds that Git may take before it is looked after; then after twice as long, and so on."""
_READ = {".gitattributes", ".gitignore", ".gitmodules", ".mailmap", ".git"}


@contextlib.asynccontextmanager
async def answered(repo: Path) -> AsyncIterator[None]:
    """Answer at the pipes of a repository or workspace while Git works in it."""
    looking = asyncio.ensure_future(_answering(repo))
    try:
        yield
    finally:
        looking.cancel()


async def _answering(repo: Path) -> None:
    pause = FIRST_LOOK
    while True:
        await asyncio.sleep(pause)
        # Git goes on to the next one: there may be many.
        while await asyncio.to_thread(answer, repo):  # noqa: ASYNC110 - nothing tells that Git waits at another one
            await asyncio.sleep(0.05)
        pause *= 2


def answer(repo: Path) -> int:
    """Tell whoever waits to read a pipe that Git would read that there is nothing; returns how many were told."""
    told = 0
    for path in _pipes(repo):
        with contextlib.suppress(OSError):  # nobody waits there
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
            told += 1
    return told


def _pipes(repo: Path) -> Iterator[str]:
    layout = find_layout(repo)
    folders = {str(repo)} if layout is None else {str(repo), str(layout.git_dir), str(layout.common)}
    for start in folders:
        waiting = [(start, start != str(repo))]
        while waiting:
            folder, inside = waiting.pop()
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, inside or entry.name == ".git"))
                    elif (inside or entry.name in _READ) and _is_pipe(entry.path):
                        yield entry.path


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except OSError:
        return False
