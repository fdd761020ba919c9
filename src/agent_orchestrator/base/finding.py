"""One result of a health check, as `ao doctor` shows it."""

from __future__ import annotations

from typing import Any

Finding = dict[str, Any]


def finding(name: str, state: str, detail: str, remedy: str = "") -> Finding:
    """Return one line of the output of `ao doctor`."""
    return {"name": name, "state": state, "detail": detail, "remedy": remedy or None}
