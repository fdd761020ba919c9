"""The log of the daemon and of a node's worker: one line an entry, with time and level and no secret.

To be imported before anything else that logs: structlog loads `rich`, where it is installed, to draw on terminals, which
takes as much memory as everything that the daemon itself says about sessions.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

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


class _Formatter(logging.Formatter):
    """Without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return KNOWN.text(super().format(record))


def set_up(stream: TextIO) -> None:
    """Write what is logged there, our own and what libraries say."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False),
            lambda _logger, _level, line: KNOWN.text(str(line)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
    )
