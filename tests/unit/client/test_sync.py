"""The Python API without `async`, from several threads."""

from __future__ import annotations

import subprocess
import sys

CONCURRENT_PROGRAM = """
import asyncio, sys, threading
from agent_orchestrator import sync

sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def run():
    together.wait()
    sync._wait(asyncio.sleep(0))

threads = [threading.Thread(target=run) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(sum(thread.name == "ao-loop" for thread in threading.enumerate()))
"""


def test_threads_starting_at_the_same_time_share_a_loop() -> None:
    """An object created in one thread is used by others, and its connection belongs to one loop."""
    completed = subprocess.run([sys.executable, "-c", CONCURRENT_PROGRAM], capture_output=True, text=True, check=False)
    assert (completed.stdout.strip(), completed.stderr) == ("1", "")
