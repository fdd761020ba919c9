"""The log of the daemon and of a node's worker: one line an entry, with time and level and no secret.

To be imported before anything else that logs: structlog loads `rich`, where it is installed, to draw on terminals, which
takes as much memory as everything that the daemon itself says about sessions.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, TextIO, cast

from agent_orchestrator.redaction import KNOWN

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


class _Lossy:
    """A log that cannot be written, on a full disk say, stops nobody: what cannot be said now is not said."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream  # which stays open with it

    def write(self, text: str) -> int:
        with suppress(OSError):
            os.write(self._stream.fileno(), text.encode(errors="backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Close what is written to."""
        self._stream.close()


def set_up(stream: TextIO) -> None:
    """Write what is logged there, our own and what libraries say."""
    lossy = cast("TextIO", _Lossy(stream))
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
