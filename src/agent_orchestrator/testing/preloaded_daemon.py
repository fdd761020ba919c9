"""Daemons that need not import anything any more: forked from a process that has, for those who start hundreds of them.

    sandbox.launch = preloaded.launch

What runs is the daemon itself, with an environment and a session of its own; only the import is shared, which is most of a start's
cost. The process that they are forked from is started with the first one and ends with the program that asked for it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from agent_orchestrator.client.daemon_client import alive


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that is nobody's child here."""

    pid: int

    def wait(self, timeout: float) -> None:
        """Return when it has ended; `TimeoutExpired` if it does not in time."""
        end = time.monotonic() + timeout
        while alive(self.pid):
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("daemon", timeout)
            time.sleep(0.005)


def launch(argv: Sequence[str], env: Mapping[str, str]) -> Daemon:
    """Start a daemon with these arguments and exactly this environment."""
    parent = _parent()
    assert parent.stdin is not None and parent.stdout is not None
    parent.stdin.write(json.dumps([list(argv), dict(env)]).encode() + b"\n")
    parent.stdin.flush()
    return Daemon(int(parent.stdout.readline()))


@cache
def _parent() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agent_orchestrator.testing.preloaded_daemon"]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(_end, parent)
    return parent


def _end(parent: subprocess.Popen[bytes]) -> None:
    with parent:  # closes its standard input, by which it ends
        pass


def main() -> None:
    """Fork a daemon for every line of standard input."""
    from agent_orchestrator.daemon import __main__
    from agent_orchestrator.server.route_table import PARTS, load

    for file in PARTS:
        load(file)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever ends is gone at once
    for line in sys.stdin.buffer:
        argv, env = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            os.environ.clear()
            os.environ.update(env)
            sys.argv = ["agent_orchestrator.daemon", *argv]
            os._exit(__main__.main())
        os.write(1, b"%d\n" % pid)


if __name__ == "__main__":
    main()
