"""Reading the files of JSON lines that agents keep: transcripts, rollouts, what hooks appended."""

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

from agent_orchestrator.base.files.safe import plain
from agent_orchestrator.plugins.agents.shared.spool import SpoolReader
from agent_orchestrator.protocols import AgentRun, Heard
from agent_orchestrator.protocols.reports import Report

LONGEST_LINE = 32 * 1024 * 1024
MOST_PAST = 128 * 1024 * 1024
"""Bytes that are read again at once: an agent can make a journal of any length."""
AT_ONCE = 500
"""Lines that are read in one turn of the event loop."""
MOST_BESIDE = 500
"""Journals in one folder that are read."""
_MOST_ENTRIES = 20 * MOST_BESIDE


@dataclass(frozen=True, slots=True)
class Line:
    """One JSON object of a journal, and where it stands."""

    data: dict[str, Any]
    start: int
    end: int


class Journal:
    """A file of JSON lines that grows, read on from where an earlier reading left it."""

    def __init__(self, path: Path, run: AgentRun, source: str = "transcript") -> None:
        self.path = path
        self.place = path.name.replace(":", "-")
        self.source = source
        self._reader = SpoolReader(path, run.cursors.get(self.place, 0), LONGEST_LINE)
        run.changes.watch(path)

    async def lines(self) -> AsyncIterator[Line]:
        """The complete lines that came since; what is no JSON object is passed over. Of many, others have their turn in between."""
        while True:
            read = self._reader.read()
            ends = [*[offset for offset, _ in read[1:]], self._reader.offset][: len(read)]
            for number, ((start, line), end) in enumerate(zip(read, ends, strict=True), 1):
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
                try:
                    data = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(data, dict):
                    yield Line(data, start, end)
            if not self._reader.more:
                return
            await asyncio.sleep(0)

    def heard(self, line: Line, *reports: Report) -> Heard:
        """What a line says, told once however often it is read."""
        return Heard(reports, self.source, self.place, line.start, line.end)


def past_lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The lines between two places of a journal, of very much the last; raises `NotPlain`, or the system's own error."""
    with plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        end = size if end is None else min(end, size)
        file.seek(max(start, end - MOST_PAST))
        while file.tell() < end and (line := file.readline(LONGEST_LINE)):
            yield line


def journals_in(folder: Path, known: Collection[Path] = ()) -> list[Path]:
    """The journals of a folder by their names, those that are known among them. An agent can make them without end: no more are told."""
    listed = {path for path in entries_in(folder) if path.name.endswith(".jsonl")}
    new = sorted(listed.difference(known))[: max(0, MOST_BESIDE - len(known))]
    return sorted((*known, *new))


def entries_in(*folders: Path) -> list[Path]:
    """What folders have in them. An agent can fill them without end: no more is looked at."""
    return list(islice(chain.from_iterable(map(_listed, folders)), _MOST_ENTRIES))


def _listed(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from (folder / entry.name for entry in entries)
    except OSError:
        return


def latest(paths: Iterable[Path]) -> list[Path]:
    """The journals that changed last, the latest at the end."""
    return sorted(paths, key=_changed)[-MOST_BESIDE:]


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def in_pattern(conversation: str) -> str:
    """A conversation's id within a pattern of names. Its agent says what it is: it stands for itself, and for nothing in other folders."""
    return glob.escape(PurePath(conversation).name)


def size_of(path: Path) -> int:
    """How long a journal is by now; nothing, where it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def moment(value: object) -> datetime | None:
    """An ISO 8601 time, as journals have it."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
