"""Daemons for the fault simulator: with an adjustable clock, forked from a process that has imported everything.

A daemon's wall clock is that of the machine plus an offset in a file (`OffsetClock`). Every start and end is recorded, so that the daemons
need not be asked how many of them run.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLOCK_VARIABLE = "AO_FAULTS_CLOCK"
_machine_time = time.time
_shift: mmap.mmap | None = None


class OffsetClock:
    """A world's clock, as an offset in seconds from the machine's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(struct.pack("d", 0.0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)

    @property
    def offset(self) -> float:
        return float(struct.unpack("d", self._map[:8])[0])

    def set_offset(self, offset: float) -> None:
        self._map[:8] = struct.pack("d", offset)

    def now(self) -> float:
        """Return the time as a daemon of this world sees it."""
        return _machine_time() + self.offset


def _shifted() -> float:
    return _machine_time() + (struct.unpack("d", _shift[:8])[0] if _shift is not None else 0.0)


def _use_clock_of(env: Mapping[str, str]) -> None:
    global _shift
    if path := env.get(CLOCK_VARIABLE):
        with Path(path).open("r+b") as file:
            _shift = mmap.mmap(file.fileno(), 8)


@dataclass(slots=True)
class StartedDaemon:
    """A started daemon, with the interface of `subprocess.Popen`."""

    pid: int
    exit_codes_folder: Path
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        if self.returncode is None:
            try:
                self.returncode = int((self.exit_codes_folder / str(self.pid)).read_text())
            except (OSError, ValueError):
                return None
        return self.returncode

    def wait(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("daemon", timeout)
            time.sleep(0.005)
        return code


class Launcher:
    """Starts the daemons of one world; with `fresh` each one imports everything itself, as in production."""

    def __init__(self, folder: Path, *, fresh: bool) -> None:
        self.ends = folder / "ends"
        self.ends.mkdir()
        self.fresh = fresh
        self.started: list[StartedDaemon] = []
        self._lock = threading.Lock()
        if not fresh:
            _parent()

    def launch(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> StartedDaemon:
        request = json.dumps([list(argv), dict(env), str(log), str(self.ends)]).encode() + b"\n"
        with self._lock:
            parent = _start() if self.fresh else _parent()
            assert parent.stdin is not None and parent.stdout is not None
            parent.stdin.write(request)
            parent.stdin.flush()
            daemon = StartedDaemon(int(parent.stdout.readline()), self.ends)
            if self.fresh:
                parent.stdin.close()
                parent.stdout.close()
                parent.wait()
            self.started.append(daemon)
        return StartedDaemon(daemon.pid, self.ends)  # a separate object: its `returncode` is not shared

    def live(self) -> list[int]:
        """Return the pids of the daemons that have not ended."""
        return [daemon.pid for daemon in self.started if daemon.poll() is None]

    def close(self) -> None:
        for pid in self.live():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for daemon in self.started:
            daemon.wait(10)


_parents: dict[int, subprocess.Popen[bytes]] = {}


def _parent() -> subprocess.Popen[bytes]:
    own_pid = os.getpid()
    if own_pid not in _parents:
        _parents[own_pid] = _start()
        atexit.register(_end, own_pid)
    return _parents[own_pid]


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.faults.daemons"]
    parent = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()  # wait for the imports: on a busy machine they exceed the time limit of a start
    return parent


def _end(own_pid: int) -> None:
    if own_pid == os.getpid():
        with _parents[own_pid]:  # closes its standard input, by which it ends
            pass


def _serve(argv: Sequence[str], env: Mapping[str, str], log: str) -> int:
    from agent_orchestrator.daemon import __main__ as daemon

    os.setsid()
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:  # the disk is full or read-only: then the command line does not start one either
        return 1
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard, end in enumerate((nothing, nothing, out)):
        os.dup2(end, standard)
    os.chdir(env["AO_HOME"])
    os.environ.clear()
    os.environ.update(env)
    _use_clock_of(env)
    sys.argv = ["agent_orchestrator.daemon", *argv]
    return daemon.main()


def _supervise(argv: Sequence[str], env: Mapping[str, str], log: str, ends: str) -> None:
    """Start a daemon and record its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _serve(argv, env, log)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.write(1, b"%d\n" % pid)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    _, status = os.waitpid(pid, 0)
    draft = Path(ends, f"{pid}.new")
    try:
        draft.write_text(str(os.waitstatus_to_exitcode(status)))
        draft.replace(Path(ends, str(pid)))
    finally:
        os._exit(0)


def main() -> None:
    """Start a daemon for every line of standard input."""
    time.time = _shifted
    from agent_orchestrator.daemon import __main__ as daemon

    assert daemon
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(1, b"\n")
    for line in sys.stdin.buffer:
        request: Any = json.loads(line)
        if os.fork() == 0:
            _supervise(*request)


if __name__ == "__main__":
    main()
