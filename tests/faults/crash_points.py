"""A real daemon that is killed at a chosen statement: `python -m tests.faults.crash_points --port 0`.

Every statement of the product with an external effect is counted: a process started, its input written, its end noticed, a signal
sent, bytes sent to a holder, a file or folder created, written, renamed or removed, a transaction written and committed, something
changed at a forge. Right after one of them the daemon is killed by SIGKILL. (Right before it is the same as right after the previous
one.) `AO_CRASH_PLAN` names a file: its first line says where this daemon is killed, the next line where the next one is, and so on: a
statement's number, its name, or `3# name` for its third execution. Beside the plan, `trace` gets a line per statement and per kill.
The product has no code for this.
"""

from __future__ import annotations

import asyncio
import asyncio.subprocess
import builtins
import fcntl
import functools
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import agent_orchestrator
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.core.store import database

PRODUCT = str(Path(agent_orchestrator.__file__).parent) + os.sep
HIDDEN_CALLERS = (
    "base/host.py",
    "sessions/isolation/sandbox.py",
    "base/git/commands.py",
    "plugins/forges/shared/http.py",
    "changes/forge_sync/backoff.py",
    "core/effects.py",
    "core/engine.py",
    "core/store/database.py",
    "daemon/__main__.py:main",
    "daemon/__main__.py:_run",
)
"""Frames that many statements share and that do not identify a statement."""
KILL_MARK = "killed"
WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FILE_FUNCTIONS = (
    "mkdir",
    "rmdir",
    "unlink",
    "remove",
    "rename",
    "replace",
    "link",
    "symlink",
    "chmod",
    "utime",
    "truncate",
    "mkfifo",
)

_kill, _write = os.kill, os.write


class StatementCounter:
    """Counts statements and kills the daemon at the planned one."""

    def __init__(self, at: str, trace: Path) -> None:
        times, mark, words = at.partition("# ")
        self.at, self.words = (at, "") if not mark else ("", words)
        self.times = int(times) if mark else 0
        self.trace = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.count = 0
        self.lock = threading.RLock()
        self.inside = threading.local()

    def run_and_count(self, what: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run and count one statement; nested and failed statements are not counted."""
        words = None if getattr(self.inside, "on", False) else statement_name(what, sys._getframe(2))
        if words is None:
            return function(*args, **options)
        self.inside.on = True
        try:
            answer = function(*args, **options)
        finally:
            self.inside.on = False
        self.count_statement(words)
        return answer

    def count_statement(self, name: str) -> None:
        """Count a statement, and kill the daemon if it is the planned one."""
        with self.lock:
            self.count += 1
            _write(self.trace, f"{self.count} {name}\n".encode())
            self.times -= name == self.words
            if self.at in (str(self.count), name) or (name == self.words and not self.times):
                _write(self.trace, f"{KILL_MARK} {name}\n".encode())
                _kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()


def statement_name(what: str, frame: FrameType | None) -> str | None:
    """Return a statement's name: its action and the calling functions of the product, innermost first; None outside the product."""
    names: list[str] = []
    is_product = False
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PRODUCT):
            is_product = True
            name = code.co_filename.removeprefix(PRODUCT)
            if not {name, f"{name}:{code.co_name}"} & {*HIDDEN_CALLERS} and not code.co_name.startswith("<"):
                names.append(f"{Path(name).stem}.{code.co_name}")
        frame = frame.f_back
    return f"{what}: {' < '.join(names[:4])}" if is_product else None


class CountedFile(io.FileIO):
    """A file whose writes are counted when they reach the kernel."""

    counter: StatementCounter

    def write(self, data: Any) -> int:
        written = self.counter.run_and_count("write", super().write, data)
        assert isinstance(written, int)
        return written


def install(counter: StatementCounter) -> None:
    """Wrap every function with external effects that the product uses."""
    CountedFile.counter = counter
    for name in FILE_FUNCTIONS:
        _count(counter, os, name, name)
    for holder, name in ((os, "kill"), (os, "killpg"), (signal, "pidfd_send_signal"), (os, "write"), (os, "sendfile")):
        _count(counter, holder, name, name)
    real_open = os.open

    def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & WRITING_FLAGS:
            return int(counter.run_and_count("open", real_open, path, flags, *args, **options))
        return real_open(path, flags, *args, **options)

    os.open = opened
    for module in (io, builtins):
        module.open = functools.partial(_open, counter, io.open if module is io else builtins.open)  # type: ignore[attr-defined]
    _count_starts(counter)
    _count(counter, database, "migrate", "migrate")
    _count(counter, database.Database, "_save_snapshot", "snapshot")
    _count_transactions(counter)
    for name in ("run", "stream"):
        _count_async(counter, LocalHost, name, "ended")
    _count_async(counter, asyncio.subprocess.Process, "_feed_stdin", "input")
    connect = asyncio.open_unix_connection

    async def connected(*args: Any, **options: Any) -> Any:
        reader, writer = await connect(*args, **options)
        original_write = writer.write
        writer.write = lambda data: counter.run_and_count("send", original_write, data)  # type: ignore[method-assign]
        return reader, writer

    asyncio.open_unix_connection = connected
    _count_requests(counter)


def _count(counter: StatementCounter, holder: Any, name: str, what: str) -> None:
    original = getattr(holder, name)

    @functools.wraps(original)
    def counted(*args: Any, **options: Any) -> Any:
        return counter.run_and_count(what, original, *args, **options)

    setattr(holder, name, counted)
    for supporting in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        if original in supporting:
            supporting.add(counted)


def _count_starts(counter: StatementCounter) -> None:
    original = subprocess.Popen.__init__

    def started(child: Any, argv: Any, *args: Any, **options: Any) -> None:
        words = [word for word in map(str, argv) if word[:1].isalpha() and word.replace("-", "").isalpha()]
        counter.run_and_count(
            f"start {Path(argv[0]).name} {' '.join(words[1:2])}", original, child, argv, *args, **options
        )

    subprocess.Popen.__init__ = started  # type: ignore[assignment, method-assign]


def _count_transactions(counter: StatementCounter) -> None:
    """Count inserts and commits, named by the first record of a batch, because the others vary."""
    write, insert = database.Database._write, database._insert
    names: list[str] = [""]

    def inserted(connection: Any, batch: Any, head: Any) -> Any:
        names_of_batch = [event.type for event in batch.events] + [
            f"{row.intent.kind} {row.state}" for row in batch.rows
        ]
        names[0] = names_of_batch[0] if names_of_batch else "nothing"
        after = insert(connection, batch, head)
        counter.count_statement(f"insert: {names[0]}")
        return after

    def written(store: Any, compute: Any) -> Any:
        answer = write(store, compute)
        counter.count_statement(f"commit: {names[0]}")
        return answer

    database._insert = inserted
    database.Database._write = written  # type: ignore[assignment, method-assign]


def _count_requests(counter: StatementCounter) -> None:
    """Count requests that change something at a forge, when their answer begins: done there, but not yet known here."""
    import httpx2

    original = httpx2.AsyncClient.send

    async def sent(client: Any, request: Any, **options: Any) -> Any:
        answer = await original(client, request, **options)
        what = f"{request.method} {_kind(request.url.path)}"
        if request.url.path.endswith("/graphql"):
            query = json.loads(request.content)["query"].split("(")[0].split()
            what = " ".join(query[:2])
        changes = request.method not in ("GET", "HEAD", "OPTIONS") and not what.startswith("query")
        if changes and (words := statement_name(f"http {what}", sys._getframe(1))):
            counter.count_statement(words)
        return answer

    httpx2.AsyncClient.send = sent  # type: ignore[assignment, method-assign]


def _kind(path: str) -> str:
    """Return a path with numbers and commits replaced by `*`."""
    return "/".join("*" if any(letter.isdigit() for letter in part) else part for part in path.split("/"))


def _count_async(counter: StatementCounter, holder: Any, name: str, what: str) -> None:
    original = getattr(holder, name)

    @functools.wraps(original)
    async def counted(*args: Any, **options: Any) -> Any:
        try:
            return await original(*args, **options)
        finally:
            if words := statement_name(what, sys._getframe(1)):
                counter.count_statement(words)

    setattr(holder, name, counted)


def _open(
    counter: StatementCounter, original: Callable[..., Any], file: Any, mode: str = "r", *args: Any, **options: Any
) -> Any:
    """Open a file as `open` does, with a counting raw file if it is opened for writing by the product."""
    if not set(mode) & set("wax+") or "daemon.log" in str(file) or statement_name("", sys._getframe(1)) is None:
        return original(file, mode, *args, **options)
    names = ("buffering", "encoding", "errors", "newline", "closefd", "opener")
    arguments = dict(zip(names, args, strict=False)) | options
    raw = counter.run_and_count(
        "open",
        CountedFile,
        file,
        mode.replace("b", "").replace("t", ""),
        arguments.get("closefd", True),
        opener=arguments.get("opener"),
    )
    if arguments.get("buffering") == 0:
        return raw
    buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    if "b" in mode:
        return buffered
    text = io.TextIOWrapper(
        buffered,
        arguments.get("encoding"),
        arguments.get("errors"),
        arguments.get("newline"),
        arguments.get("buffering") == 1,
    )
    text.mode = mode  # type: ignore[misc]
    return text


def install_planned() -> None:
    """Install the counter with the first line of the plan, and remove that line."""
    plan = Path(os.environ.pop("AO_CRASH_PLAN"))
    with plan.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        at, *rest = [*file.read().split("\n"), ""]
        file.seek(0)
        file.truncate()
        file.write("\n".join(rest))
    install(StatementCounter(at, plan.with_name("trace")))


def main() -> int:
    """Run the daemon with the counter and return its exit code."""
    install_planned()
    from agent_orchestrator.daemon import __main__

    return __main__.main()


if __name__ == "__main__":
    sys.exit(main())
