"""A check's output as it grows: what is there, then what comes, from one run into the next, until it is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import BinaryIO

from agent_orchestrator.base.files.watch import Watch

AGAIN = "\n… it is run once more …\n".encode()
_PIECE = 1 << 16


async def follow(
    path: Path, watch: Watch, changed: asyncio.Event, over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """The file's content, until `over`: asked when the file grows, when another takes its place, and when somebody sets `changed`.

    Nothing is looked at while nothing changes. A check that is run once more writes a new file of the same name.
    """
    file: BinaryIO | None = None
    with contextlib.ExitStack() as held:
        held.callback(watch.entry(path, changed.set))
        while True:
            changed.clear()
            ended = over()  # asked first: whatever was written before the end is read below
            while file and (piece := file.read(_PIECE)):
                yield piece
            if other := _other(path, file):
                if file:
                    yield AGAIN
                file = held.enter_context(other)
                held.callback(watch.file(path, changed.set))
            elif ended:
                return
            else:
                await changed.wait()


def _other(path: Path, file: BinaryIO | None) -> BinaryIO | None:
    """The file that has this name by now, if it is another one."""
    try:
        if file and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return None
        return path.open("rb")
    except FileNotFoundError:
        return None
