"""What happened since you last looked: told once, by `ao status` on a terminal. The moment of the last look is kept in the home."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from agent_orchestrator.cli import out
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError

AWAY = 3600.0
"""Seconds after which you were away; who looks more often than that sees what happens as it happens."""
_FILE = "looked.json"


def news(ao: Client, now: float | None = None) -> list[str]:
    """What is to be told now; and you have looked. Nobody is asked where nothing was recorded meanwhile."""
    now = time.time() if now is None else now
    last = _looked(ao.home, now)
    if last is None or now - last < AWAY or not _recorded(ao.home, last):
        return []
    try:
        found = recap(ao, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last)))
    except AoError:  # the board is what was asked for
        return []
    return recap_lines(found, f"Since you last looked, {_span(now - last)} ago:")


def recap(ao: Client, since: str) -> dict[str, Any]:
    """What happened in all projects since then."""
    found: dict[str, Any] = ao.get("/api/recap", {"since": since, "all": 1})
    return found


def recap_lines(found: dict[str, Any], heading: str) -> list[str]:
    """It, one thing a line, under a heading; nothing if there is nothing."""
    lines = [out.fit(f"  {out.one_line(each['text'])}", out.width()) for each in found["lines"]]
    return [out.paint(heading, "bold"), *lines, ""] if lines else []


def _looked(home: str, now: float) -> float | None:
    """When this person looked last; from now on that is now."""
    path, person = os.path.join(home, _FILE), str(os.getuid()) if hasattr(os, "getuid") else "me"
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
        marks = {str(key): float(value) for key, value in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        marks = {}
    draft = f"{path}.{os.getpid()}"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(marks | {person: now}, file)
        os.replace(draft, path)
    except OSError:  # a disk that is full keeps nobody from looking
        pass
    return marks.get(person)


def _recorded(home: str, since: float) -> bool:
    """Was anything written to the database after that? One that is elsewhere may have been."""
    times = []
    for name in ("ao.db", "ao.db-wal"):
        try:
            times.append(os.stat(os.path.join(home, name)).st_mtime)
        except OSError:
            continue
    return max(times, default=since + 1.0) > since


def _span(seconds: float) -> str:
    hours = seconds / 3600.0
    return f"{hours / 24:.0f} d" if hours >= 48 else f"{hours:.0f} h"
