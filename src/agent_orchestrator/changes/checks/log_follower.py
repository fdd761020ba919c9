"""Follow the output of a check while it grows, from one run into the next, until it ends (`follow_log`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import BinaryIO

from agent_orchestrator.base.files.watch import FileWatcher

RERUN_NOTICE = "\n… it is run once more …\n".encode()
_CHUNK_SIZE = 1 << 16


async def follow_log(
    path: Path, watch: FileWatcher, changed: asyncio.Event, over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """Yield the file's content until `over()` returns True.

    `over` is called when the file grows, when another file replaces it, and when the caller sets `changed`; nothing is polled. A check that
    is run once more writes a new file with the same name.
    """
    file: BinaryIO | None = None
    with contextlib.ExitStack() as resources:
        resources.callback(watch.watch_entry(path, changed.set))
        while True:
            changed.clear()
            is_over = over()  # called first, so that what was written before the end is read below
            while file and (chunk := file.read(_CHUNK_SIZE)):
                yield chunk
            if replacement := _open_replacement(path, file):
                if file:
                    yield RERUN_NOTICE
                file = resources.enter_context(replacement)
                resources.callback(watch.watch_file(path, changed.set))
            elif is_over:
                return
            else:
                await changed.wait()


def _open_replacement(path: Path, file: BinaryIO | None) -> BinaryIO | None:
    """Return the file that now has this name, opened, or None if it is still the same one."""
    try:
        if file and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return None
        return path.open("rb")
    except FileNotFoundError:
        return None
