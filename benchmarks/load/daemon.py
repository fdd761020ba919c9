"""The daemon as it is, with a pulse beside it: how late its event loop is, and how many tasks it has.

    python -m benchmarks.load.daemon …      as `python -m agent_orchestrator.daemon …`

`$AO_LOAD_PULSE` names the file for it, one JSON object a line. With `$AO_LOAD_STACKS` a thread also writes down what the
event loop is at when it is late.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TextIO

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.loop_watchdog import Watchdog
from agent_orchestrator.daemon import __main__

BEAT = 0.02
LATE = 0.05
BRIEF = 0.01
"""Seconds of a search for garbage that nobody minds."""
EVERY = 2.0
"""Seconds between two lines."""


class Pulse:
    """Beats as long as the daemon runs."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._beat_at = time.monotonic()
        self._collecting = 0.0

    def collecting(self, phase: str, told: dict[str, int]) -> None:
        """Notes each search for garbage that takes its time."""
        if phase == "start":
            self._collecting = time.thread_time()
        elif (took := time.thread_time() - self._collecting) > BRIEF:
            self._tell(collected=took, generation=told["generation"])

    async def beat(self) -> None:
        """Notes each beat that is late, and whether the loop itself worked meanwhile or had to wait for a core."""
        told_at = 0.0
        while True:
            due, worked = time.monotonic() + BEAT, time.thread_time()
            await asyncio.sleep(BEAT)
            self._beat_at = now = time.monotonic()
            if now - due > LATE:
                self._tell(late=now - due, worked=time.thread_time() - worked)
            if now - told_at > EVERY:
                told_at = now
                self._tell(tasks=len(asyncio.all_tasks()))

    def _tell(self, **what: object) -> None:
        self._file.write(json.dumps({"at": time.time(), **what}) + "\n")
        self._file.flush()

    def watch(self, loop: int) -> None:
        """What the loop's thread is at whenever its beat is overdue."""
        while True:
            time.sleep(BEAT)
            if time.monotonic() - self._beat_at > BEAT + LATE and (frame := sys._current_frames().get(loop)):
                self._tell(
                    stack=[
                        f"{one.name} {Path(one.filename).name}:{one.lineno}" for one in traceback.extract_stack(frame)
                    ]
                )


def main() -> int:
    """Run the daemon with its pulse."""
    real = __main__._run

    async def watched(home: Home, options: argparse.Namespace, watchdog: Watchdog) -> None:
        if os.environ.get("AO_LOAD_STACKS"):
            threading.Thread(target=pulse.watch, args=(threading.get_ident(),), daemon=True).start()
        beating = asyncio.create_task(pulse.beat())
        try:
            await real(home, options, watchdog)
        finally:
            beating.cancel()

    __main__._run = watched
    with Path(os.environ["AO_LOAD_PULSE"]).open("a") as file:
        pulse = Pulse(file)
        gc.callbacks.append(pulse.collecting)
        try:
            return __main__.main()
        finally:
            gc.callbacks.remove(pulse.collecting)


if __name__ == "__main__":
    sys.exit(main())
