"""Our process on a node of Ray's: the Worker of `nodes/`, which outlives whoever started it.

The actor starts it, and tells it what it must know by one line on its standard input (`placer.Setup` and the node's
name): neither arguments nor environment show a secret. It then leaves its family, for Ray ends what its own processes
have started. It works on while the actor, Ray on this node or Ray's head is gone; it ends by a signal, or when the
daemon has not been reached for so long that nobody can want it any more.
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
from agent_orchestrator.base.interpreter import begin_anew
from agent_orchestrator.cluster.node.worker import Worker
from agent_orchestrator.errors import AoError, Conflict

STATE = "ray-worker.json"
ALONE_FOR = 900.0
"""Seconds without a link to the daemon after which it ends."""
TAKES_OVER_WITHIN = 5.0


async def run(setup: dict[str, Any]) -> None:
    """Work until told to end."""
    until, home = time.monotonic() + TAKES_OVER_WITHIN, Home(Path(setup["home"]))
    begin_anew(os.environ, str(home.programs))
    while True:
        worker = Worker(home, setup["url"], setup["token"], setup["name"], **setup["more"])
        task = asyncio.ensure_future(worker.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        lonely = asyncio.create_task(end_when_alone(worker, task))
        try:
            await task
        except Conflict:  # the one before us is still ending
            if time.monotonic() > until:
                raise
        except asyncio.CancelledError:
            return
        finally:
            lonely.cancel()
        await asyncio.sleep(0.1)


async def end_when_alone(worker: Worker, task: asyncio.Future[None]) -> None:
    """End it when the daemon has been away for too long."""
    seen = time.monotonic()
    while time.monotonic() - seen < ALONE_FOR:
        await asyncio.sleep(5.0)
        if worker.linked.is_set():
            seen = time.monotonic()
    sys.stderr.write(f"the daemon was not reached for {ALONE_FOR:g} s\n")
    task.cancel()


def leave_family(setup: dict[str, Any], digest: str) -> bool:
    """Go on as a child of nobody's; the parent writes down who that is, and is to end."""
    pid = os.fork()
    if pid:
        process = LocalHost().process(pid)
        state = {"pid": pid, "started": process.started if process else "", "setup": digest}
        path = Path(setup["home"], STATE)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(state))
        fresh.replace(path)
        return False
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return True


def main() -> int:
    """The program."""
    line = sys.stdin.buffer.readline()
    if not line or not leave_family(setup := json.loads(line), hashlib.sha256(line.strip()).hexdigest()):
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
