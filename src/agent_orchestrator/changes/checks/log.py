"""A check's output: streamed line by line, kept from its start and its end, whatever its length, without secrets."""

from __future__ import annotations

import codecs
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.changes.checks.spec import Limits
from agent_orchestrator.protocols import Report

LONGEST_LINE = 64 << 10


class Log:
    """Takes output as it comes. The file has its first bytes at once; the last ones follow when it is closed."""

    def __init__(self, file: Path, limits: Limits, report: Report) -> None:
        self._limits = limits
        self._report = report
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._secrets = KNOWN.stream()
        self.size = 0
        """Bytes that came, kept or not."""
        self.problem = ""
        """Why the file is not complete, if it is not: the disk is full …"""
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # whoever reads the last run's output reads it to its end
        self._file: BinaryIO = file.open("xb", buffering=0)

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def say(self, line: str) -> None:
        """Add a line of our own."""
        self.write(f"{line}\n".encode(errors="replace"))

    def section(self) -> None:
        """What comes next is another program's: `end` tells of that one alone."""
        self._take(self._secrets.rest())
        if self._line:
            self.say("")
        self._tail.clear()
        self._tail_size = 0

    def write(self, data: bytes) -> None:
        """Take some output."""
        self._take(self._secrets.feed(data))

    def _take(self, data: bytes) -> None:
        room = max(0, self._limits.log_head - self.size)
        if room:
            self._store(data[:room])
            self._stream(data[:room])
            if len(data) >= room:
                self._end_of_stream()
        self.size += len(data)
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._limits.log_tail:
            self._tail_size -= len(self._tail.popleft())

    def end(self, size: int) -> str:
        """The last bytes of the section as text, without a line cut in two."""
        self._take(self._secrets.rest())
        data = b"".join(self._tail)
        text = data[-size:].decode(errors="replace")
        return text if len(data) <= size else text.partition("\n")[2] or text

    def close(self) -> None:
        """Write what was held back, and say what was left out."""
        if self._file.closed:
            return
        self._take(self._secrets.rest())
        beyond = self.size - self._limits.log_head
        if beyond > 0:
            tail = b"".join(self._tail)[-self._limits.log_tail :]
            left_out = beyond - len(tail)
            if left_out > 0:
                self._store(f"\n… {left_out / 1e6:.1f} MB of output left out here …\n".encode())
            self._store(tail[-beyond:])
        if self._line and self.size <= self._limits.log_head:
            self._report(self._line)
            self._line = ""
        self._file.close()

    def _store(self, data: bytes) -> None:
        if self.problem:
            return
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _stream(self, data: bytes) -> None:
        *lines, self._line = (self._line + self._decoder.decode(data)).split("\n")
        for line in lines:
            self._report(line.rstrip("\r"))
        if len(self._line) > LONGEST_LINE:
            self._report(self._line)
            self._line = ""

    def _end_of_stream(self) -> None:
        if self._line:
            self._report(self._line)
            self._line = ""
        self._report("… it prints more than can be shown live; its log will have the end …")
