"""The entry point of the scripted agent."""

from __future__ import annotations

import os
import signal
import sys

from .directives import DirectedAgent
from .output import ProgramExit, record


def _on_wakeup(_signal: int, _frame: object) -> None:
    """Do nothing; the signal wakes `Keyboard.poll`, which checks what happened."""


def _on_end(number: int, _frame: object) -> None:
    raise ProgramExit(128 + number)


def main() -> int:
    """Run the agent and return its exit code."""
    resume = "--resume" in sys.argv[1:] or os.environ.get("AO_RESUME") == "1"
    signal.signal(signal.SIGINT, _on_wakeup)
    signal.signal(signal.SIGCHLD, _on_wakeup)
    signal.signal(signal.SIGTERM, _on_end)
    signal.signal(signal.SIGHUP, _on_end)
    record("start", resume=resume, session=os.environ.get("AO_SESSION", ""))
    agent = DirectedAgent()
    code = 0
    try:
        agent.run(resume=resume)
    except ProgramExit as end:
        code = end.code
    finally:
        agent.end_child()
        agent.keyboard.close()
    record("end", code=code)
    return code
