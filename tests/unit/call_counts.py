"""Count the work that is done, independent of the machine's speed."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


def count_calls(work: Any) -> int:
    """Return the number of calls of our own functions during some work."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call" and "agent_orchestrator" in frame.f_code.co_filename

    sys.setprofile(trace)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
