"""One line of a health check, as `ao doctor` shows it."""

from __future__ import annotations

from typing import Any

Finding = dict[str, Any]


def finding(name: str, state: str, detail: str, remedy: str = "") -> Finding:
    """One line of what the doctor found."""
    return {"name": name, "state": state, "detail": detail, "remedy": remedy or None}
