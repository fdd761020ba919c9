"""What the scripted agent tells others: reports to the orchestrator, records for tests, and text on its terminal."""

from __future__ import annotations

import json
import os
import time


class Ended(Exception):
    """The program is to end with this exit code."""

    def __init__(self, code: int) -> None:
        self.code = code


def append(path: str, record: dict[str, object]) -> None:
    """Append one JSON line with a single write, so that lines of several writers never mix."""
    if not path:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(record).encode() + b"\n")
    finally:
        os.close(descriptor)


def report(event: str, **data: object) -> None:
    """Report to the orchestrator."""
    append(os.environ.get("AO_SPOOL", ""), {"event": event, **data})


def record(event: str, **data: object) -> None:
    """Write down for tests what really happened."""
    append(os.environ.get("AO_DEMO_LOG", ""), {"event": event, "pid": os.getpid(), "time": time.time(), **data})


def show(text: str | bytes) -> None:
    """Print to the terminal, at once."""
    left = text.encode(errors="replace") if isinstance(text, str) else text
    try:
        while left:
            left = left[os.write(1, left) :]
    except OSError:
        raise Ended(1) from None


def lines_of(path: str) -> list[dict[str, str]]:
    """The JSON objects in a file of lines; none if it is not there."""
    found = []
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than this program to start
            for line in file:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
    except OSError:
        return []
    return [line for line in found if isinstance(line, dict)]
