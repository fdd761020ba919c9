"""Run one shell command and end every process it started (`run_command`).

The output comes through a named pipe, so that a background process that keeps it open does not block us. The exit code comes through a file
whose space is allocated beforehand, so that it is written even on a full disk. An environment variable marks every process that the command
starts, including those that leave its terminal session and outlive their parents. What runs is recorded in `run.json` for the next daemon.
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

from agent_orchestrator.base.files.safe import create_file, read_regular_file
from agent_orchestrator.changes.checks.log import Log
from agent_orchestrator.changes.checks.results import write_json
from agent_orchestrator.plugins.runtimes.process_tree import stop_process_tree
from agent_orchestrator.plugins.workspaces.git_workspace import remove_tree
from agent_orchestrator.protocols.host import Host, ProcessId

MARK_VARIABLE = "AO_CHECK"
_CHUNK_SIZE = 64 << 10
_MAX_DRAINED_BYTES = 1 << 20
_MAX_CODE_LENGTH = 16
_WRAPPER = '/bin/sh -c "$1"; printf %d "$?" 1<>"$2"'


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a command ended."""

    code: int | None
    """The exit code, or None if the command was killed before it could be written."""
    seconds: float
    timed_out: bool = False


async def run_command(
    host: Host, command: str, *, folder: Path, env: Mapping[str, str], timeout: float, grace: float, log: Log
) -> ProcessResult:
    """Run a command in `folder/tree`, write its output to `log`, and return how it ended; our own files go into `folder`.

    The command is stopped after `timeout` seconds, and killed `grace` seconds later.
    """
    mark = secrets.token_hex(8)
    exit_file, pipe = folder / "exit", folder / "output"
    run_file = folder / "run.json"
    for path in (exit_file, pipe, run_file):  # an earlier command may have put a folder there
        if path.is_dir():
            await asyncio.to_thread(remove_tree, path)
    with create_file(exit_file) as file:
        file.write(b"    ")
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe, 0o600)
    write_json(run_file, {"mark": mark, "boot": host.boot_id()})
    loop = asyncio.get_running_loop()
    start_time = loop.time()
    timed_out = False
    async with _pipe_to_log(pipe, log):
        argv = ["/bin/sh", "-c", _WRAPPER, "sh", command, str(exit_file)]
        pid = await host.spawn(argv, cwd=folder / "tree", env={**env, MARK_VARIABLE: mark}, log=pipe)
        process = host.process(pid)
        try:
            if process is not None:
                record = {"mark": mark, "boot": host.boot_id(), "pid": pid, "started": process.started}
                # The command may have filled the disk by now; its mark is already recorded.
                with contextlib.suppress(OSError):
                    write_json(run_file, record)
                async with asyncio.timeout(timeout):
                    await host.exited(process)
        except TimeoutError:
            timed_out = True
        finally:
            seconds = loop.time() - start_time
            await _run_to_end(end_command(host, process, mark, grace if timed_out else 0.0))
    run_file.unlink(missing_ok=True)
    return ProcessResult(_read_exit_code(exit_file), seconds, timed_out)


async def end_leftover(host: Host, run_file: Path) -> None:
    """End what an earlier daemon left running, as recorded in its `run.json`."""
    try:
        record = json.loads(read_regular_file(run_file))
        mark, boot, pid = str(record["mark"]), record["boot"], record.get("pid")
        process = None if pid is None else ProcessId(int(pid), str(record["started"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if boot == host.boot_id():
        await end_command(host, process, mark, 0.0)


async def end_command(host: Host, process: ProcessId | None, mark: str, grace: float) -> None:
    """End a command and every process with its mark."""
    if process is not None:
        await stop_process_tree(host, process, grace)
    while strays := host.processes_with_variable(MARK_VARIABLE, mark):
        await asyncio.gather(*(stop_process_tree(host, stray, 0.0) for stray in strays))


async def _run_to_end(work: Coroutine[None, None, None]) -> None:
    """Run a coroutine to its end even if the caller is cancelled, then raise `CancelledError`."""
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
async def _pipe_to_log(pipe: Path, log: Log) -> AsyncIterator[None]:
    """Write to the log what arrives through the pipe while the block runs, and what is left in the pipe at the end."""
    loop = asyncio.get_running_loop()
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    # Keep a writing end open: a pipe without a writer is always readable.
    own_end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)

    def copy_chunk() -> int:
        """Copy one chunk from the pipe to the log and return its size."""
        try:
            data = os.read(descriptor, _CHUNK_SIZE)
        except BlockingIOError:
            return 0
        if data:
            log.write(data)
        return len(data)

    loop.add_reader(descriptor, copy_chunk)
    try:
        yield
        remaining = _MAX_DRAINED_BYTES
        while remaining > 0 and (size := copy_chunk()):
            remaining -= size
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        os.close(own_end)
        pipe.unlink(missing_ok=True)


def _read_exit_code(file: Path) -> int | None:
    """Return the exit code in the file, or None if there is none."""
    try:
        return int(read_regular_file(file, _MAX_CODE_LENGTH))
    except (OSError, ValueError):
        return None
