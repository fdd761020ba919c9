"""The scripted agent's output: reports to the orchestrator, records for tests, and text on its terminal."""

from __future__ import annotations

import json
import os
import time


class ProgramExit(Exception):
    """Raised to end the program with this exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


def append(path: str, record: dict[str, object]) -> None:
    """Append one JSON line with a single write, so that lines of concurrent writers do not mix; no effect without a path."""
    if not path:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(record).encode() + b"\n")
    finally:
        os.close(descriptor)


def report(event: str, **data: object) -> None:
    """Report an event to the orchestrator."""
    append(os.environ.get("AO_SPOOL", ""), {"event": event, **data})


def record(event: str, **data: object) -> None:
    """Record an event for tests."""
    append(os.environ.get("AO_DEMO_LOG", ""), {"event": event, "pid": os.getpid(), "time": time.time(), **data})


def show(text: str | bytes) -> None:
    """Write text to the terminal without buffering; raise `ProgramExit` if it is gone."""
    remaining = text.encode(errors="replace") if isinstance(text, str) else text
    try:
        while remaining:
            remaining = remaining[os.write(1, remaining) :]
    except OSError:
        raise ProgramExit(1) from None


def read_json_lines(path: str) -> list[dict[str, str]]:
    """Return the JSON objects in a file of lines, or an empty list if it does not exist."""
    records = []
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than this program to start
            for line in file:
                try:
                    records.append(json.loads(line))
                except ValueError:
                    continue
    except OSError:
        return []
    return [line for line in records if isinstance(line, dict)]
