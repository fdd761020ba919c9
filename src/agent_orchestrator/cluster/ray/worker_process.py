"""Our process on a node of a Ray cluster: the Worker of `cluster/node/worker.py`, which outlives the process that started it.

The actor starts it, and sends it the setup (`placer.WorkerSetup` and the node's name) as one line on its standard input, so that no
secret is in its arguments or environment. It then detaches itself, because Ray kills the children of Ray's processes. It continues while
the actor, Ray on this node or Ray's head is gone; it ends by a signal, or when it has had no link to the daemon for `MAX_UNLINKED_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.interpreter import clean_process_environment
from agent_orchestrator.cluster.node.worker import Worker
from agent_orchestrator.errors import AoError, Conflict

STATE_FILE = "ray-worker.json"
"""The file in the node's home that describes this process; read by `actor.py`."""
MAX_UNLINKED_SECONDS = 900.0
"""Seconds without a link to the daemon after which it ends."""
TAKEOVER_TIMEOUT = 5.0
"""Seconds that an earlier Worker has to release the home."""


async def run(setup: dict[str, Any]) -> None:
    """Run the Worker until it is stopped; retry while an earlier one still uses the home."""
    give_up, home = time.monotonic() + TAKEOVER_TIMEOUT, Home(Path(setup["home"]))
    clean_process_environment(os.environ, str(home.programs))
    while True:
        worker = Worker(home, setup["url"], setup["token"], setup["name"], **setup["more"])
        task = asyncio.ensure_future(worker.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        loneliness_check = asyncio.create_task(stop_when_unlinked(worker, task))
        try:
            await task
        except Conflict:  # an earlier Worker is still ending
            if time.monotonic() > give_up:
                raise
        except asyncio.CancelledError:
            return
        finally:
            loneliness_check.cancel()
        await asyncio.sleep(0.1)


async def stop_when_unlinked(worker: Worker, task: asyncio.Future[None]) -> None:
    """Cancel the Worker's task when it has had no link to the daemon for `MAX_UNLINKED_SECONDS`."""
    last_linked = time.monotonic()
    while time.monotonic() - last_linked < MAX_UNLINKED_SECONDS:
        await asyncio.sleep(5.0)
        if worker.linked.is_set():
            last_linked = time.monotonic()
    sys.stderr.write(f"the daemon was not reached for {MAX_UNLINKED_SECONDS:g} s\n")
    task.cancel()


def daemonize(setup: dict[str, Any], digest: str) -> bool:
    """Fork; return False in the parent, which records the child in the state file, and True in the detached child."""
    pid = os.fork()
    if pid:
        process = LocalHost().process(pid)
        state = {"pid": pid, "started": process.started if process else "", "setup": digest}
        path = Path(setup["home"], STATE_FILE)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(state))
        draft.replace(path)
        return False
    os.setsid()
    null_device = os.open(os.devnull, os.O_RDWR)
    os.dup2(null_device, 0)
    os.dup2(null_device, 1)
    return True


def main() -> int:
    """Run the program; return its exit code."""
    line = sys.stdin.buffer.readline()
    if not line or not daemonize(setup := json.loads(line), hashlib.sha256(line.strip()).hexdigest()):
        return 0
    try:
        asyncio.run(run(setup))
    except AoError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
