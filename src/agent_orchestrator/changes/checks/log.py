"""The output of a check (`Log`): reported line by line, stored with its start and its end if it is long, without secrets."""

from __future__ import annotations

import codecs
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.changes.checks.spec import Limits
from agent_orchestrator.protocols import LineCallback

MAX_LINE_LENGTH = 64 << 10


class Log:
    """Receives output as it comes. The file contains the first bytes at once; the last bytes are written by `close`."""

    def __init__(self, file: Path, limits: Limits, report: LineCallback) -> None:
        self._limits = limits
        self._report = report
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._secrets = REDACTOR.terminal_filter()
        self.size = 0
        """Number of bytes received, stored or not."""
        self.problem = ""
        """Why the file is incomplete, for example a full disk; "" if it is complete."""
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # a new file, so that a reader of the last run's output can read it to its end
        self._file: BinaryIO = file.open("xb", buffering=0)

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_line(self, line: str) -> None:
        """Add a line of our own."""
        self.write(f"{line}\n".encode(errors="replace"))

    def begin_section(self) -> None:
        """Begin the output of another program; `end` returns only what follows the last call."""
        self._append(self._secrets.finish())
        if self._line:
            self.add_line("")
        self._tail.clear()
        self._tail_size = 0

    def write(self, data: bytes) -> None:
        """Receive output; secrets in it are redacted."""
        self._append(self._secrets.feed(data))

    def _append(self, data: bytes) -> None:
        """Store, report and remember redacted output."""
        room = max(0, self._limits.log_head - self.size)
        if room:
            self._write_file(data[:room])
            self._report_lines(data[:room])
            if len(data) >= room:
                self._end_live_output()
        self.size += len(data)
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._limits.log_tail:
            self._tail_size -= len(self._tail.popleft())

    def tail(self, size: int) -> str:
        """Return the last `size` bytes of the section as text, starting at the beginning of a line."""
        self._append(self._secrets.finish())
        data = b"".join(self._tail)
        text = data[-size:].decode(errors="replace")
        return text if len(data) <= size else text.partition("\n")[2] or text

    def close(self) -> None:
        """Write what was held back and a note of what was left out, and close the file."""
        if self._file.closed:
            return
        self._append(self._secrets.finish())
        beyond = self.size - self._limits.log_head
        if beyond > 0:
            tail = b"".join(self._tail)[-self._limits.log_tail :]
            left_out = beyond - len(tail)
            if left_out > 0:
                self._write_file(f"\n… {left_out / 1e6:.1f} MB of output left out here …\n".encode())
            self._write_file(tail[-beyond:])
        if self._line and self.size <= self._limits.log_head:
            self._report(self._line)
            self._line = ""
        self._file.close()

    def _write_file(self, data: bytes) -> None:
        """Write bytes to the file; after an error `problem` is set and nothing more is written."""
        if self.problem:
            return
        try:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[self._file.write(remaining) :]
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _report_lines(self, data: bytes) -> None:
        """Report the complete lines and keep the incomplete one."""
        *lines, self._line = (self._line + self._decoder.decode(data)).split("\n")
        for line in lines:
            self._report(line.rstrip("\r"))
        if len(self._line) > MAX_LINE_LENGTH:
            self._report(self._line)
            self._line = ""

    def _end_live_output(self) -> None:
        """Report the incomplete line and that live output ends here."""
        if self._line:
            self._report(self._line)
            self._line = ""
        self._report("… it prints more than can be shown live; its log will have the end …")
