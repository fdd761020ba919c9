"""A terminal for tests: a program in a real PTY whose output is read continuously."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import inspect
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Sequence

_EXEC_IN_SESSION = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"


async def wait_until_true(condition: Callable[[], object | Awaitable[object]], timeout: float = 60.0) -> None:
    """Wait until the condition is true; raise `AssertionError` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return
        assert time.monotonic() < deadline, (
            f"did not come true within {timeout:g} s: {inspect.getsource(condition).strip()}"
        )
        await asyncio.sleep(0.01)


class PersonsTerminal:
    """A terminal with a running program; `output` is everything that the program has written so far."""

    def __init__(self, argv: Sequence[str], columns: int = 100, rows: int = 30) -> None:
        self.output = bytearray()
        self._master, slave = os.openpty()
        self.resize(columns, rows)
        self.initial_mode = self.mode
        """`mode` before the program was started."""
        environment = {
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "HOME": os.environ["HOME"],
        }
        command = [sys.executable, "-I", "-S", "-c", _EXEC_IN_SESSION, *argv]
        self._process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        os.set_blocking(self._master, False)
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            self.output += os.read(self._master, 65536)
        except BlockingIOError:
            return
        except OSError:
            asyncio.get_running_loop().remove_reader(self._master)

    def type(self, keys: bytes) -> None:
        """Type these bytes."""
        os.write(self._master, keys)

    def resize(self, columns: int, rows: int) -> None:
        """Change the window's size."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def mode(self) -> object:
        """The settings of the line discipline, which a program must restore."""
        return termios.tcgetattr(self._master)[:4]

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended."""
        return self._process.poll() is not None

    async def close(self) -> None:
        """Kill the program and close the terminal."""
        asyncio.get_running_loop().remove_reader(self._master)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        os.close(self._master)
