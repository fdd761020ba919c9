"""The unchanged daemon with a pulse that records how late its event loop is and how many tasks it has.

    python -m benchmarks.load.daemon …      as `python -m agent_orchestrator.daemon …`

`$AO_LOAD_PULSE` names the output file, one JSON object per line. With `$AO_LOAD_STACKS`, a thread also records the stack
of the event loop when it is late.
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

BEAT_INTERVAL = 0.02
LATE_AFTER = 0.05
SHORT_COLLECTION = 0.01
"""Seconds of a garbage collection that are not recorded."""
TASK_INTERVAL = 2.0
"""Seconds between two records of the number of tasks."""


class Pulse:
    """Records the daemon's event loop as long as it runs."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._beat_at = time.monotonic()
        self._collecting = 0.0

    def on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Record each long garbage collection."""
        if phase == "start":
            self._collecting = time.thread_time()
        elif (seconds := time.thread_time() - self._collecting) > SHORT_COLLECTION:
            self._write(collected=seconds, generation=info["generation"])

    async def beat(self) -> None:
        """Record each late beat, with the CPU time of the loop meanwhile: without it, the loop waited for a core."""
        reported_at = 0.0
        while True:
            due, cpu_before = time.monotonic() + BEAT_INTERVAL, time.thread_time()
            await asyncio.sleep(BEAT_INTERVAL)
            self._beat_at = now = time.monotonic()
            if now - due > LATE_AFTER:
                self._write(late=now - due, worked=time.thread_time() - cpu_before)
            if now - reported_at > TASK_INTERVAL:
                reported_at = now
                self._write(tasks=len(asyncio.all_tasks()))

    def _write(self, **values: object) -> None:
        self._file.write(json.dumps({"at": time.time(), **values}) + "\n")
        self._file.flush()

    def watch(self, thread_id: int) -> None:
        """Record the stack of the loop's thread whenever its beat is overdue."""
        while True:
            time.sleep(BEAT_INTERVAL)
            if time.monotonic() - self._beat_at > BEAT_INTERVAL + LATE_AFTER and (
                frame := sys._current_frames().get(thread_id)
            ):
                self._write(
                    stack=[
                        f"{frame_summary.name} {Path(frame_summary.filename).name}:{frame_summary.lineno}"
                        for frame_summary in traceback.extract_stack(frame)
                    ]
                )


def main() -> int:
    """Run the daemon with the pulse."""
    original_run = __main__._run

    async def run_with_pulse(home: Home, options: argparse.Namespace, watchdog: Watchdog) -> None:
        if os.environ.get("AO_LOAD_STACKS"):
            threading.Thread(target=pulse.watch, args=(threading.get_ident(),), daemon=True).start()
        beat_task = asyncio.create_task(pulse.beat())
        try:
            await original_run(home, options, watchdog)
        finally:
            beat_task.cancel()

    __main__._run = run_with_pulse
    with Path(os.environ["AO_LOAD_PULSE"]).open("a") as file:
        pulse = Pulse(file)
        gc.callbacks.append(pulse.on_collection)
        try:
            return __main__.main()
        finally:
            gc.callbacks.remove(pulse.on_collection)


if __name__ == "__main__":
    sys.exit(main())
