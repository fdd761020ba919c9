"""Reads the files of JSON lines that agents keep: transcripts, rollouts, what hooks appended."""

from __future__ import annotations

import asyncio
import glob
import json
import os
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any

from agent_orchestrator.base.files.safe import open_regular_file
from agent_orchestrator.plugins.agents.shared.spool import SpoolReader
from agent_orchestrator.protocols import ReportBatch, RunningLaunch
from agent_orchestrator.protocols.reports import Report

MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_REREAD = 128 * 1024 * 1024
"""The number of bytes that are read again at once, since an agent can write a journal of any length."""
LINES_PER_STEP = 500
"""The number of lines that are read before other tasks of the event loop run."""
MAX_JOURNALS = 500
"""The number of journals in one folder that are read."""
_MAX_ENTRIES = 20 * MAX_JOURNALS


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One JSON object of a journal, with the offsets of its beginning and end."""

    data: dict[str, Any]
    start: int
    end: int


class Journal:
    """A growing file of JSON lines, read from where an earlier reader stopped."""

    def __init__(self, path: Path, run: RunningLaunch, source: str = "transcript") -> None:
        self.path = path
        self.cursor_name = path.name.replace(":", "-")
        self.source = source
        self._reader = SpoolReader(path, run.cursors.get(self.cursor_name, 0), MAX_LINE_BYTES)
        run.changes.watch(path)

    async def lines(self) -> AsyncIterator[JournalLine]:
        """Yield the new complete lines that are JSON objects; other tasks run in between."""
        while True:
            raw_lines = self._reader.read()
            ends = [*[offset for offset, _ in raw_lines[1:]], self._reader.offset][: len(raw_lines)]
            for number, ((start, line), end) in enumerate(zip(raw_lines, ends, strict=True), 1):
                if number % LINES_PER_STEP == 0:
                    await asyncio.sleep(0)
                try:
                    data = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(data, dict):
                    yield JournalLine(data, start, end)
            if not self._reader.has_more:
                return
            await asyncio.sleep(0)

    def make_batch(self, line: JournalLine, *reports: Report) -> ReportBatch:
        """Return the reports of a line with its position, so that they are recorded once however often the line is read."""
        return ReportBatch(reports, self.source, self.cursor_name, line.start, line.end)


def past_lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the lines between two offsets of a journal, only the last `MAX_REREAD` bytes; raise `UnsafePath` or `OSError` if it
    cannot be read.
    """
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        end = size if end is None else min(end, size)
        file.seek(max(start, end - MAX_REREAD))
        while file.tell() < end and (line := file.readline(MAX_LINE_BYTES)):
            yield line


def journals_in(folder: Path, previous: Collection[Path] = ()) -> list[Path]:
    """Return the journals of a folder by name, the known ones included, at most `MAX_JOURNALS`: an agent could create any number."""
    journals = {path for path in entries_in(folder) if path.name.endswith(".jsonl")}
    new = sorted(journals.difference(previous))[: max(0, MAX_JOURNALS - len(previous))]
    return sorted((*previous, *new))


def entries_in(*folders: Path) -> list[Path]:
    """Return the entries of folders, up to a limit, since an agent could create any number."""
    return list(islice(chain.from_iterable(map(_list_entries, folders)), _MAX_ENTRIES))


def _list_entries(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            yield from (folder / entry.name for entry in entries)
    except OSError:
        return


def recent_journals(paths: Iterable[Path]) -> list[Path]:
    """Return the `MAX_JOURNALS` journals that changed last, the latest at the end."""
    return sorted(paths, key=_modified_at)[-MAX_JOURNALS:]


def _modified_at(path: Path) -> float:
    """Return the time of a file's last change, 0 if it cannot be read."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def escape_for_glob(conversation: str) -> str:
    """Return a conversation's id for use in a glob pattern, escaped and without folders, since the agent chooses the id."""
    return glob.escape(PurePath(conversation).name)


def size_of(path: Path) -> int:
    """Return the size of a journal in bytes, 0 if it cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def parse_time(value: object) -> datetime | None:
    """Return the time in an ISO 8601 text, taken as UTC without a time zone, or None."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
