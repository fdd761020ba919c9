"""The Python API without `async`, from several threads."""

from __future__ import annotations

import subprocess
import sys

TOGETHER = """
import asyncio, sys, threading
from agent_orchestrator import sync

sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def ask():
    together.wait()
    sync._wait(asyncio.sleep(0))

threads = [threading.Thread(target=ask) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(sum(one.name == "ao-loop" for one in threading.enumerate()))
"""


def test_threads_that_are_the_first_together_share_a_loop() -> None:
    """What one thread made is another's to use, and a connection belongs to its loop."""
    done = subprocess.run([sys.executable, "-c", TOGETHER], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("1", "")
