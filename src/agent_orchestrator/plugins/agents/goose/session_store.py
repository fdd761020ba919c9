"""goose's session store, and what the messages in it say (docs/agents/goose.md)."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import LONGEST, plain

ANSWERS_WITHIN = 2.0
STEPS = 10_000
"""Steps of a query between two looks at the clock."""


def parts_of(content: object) -> list[dict[str, Any]]:
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model calls."""

    id: str
    tool: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.tool} {json.dumps(self.arguments, ensure_ascii=False)}"


def calls_in(parts: list[dict[str, Any]]) -> list[Call]:
    found = []
    for part in parts:
        call = part.get("toolCall") if part.get("type") == "toolRequest" else None
        value = call.get("value") if isinstance(call, dict) else None
        if isinstance(value, dict):
            arguments = value.get("arguments")
            found.append(
                Call(str(part.get("id")), str(value.get("name")), arguments if isinstance(arguments, dict) else {})
            )
    return found


class Store:
    """goose's SQLite file with all sessions of the user; only read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] = ()

    @property
    def journal(self) -> Path:
        """What was written last is here."""
        return self.path.with_name(f"{self.path.name}-wal")

    def changed(self) -> bool:
        """Was something written since the last call?"""
        seen: list[int] = []
        for file in (self.path, self.journal):
            with contextlib.suppress(OSError):
                status = file.stat()
                seen += [status.st_ino, status.st_size, status.st_mtime_ns]
        before, self._seen = self._seen, tuple(seen)
        return before != self._seen

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows; none where it is not there, is locked, is of another kind, or takes too long: agents can put anything into it."""
        try:
            with plain(Path(os.path.realpath(self.path))):
                pass
        except OSError:
            return []
        with contextlib.suppress(sqlite3.Error):
            found = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
            with contextlib.closing(found):
                until = time.monotonic() + ANSWERS_WITHIN
                found.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
                found.set_progress_handler(lambda: time.monotonic() > until, STEPS)
                return found.execute(query, values).fetchall()
        self._seen = ()  # look again at the next chance
        return []

    def find(self, session: str) -> str | None:
        """A session's id, by its id or its name."""
        query = "SELECT id FROM sessions WHERE id = ? OR name = ? ORDER BY id = ? DESC, updated_at DESC LIMIT 1"
        found = self.ask(query, session, session, session)
        return str(found[0][0]) if found else None

    def sums(self, session: str) -> list[float]:
        """What a session has taken so far: tokens in, tokens out, dollars."""
        query = (
            "SELECT CAST(accumulated_input_tokens AS INTEGER), CAST(accumulated_output_tokens AS INTEGER), "
            "CAST(accumulated_cost AS REAL) FROM sessions WHERE id = ?"
        )
        found = self.ask(query, session)
        return [number or 0 for number in found[0]] if found else [0, 0, 0.0]

    def last_row(self) -> int:
        """The number of the last message of all."""
        found = self.ask("SELECT CAST(MAX(id) AS INTEGER) FROM messages")
        return int(found[0][0] or 0) if found else 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where goose keeps its files: the store is the user's own, logs are the session's."""

    store: Store
    state: Path
    logs: Path

    @classmethod
    def of(cls, env: Mapping[str, str], private: Path) -> Place:
        """As the environment says."""
        home = Path(env.get("HOME") or Path.home())
        if root := env.get("GOOSE_PATH_ROOT"):
            state = Path(root) / "state"
            return cls(Store(Path(root) / "data" / "sessions" / "sessions.db"), state, state / "logs")
        data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
        state = private / "goose" / "state"
        return cls(Store(data / "goose" / "sessions" / "sessions.db"), state, state / "goose" / "logs")
