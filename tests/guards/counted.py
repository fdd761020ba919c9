"""A daemon that logs what it does: statements of the database, programs that it starts, timers.

    AO_COUNTED=FILE python -m tests.guards.counted [arguments of the daemon]

Lines: `sql BEGIN`, `run git worktree add …`, and at SIGUSR1 `timers N`: how often it would wake within a minute while idle.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from sqlite3 import dbapi2
from types import FrameType
from typing import Any

MINUTE = 60.0
_log = -1


def _note(kind: str, text: str) -> None:
    os.write(_log, f"{kind} {' '.join(text.split())}\n".encode(errors="replace"))


def _record_event(event: str, values: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        _note("run", " ".join(map(os.fsdecode, values[1])))
    elif event in ("os.posix_spawn", "os.fork", "os.system"):
        _note("run", event)


def _connect(*values: Any, **named: Any) -> sqlite3.Connection:
    connection = sqlite3.Connection(*values, **named)
    connection.set_trace_callback(lambda text: _note("sql", text))
    return connection


def _write_timers(_number: int, _frame: FrameType | None) -> None:
    loop: Any = asyncio.get_running_loop()
    due = [timer for timer in loop._scheduled if not timer.cancelled() and timer.when() < loop.time() + MINUTE]
    _note("timers", str(len(due)))


def main() -> int:
    """Run the daemon with the log, and return its exit code."""
    from agent_orchestrator.daemon import __main__

    global _log
    _log = os.open(os.environ.pop("AO_COUNTED"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    signal.signal(signal.SIGUSR1, _write_timers)
    sys.addaudithook(_record_event)
    dbapi2.connect = sqlite3.connect = _connect  # type: ignore[assignment]
    return __main__.main()


if __name__ == "__main__":
    sys.exit(main())
