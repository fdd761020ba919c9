"""A daemon that writes down what it does: statements of the database, programs that it starts, timers that it has.

    AO_COUNTED=FILE python -m tests.guards.counted [arguments of the daemon]

A line each: `sql BEGIN`, `run git worktree add …`. At SIGUSR1 a line `timers N`: how often it would wake within a minute if nothing
happened.
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


def _heard(event: str, values: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        _note("run", " ".join(map(os.fsdecode, values[1])))
    elif event in ("os.posix_spawn", "os.fork", "os.system"):
        _note("run", event)


def _connect(*values: Any, **named: Any) -> sqlite3.Connection:
    made = sqlite3.Connection(*values, **named)
    made.set_trace_callback(lambda text: _note("sql", text))
    return made


def _tell_timers(_number: int, _frame: FrameType | None) -> None:
    loop: Any = asyncio.get_running_loop()
    due = [timer for timer in loop._scheduled if not timer.cancelled() and timer.when() < loop.time() + MINUTE]
    _note("timers", str(len(due)))


def main() -> int:
    """Run the daemon."""
    from agent_orchestrator.daemon import __main__

    global _log
    _log = os.open(os.environ.pop("AO_COUNTED"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    signal.signal(signal.SIGUSR1, _tell_timers)
    sys.addaudithook(_heard)
    dbapi2.connect = sqlite3.connect = _connect  # type: ignore[assignment]
    return __main__.main()


if __name__ == "__main__":
    sys.exit(main())
