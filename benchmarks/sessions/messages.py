"""The time until a message, or a comment that a reaction sends, is in the agent's log."""

from __future__ import annotations

import json
import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent_orchestrator.plugins.runtimes.tmux import ENTER_DELAY
from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.client import HTTPConnection
from benchmarks.measure import Figure, Result, quartiles, ratios
from benchmarks.sessions.reactions import BareTmux, comment, wait_until_read

MESSAGE_COUNT = 15
TEXT = f"{'x' * 200} [[say: noted]]"


def measure_messages(box: Sandbox, folder: Path, log: Path, names: Sequence[str]) -> Iterator[Result]:
    """Measure in turns a message, the same text pasted by bare tmux, a comment, and a bare database commit."""
    sent, accepted, bare, comments, commits = list[float](), list[float](), list[float](), list[float](), list[float]()
    with (
        BareTmux(folder / "bare", log) as terminal,
        BareDatabase(folder / "bare.db") as disk,
        HTTPConnection.unix(box) as line,
    ):
        for number in range(MESSAGE_COUNT):
            name = names[number % len(names)]
            begun = time.time()
            _send(line, name, f"sent{number} {TEXT}")
            accepted.append(time.time() - begun)
            sent.append(wait_until_read(log, f"sent{number} ") - begun)
            bare.append(terminal.send(f"bare{number} {TEXT}", f"bare{number}"))
            begun = comment(box, name, f"told{number}")
            comments.append(wait_until_read(log, f"told{number}: ") - begun)
            commits.append(disk.commit(TEXT))
    pause = f"{ENTER_DELAY * 1e3:.0f} of each wait for Enter"
    for title, times, must, stretch in (
        ("message sent → in the agent's log ÷ bare tmux", sent, 1.3, 1.1),
        ("comment → reaction → in the agent's log ÷ bare tmux", comments, 1.5, 1.2),
    ):
        ratio, spread = ratios(times, bare)
        note = f"{_ms(times)} ÷ {_ms(bare)}; {pause}"
        yield Figure(title, ratio, must, note=note, stretch=stretch, spread=spread)
    note = f"a bare commit of SQLite, `synchronous=FULL`, on the same disk: {_ms(commits)}"
    yield Figure(
        "message answered, which is when it is on the disk",
        statistics.median(accepted) * 1e3,
        50,
        "ms",
        note=note,
        stretch=20,
        spread=_in_ms(accepted),
    )


def _send(line: HTTPConnection, name: str, text: str) -> None:
    body = json.dumps({"content": text}).encode()
    head = (
        f"POST /api/sessions/app-{name}/message HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    status, answer = line.send(head.encode() + body)
    if status != 202:
        raise RuntimeError(f"a message was answered with {status}: {answer.decode()}")


def _ms(times: Sequence[float]) -> str:
    return f"{statistics.median(times) * 1e3:.3g} ms"


def _in_ms(times: Sequence[float]) -> tuple[float, float]:
    first, third = quartiles(times)
    return first * 1e3, third * 1e3


class BareDatabase:
    """A bare SQLite database with the same durability as ours."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("CREATE TABLE said (text TEXT)")

    def __enter__(self) -> BareDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def commit(self, text: str) -> float:
        """Commit one row; return the seconds."""
        begun = time.perf_counter()
        self._database.execute("INSERT INTO said VALUES (?)", (text,))
        return time.perf_counter() - begun

    def durability(self) -> tuple[str, int]:
        """Return the journal's mode and `synchronous` (2 is FULL)."""
        (mode,), (level,) = (
            self._database.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous")
        )
        return str(mode), int(level)
