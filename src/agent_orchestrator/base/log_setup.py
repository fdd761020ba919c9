"""The log of the daemon and of a node's worker: one line per entry, with time and level, without secrets.

Import this module before anything else that logs: structlog loads `rich`, where it is installed, to draw on
terminals, which takes as much memory as everything that the daemon itself keeps about sessions.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from agent_orchestrator.base.text.redaction import REDACTOR

if TYPE_CHECKING:
    import structlog
elif "structlog" in sys.modules or "rich" in sys.modules:
    structlog = import_module("structlog")
else:
    sys.modules["rich"] = None  # makes an import of it fail
    try:
        structlog = import_module("structlog")
    finally:
        del sys.modules["rich"]

get_logger = structlog.get_logger

MAX_LOG_BYTES = 10_000_000
"""Bytes after which the log file is rotated."""
MAX_ROTATED_FILES = 4
"""How many rotated files are kept."""

_KEY_ORDER = ["timestamp", "level", "event", "session"]
_CONTROL_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\t"}
"""Control characters, which would end a line or control the terminal that shows it, → their escaped form."""


class _Formatter(logging.Formatter):
    """Formats what libraries log in the same form as our own entries, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        timestamp = (
            datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        )
        entry = {"timestamp": timestamp, "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _render(None, "", {**entry, "logger": record.name})


def _render(_logger: object, _method: str, entry: structlog.typing.EventDict) -> str:
    """Return an entry as one line, with secrets replaced and control characters escaped."""
    line = structlog.processors.LogfmtRenderer(key_order=_KEY_ORDER, drop_missing=True, bool_as_flag=False)
    return REDACTOR.redact_text(line(None, "", entry)).translate(_CONTROL_ESCAPES)


class RotatingLog:
    """A rotating log stream; lines that cannot be written, for example on a full disk, are dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream  # keep a reference, so that it stays open
        self._path: Path | None = None
        self._max_bytes, self._max_rotated = MAX_LOG_BYTES, MAX_ROTATED_FILES
        self._rotation_lock = threading.Lock()

    def write(self, text: str) -> int:
        with suppress(OSError):
            os.write(self._stream.fileno(), text.encode(errors="backslashreplace"))
            self._rotate_if_full()
        return len(text)

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def close(self) -> None:
        """Close the underlying stream."""
        self._stream.close()

    def enable_rotation(self, path: Path, most: int = MAX_LOG_BYTES, kept: int = MAX_ROTATED_FILES) -> None:
        """From now on rotate the file when it is full, and keep only `kept` older ones; standard error follows to the
        new file.

        Only one process may do so. Other processes that have the file open go on writing to the rotated one.
        Windows does not allow to rename an open file: there it only grows.
        """
        if os.name == "posix":
            self._path, self._max_bytes, self._max_rotated = path, most, kept
            with suppress(OSError):
                self._rotate_if_full()

    def _rotate_if_full(self) -> None:
        """Rotate the file if it is full."""
        if self._path and self._is_full():
            with self._rotation_lock:
                if self._is_full():  # not rotated by another thread meanwhile
                    self._rotate(self._path)

    def _is_full(self) -> bool:
        """Return whether the file has reached its maximum size."""
        return os.fstat(self._stream.fileno()).st_size >= self._max_bytes

    def _rotate(self, path: Path) -> None:
        """Rename the older files and the current one, and redirect the stream and standard error to a new file."""
        if path.exists() and os.path.samestat(path.stat(), os.fstat(self._stream.fileno())):
            for number in range(self._max_rotated - 1, 0, -1):
                with suppress(FileNotFoundError):
                    path.with_name(f"{path.name}.{number}").replace(path.with_name(f"{path.name}.{number + 1}"))
            path.replace(path.with_name(f"{path.name}.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            os.dup2(descriptor, self._stream.fileno(), inheritable=False)
            os.dup2(descriptor, 2)
        finally:
            os.close(descriptor)


def set_up(stream: TextIO) -> RotatingLog:
    """Write everything that is logged to this stream: our own entries and those of libraries. Returns the rotating stream."""
    written = RotatingLog(stream)
    lossy = cast("TextIO", written)
    handler = logging.StreamHandler(lossy)
    handler.setFormatter(_Formatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=lossy),
    )
    return written
