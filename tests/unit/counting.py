"""How much is done, whatever the machine."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


def calls(work: Any) -> int:
    """Calls of our own functions that a piece of work makes."""
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
