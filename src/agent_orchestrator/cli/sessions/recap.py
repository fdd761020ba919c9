"""The recap that `ao status` shows on a terminal: what happened since the last look, whose time is kept in the home."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from agent_orchestrator.cli import out
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError

AWAY_SECONDS = 3600.0
"""Seconds since the last look after which a recap is shown."""
_LAST_READ_FILE = "looked.json"


def news_lines(ao: DaemonClient, now: float | None = None) -> list[str]:
    """Return the recap's lines and record this look; no request is sent if nothing was recorded meanwhile."""
    now = time.time() if now is None else now
    last_look = _exchange_last_read(ao.home, now)
    if last_look is None or now - last_look < AWAY_SECONDS or not _database_changed_since(ao.home, last_look):
        return []
    try:
        answer = fetch_recap(ao, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last_look)))
    except AoError:  # the board is what was asked for
        return []
    return recap_lines(answer, f"Since you last looked, {_duration_text(now - last_look)} ago:")


def fetch_recap(ao: DaemonClient, since: str) -> dict[str, Any]:
    """Return what happened in all projects since then."""
    answer: dict[str, Any] = ao.get("/api/recap", {"since": since, "all": 1})
    return answer


def recap_lines(answer: dict[str, Any], heading: str) -> list[str]:
    """Return the recap under a heading, one line each; empty if nothing happened."""
    lines = [out.truncate(f"  {out.one_line(item['text'])}", out.terminal_width()) for item in answer["lines"]]
    return [out.paint(heading, "bold"), *lines, ""] if lines else []


def _exchange_last_read(home: str, now: float) -> float | None:
    """Return the time of this person's last look, and store now in its place."""
    path, person = os.path.join(home, _LAST_READ_FILE), str(os.getuid()) if hasattr(os, "getuid") else "me"
    try:
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        look_times = {str(key): float(value) for key, value in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        look_times = {}
    draft = f"{path}.{os.getpid()}"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(look_times | {person: now}, file)
        os.replace(draft, path)
    except OSError:  # a full disk must not prevent the look
        pass
    return look_times.get(person)


def _database_changed_since(home: str, since: float) -> bool:
    """Return whether the database was written after that time; True if it is not in the home."""
    times = []
    for name in ("ao.db", "ao.db-wal"):
        try:
            times.append(os.stat(os.path.join(home, name)).st_mtime)
        except OSError:
            continue
    return max(times, default=since + 1.0) > since


def _duration_text(seconds: float) -> str:
    hours = seconds / 3600.0
    return f"{hours / 24:.0f} d" if hours >= 48 else f"{hours:.0f} h"
