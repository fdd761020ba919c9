"""Times in the answers of forges. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def parse_time(text: Any) -> float:
    """Return an ISO 8601 time as a timestamp, or 0 if it is absent or malformed."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
    except (ValueError, OverflowError):
        return 0.0
