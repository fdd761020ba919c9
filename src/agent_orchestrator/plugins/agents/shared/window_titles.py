"""Reads the window titles that a CLI sets, from the log of its terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent_orchestrator.protocols import ReportBatch, RunningLaunch
from agent_orchestrator.protocols.reports import Report

MAX_READ_BYTES = 4 * 1024 * 1024
"""The number of bytes of the log that are read if it was not read before."""
MAX_TITLE_BYTES = 1024

_TITLE = re.compile(rb"\x1b\][02];([^\x07\x1b\n]*)(?:\x07|\x1b\\)")


@dataclass(frozen=True, slots=True)
class WindowTitle:
    """A title, and where in the log it was set."""

    text: str
    start: int
    end: int


class WindowTitleReader:
    """The titles set since the last read, also one by an earlier daemon."""

    cursor_name = "title"

    def __init__(self, run: RunningLaunch, begin: int = 0) -> None:
        """Nothing before `begin` counts: an earlier launch printed it."""
        self._log = run.log
        self._offset = max(begin, run.cursors.get(self.cursor_name, 0))
        run.changes.watch(run.log)

    def read(self) -> Iterator[WindowTitle]:
        """Yield the new titles."""
        try:
            with self._log.open("rb") as file:
                size = file.seek(0, 2)
                start = max(self._offset if self._offset <= size else 0, size - MAX_READ_BYTES)
                file.seek(start)
                data = file.read()
        except OSError:
            return
        last_end = 0
        for match in _TITLE.finditer(data):
            last_end = match.end()
            yield WindowTitle(match[1].decode(errors="replace").strip(), start + match.start(), start + match.end())
        open_start = data.rfind(b"\x1b]", last_end)
        rest = open_start if open_start >= 0 and len(data) - open_start < MAX_TITLE_BYTES else len(data)
        if data.endswith(b"\x1b"):
            rest = min(rest, len(data) - 1)
        self._offset = start + rest

    def make_batch(self, title: WindowTitle, *reports: Report) -> ReportBatch:
        """Return the reports of a title with its position, so that they are recorded once."""
        return ReportBatch(reports, "title", self.cursor_name, title.start, title.end)
