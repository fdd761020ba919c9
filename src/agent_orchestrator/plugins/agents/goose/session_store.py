"""Reads goose's session store and parses the messages in it (docs/agents/goose.md)."""

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

from agent_orchestrator.base.files.safe import MAX_FILE_BYTES, open_regular_file

QUERY_TIMEOUT = 2.0
STEPS_PER_TIMEOUT_CHECK = 10_000
"""The number of steps of a query between two checks of the time limit."""


def parts_of(content: object) -> list[dict[str, Any]]:
    """Return the parts of a message's content, empty if it is not a list."""
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


@dataclass(frozen=True, slots=True)
class GooseToolCall:
    """A tool call of the model."""

    id: str
    tool: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the call as text for a terminal."""
        return f"{self.tool} {json.dumps(self.arguments, ensure_ascii=False)}"


def calls_in(parts: list[dict[str, Any]]) -> list[GooseToolCall]:
    """Return the tool calls among the parts of a message."""
    calls = []
    for part in parts:
        call = part.get("toolCall") if part.get("type") == "toolRequest" else None
        value = call.get("value") if isinstance(call, dict) else None
        if isinstance(value, dict):
            arguments = value.get("arguments")
            calls.append(
                GooseToolCall(
                    str(part.get("id")), str(value.get("name")), arguments if isinstance(arguments, dict) else {}
                )
            )
    return calls


class GooseStore:
    """goose's SQLite file with all sessions of the user, opened read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._signature: tuple[int, ...] = ()

    @property
    def journal(self) -> Path:
        """Return the path of the write-ahead log, which has what was written last."""
        return self.path.with_name(f"{self.path.name}-wal")

    def has_changed(self) -> bool:
        """Return whether the store was written since the last call."""
        signature: list[int] = []
        for file in (self.path, self.journal):
            with contextlib.suppress(OSError):
                status = file.stat()
                signature += [status.st_ino, status.st_size, status.st_mtime_ns]
        earlier, self._signature = self._signature, tuple(signature)
        return earlier != self._signature

    def query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query; none if the file is missing, locked, of another kind or too slow, since agents can put
        anything into it.
        """
        try:
            with open_regular_file(Path(os.path.realpath(self.path))):
                pass
        except OSError:
            return []
        with contextlib.suppress(sqlite3.Error):
            connection = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)
            with contextlib.closing(connection):
                deadline = time.monotonic() + QUERY_TIMEOUT
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_FILE_BYTES)
                connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_PER_TIMEOUT_CHECK)
                return connection.execute(query, values).fetchall()
        self._signature = ()  # so that the next call of `changed` returns True
        return []

    def find(self, session: str) -> str | None:
        """Return a session's id given its id or name, or None."""
        query = "SELECT id FROM sessions WHERE id = ? OR name = ? ORDER BY id = ? DESC, updated_at DESC LIMIT 1"
        rows = self.query(query, session, session, session)
        return str(rows[0][0]) if rows else None

    def usage_totals(self, session: str) -> list[float]:
        """Return a session's usage so far: input tokens, output tokens, dollars."""
        query = (
            "SELECT CAST(accumulated_input_tokens AS INTEGER), CAST(accumulated_output_tokens AS INTEGER), "
            "CAST(accumulated_cost AS REAL) FROM sessions WHERE id = ?"
        )
        rows = self.query(query, session)
        return [number or 0 for number in rows[0]] if rows else [0, 0, 0.0]

    def last_row(self) -> int:
        """Return the number of the last message of all sessions."""
        rows = self.query("SELECT CAST(MAX(id) AS INTEGER) FROM messages")
        return int(rows[0][0] or 0) if rows else 0


@dataclass(frozen=True, slots=True)
class GooseFolders:
    """Where goose keeps its files: the store is the user's, logs belong to the session."""

    store: GooseStore
    state: Path
    logs: Path

    @classmethod
    def from_environment(cls, env: Mapping[str, str], private: Path) -> GooseFolders:
        """Return the places by the environment's variables."""
        home = Path(env.get("HOME") or Path.home())
        if root := env.get("GOOSE_PATH_ROOT"):
            state = Path(root) / "state"
            return cls(GooseStore(Path(root) / "data" / "sessions" / "sessions.db"), state, state / "logs")
        data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
        state = private / "goose" / "state"
        return cls(GooseStore(data / "goose" / "sessions" / "sessions.db"), state, state / "goose" / "logs")
