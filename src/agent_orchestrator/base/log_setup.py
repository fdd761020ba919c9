"""The log of the daemon and of a node's worker: one line an entry, with time and level and no secret.

To be imported before anything else that logs: structlog loads `rich`, where it is installed, to draw on terminals, which
takes as much memory as everything that the daemon itself says about sessions.
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

from agent_orchestrator.base.text.redaction import KNOWN

if TYPE_CHECKING:
    import structlog
elif "structlog" in sys.modules or "rich" in sys.modules:
    structlog = import_module("structlog")
else:
    sys.modules["rich"] = None  # which says that it is not there
    try:
        structlog = import_module("structlog")
    finally:
        del sys.modules["rich"]

get_logger = structlog.get_logger

MOST = 10_000_000
"""Bytes after which the log's file is turned over."""
KEPT = 4
"""How many of those before it are kept."""

_ORDER = ["timestamp", "level", "event", "session"]
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\t"}
"""What would end a line, or steer the terminal that shows it, is written as its number."""


class _Formatter(logging.Formatter):
    """What libraries say, in the same form and without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        entry = {"timestamp": at, "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _rendered(None, "", {**entry, "logger": record.name})


def _rendered(_logger: object, _method: str, entry: structlog.typing.EventDict) -> str:
    line = structlog.processors.LogfmtRenderer(key_order=_ORDER, drop_missing=True, bool_as_flag=False)
    return KNOWN.text(line(None, "", entry)).translate(_CONTROL)


class Written:
    """A log that cannot be written, on a full disk say, stops nobody: what cannot be said now is not said."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream  # which stays open with it
        self._path: Path | None = None
        self._most, self._kept = MOST, KEPT
        self._turning = threading.Lock()

    def write(self, text: str) -> int:
        with suppress(OSError):
            os.write(self._stream.fileno(), text.encode(errors="backslashreplace"))
            self._look()
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Close what is written to."""
        self._stream.close()

    def bound(self, path: Path, most: int = MOST, kept: int = KEPT) -> None:
        """From now on turn the file over when it is full, and keep only some of those before; standard error goes along.

        Only one process may do so. Whoever else has the file open goes on in the one that was turned over. Windows does not
        let go of a name that is open: there it only grows.
        """
        if os.name == "posix":
            self._path, self._most, self._kept = path, most, kept
            with suppress(OSError):
                self._look()

    def _look(self) -> None:
        if self._path and self._is_full():
            with self._turning:
                if self._is_full():  # no other thread was faster
                    self._turn_over(self._path)

    def _is_full(self) -> bool:
        return os.fstat(self._stream.fileno()).st_size >= self._most

    def _turn_over(self, path: Path) -> None:
        if path.exists() and os.path.samestat(path.stat(), os.fstat(self._stream.fileno())):
            for number in range(self._kept - 1, 0, -1):
                with suppress(FileNotFoundError):
                    path.with_name(f"{path.name}.{number}").replace(path.with_name(f"{path.name}.{number + 1}"))
            path.replace(path.with_name(f"{path.name}.1"))
        fresh = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fresh, 0o600)
            os.dup2(fresh, self._stream.fileno(), inheritable=False)
            os.dup2(fresh, 2)
        finally:
            os.close(fresh)


def set_up(stream: TextIO) -> Written:
    """Write what is logged there, our own and what libraries say."""
    written = Written(stream)
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
            _rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=lossy),
    )
    return written
