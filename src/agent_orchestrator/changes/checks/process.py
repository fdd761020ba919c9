"""Runs one shell command to its end, with everything it starts: nothing of it is left when this returns.

Its output comes through a named pipe, so that a background process that keeps it open holds nobody up, and its exit code through
a file whose space was taken beforehand, so that a full disk hides nothing. A variable in its environment marks every process it starts,
also those that leave its terminal session and outlive their parents. What is running is written down (`run.json`) for the next daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.files.safe import new_file, read_plain
from agent_orchestrator.changes.checks.log import Log
from agent_orchestrator.changes.checks.results import write_atomically
from agent_orchestrator.plugins.runtimes.process_tree import stop_family
from agent_orchestrator.plugins.workspaces.git_workspace import remove_tree
from agent_orchestrator.protocols.host import Host, ProcessId

MARK = "AO_CHECK"
_CHUNK = 64 << 10
_STILL_IN_THE_PIPE = 1 << 20
_LONGEST_CODE = 16
_WRAPPER = '/bin/sh -c "$1"; printf %d "$?" 1<>"$2"'


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int | None
    """None: it was killed before it could say."""
    seconds: float
    timed_out: bool = False


async def execute(
    host: Host, command: str, *, beside: Path, env: Mapping[str, str], timeout: float, grace: float, log: Log
) -> Ended:
    """Run a command in `beside/tree`, its output going to `log`; our own files go into `beside`."""
    mark = secrets.token_hex(8)
    exit_file, pipe = beside / "exit", beside / "output"
    run_file = beside / "run.json"
    for left in (exit_file, pipe, run_file):  # an earlier command may have put anything there
        if left.is_dir():
            await asyncio.to_thread(remove_tree, left)
    with new_file(exit_file) as file:
        file.write(b"    ")
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe, 0o600)
    write_atomically(run_file, {"mark": mark, "boot": host.boot_id()})
    loop = asyncio.get_running_loop()
    began = loop.time()
    timed_out = False
    async with _reading(pipe, log):
        argv = ["/bin/sh", "-c", _WRAPPER, "sh", command, str(exit_file)]
        pid = await host.spawn(argv, cwd=beside / "tree", env={**env, MARK: mark}, log=pipe)
        process = host.process(pid)
        try:
            if process is not None:
                known = {"mark": mark, "boot": host.boot_id(), "pid": pid, "started": process.started}
                # The command may have filled the disk by now; its mark is known in any case.
                with contextlib.suppress(OSError):
                    write_atomically(run_file, known)
                async with asyncio.timeout(timeout):
                    await host.exited(process)
        except TimeoutError:
            timed_out = True
        finally:
            seconds = loop.time() - began
            await _finish(end_all(host, process, mark, grace if timed_out else 0.0))
    run_file.unlink(missing_ok=True)
    return Ended(_code(exit_file), seconds, timed_out)


async def end_leftover(host: Host, run_file: Path) -> None:
    """End what a daemon that is no more left running, by what it wrote down."""
    try:
        found = json.loads(read_plain(run_file))
        mark, boot, pid = str(found["mark"]), found["boot"], found.get("pid")
        process = None if pid is None else ProcessId(int(pid), str(found["started"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if boot == host.boot_id():
        await end_all(host, process, mark, 0.0)


async def end_all(host: Host, process: ProcessId | None, mark: str, grace: float) -> None:
    """End a command and everything it started, wherever that went."""
    if process is not None:
        await stop_family(host, process, grace)
    while strays := host.marked(MARK, mark):
        await asyncio.gather(*(stop_family(host, stray, 0.0) for stray in strays))


async def _finish(work: Coroutine[None, None, None]) -> None:
    """Carry it to its end even if we are cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


@contextlib.asynccontextmanager
async def _reading(pipe: Path, log: Log) -> AsyncIterator[None]:
    """Take what comes through the pipe while the block runs, and what is still in it at the end."""
    loop = asyncio.get_running_loop()
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    # A writing end of our own: a pipe without any would count as readable all the time.
    own_end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)

    def take() -> int:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return 0
        if data:
            log.write(data)
        return len(data)

    loop.add_reader(descriptor, take)
    try:
        yield
        left = _STILL_IN_THE_PIPE
        while left > 0 and (taken := take()):
            left -= taken
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        os.close(own_end)
        pipe.unlink(missing_ok=True)


def _code(file: Path) -> int | None:
    try:
        return int(read_plain(file, _LONGEST_CODE))
    except (OSError, ValueError):
        return None
