"""Start daemons and commands quickly by forking a process that has imported everything, for tests that start thousands.

    sandbox.launch = preloaded.launch
    sandbox.run_command = preloaded.run_command

Each is the real daemon or `ao` with its own environment, folder and standard streams; only the imports are shared, which are most of
the cost of a start. The parent process starts with the first use and ends with the program that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

from agent_orchestrator.base.processes import is_process_running
from agent_orchestrator.testing import sandbox

_STARTUP_VARIABLES = ("PYTHON", "LC_", "LANG")
"""Prefixes of the variables that Python reads only when it starts."""
_TIMEOUT = 600.0
_HEADER_BYTES = 8
_NOT_PRELOADED = frozenset({"top"})
"""Commands that need large libraries which no other command uses."""
_PACKAGES = (
    "changes.checks",
    "cluster.link",
    "cluster.daemon",
    "plugins.forges.local",
    "plugins.runtimes",
    "plugins.workspaces",
)
"""Packages that a daemon imports when it is first needed, which is soon."""
_LIBRARIES = (
    "encodings.idna",
    "importlib.readers",
    "jeepney.io.blocking",
    "jinja2.sandbox",
    "pyte",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
    "wakepy.dbus_adapters.jeepney",
    "websockets.server",
)
"""Libraries of which that is true too."""


@dataclass(frozen=True, slots=True)
class ForkedDaemon:
    """A forked daemon, which is not a child of this process."""

    pid: int

    def wait(self, timeout: float) -> None:
        """Wait until it has ended; raise `TimeoutExpired` if it does not in time."""
        end = time.monotonic() + timeout
        while is_process_running(self.pid):
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("daemon", timeout)
            time.sleep(0.005)


def launch(argv: Sequence[str], env: Mapping[str, str]) -> ForkedDaemon:
    """Start a daemon with these arguments and exactly this environment; return it at once."""
    return ForkedDaemon(_fork_server().fork("daemon", argv, env, Path("/")))


def run_command(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, stdin: str | None
) -> subprocess.CompletedProcess[str]:
    """Run `ao` as `sandbox.run_fresh` does: in a fresh process if its environment asks for another kind of Python."""
    if _startup_variables(env) != _startup_variables(os.environ):
        return sandbox.run_fresh(argv, env, cwd, stdin)
    input_end, to_input = os.pipe() if stdin is not None else (os.open(os.devnull, os.O_RDONLY), None)
    output, output_end = os.pipe()
    errors, errors_end = os.pipe()
    status, status_end = os.pipe()
    theirs = (input_end, output_end, errors_end, status_end)
    try:
        pid = _fork_server().fork("command", argv, env, cwd, theirs)
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    received = _communicate(pid, (output, errors, status), to_input, (stdin or "").encode())
    texts = [data.decode().replace("\r\n", "\n").replace("\r", "\n") for data in received]
    if not texts[2]:
        raise ChildProcessError(
            f"the parent process ended before `ao {' '.join(argv)}` did, so its exit code is not known; "
            f"it printed: {texts[0]}{texts[1]}"
        )
    return subprocess.CompletedProcess(["ao", *argv], int(texts[2]), texts[0], texts[1])


def _communicate(pid: int, outputs: Sequence[int], to_input: int | None, data: bytes) -> list[bytes]:
    """Write the input, return everything read from each output, and close all descriptors."""
    received: dict[int, list[bytes]] = {descriptor: [] for descriptor in outputs}
    rest = memoryview(data)
    end = time.monotonic() + _TIMEOUT
    with contextlib.ExitStack() as cleanup, selectors.DefaultSelector() as selector:
        for descriptor in outputs:
            selector.register(descriptor, selectors.EVENT_READ)
            cleanup.callback(os.close, descriptor)
        if to_input is not None:
            os.set_blocking(to_input, False)
            selector.register(to_input, selectors.EVENT_WRITE)
        while selector.get_map():
            if not (ready := selector.select(end - time.monotonic())):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired("ao", _TIMEOUT)
            for key, _ in ready:
                if key.fd == to_input:
                    try:
                        rest = rest[os.write(key.fd, rest[:65536]) :]
                    except BrokenPipeError:
                        rest = rest[:0]
                    if not rest:
                        selector.unregister(key.fd)
                        os.close(key.fd)
                elif chunk := os.read(key.fd, 65536):
                    received[key.fd].append(chunk)
                else:
                    selector.unregister(key.fd)
    return [b"".join(received[descriptor]) for descriptor in outputs]


def _startup_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in env.items()
        if name.startswith(_STARTUP_VARIABLES) and name != "PYTHONDONTWRITEBYTECODE"
    }


class _ForkServer:
    """The client side of the process from which everything is forked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "agent_orchestrator.testing.preloaded", str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        atexit.register(self._end)

    def fork(
        self, kind: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path, descriptors: Sequence[int] = ()
    ) -> int:
        """Start a daemon or a command with these descriptors, and return its pid."""
        request = json.dumps([kind, list(argv), dict(env), str(cwd)]).encode()
        with self._lock:
            header = [len(request).to_bytes(_HEADER_BYTES)]
            if descriptors:
                socket.send_fds(self._socket, header, descriptors)
            else:
                self._socket.sendall(header[0])
            self._socket.sendall(request)
            return int.from_bytes(_receive(self._socket, _HEADER_BYTES))

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _fork_server() -> _ForkServer:
    return _ForkServer()


def _receive(connection: socket.socket, size: int) -> bytes:
    """Return exactly so many bytes."""
    data = b""
    while len(data) < size:
        if not (chunk := connection.recv(size - len(data))):
            raise EOFError
        data += chunk
    return data


# -- in the parent process ---------------------------------------------------------------------------------------------


def main() -> None:
    """Fork a daemon or a command for each request, until the socket is closed."""
    _preload()
    connection = socket.socket(fileno=int(sys.argv[1]))
    child_ended, wakeup = socket.socketpair()
    child_ended.setblocking(False)
    wakeup.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the commands, whose exit codes are reported
    signal.set_wakeup_fd(wakeup.fileno())
    status_descriptors: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([connection, child_ended], [], [])
        if child_ended in ready:
            child_ended.recv(4096)
            _reap(status_descriptors)
        if connection not in ready:
            continue
        header, descriptors, _, _ = socket.recv_fds(connection, _HEADER_BYTES, 4)
        if not header:
            return
        kind, argv, env, cwd = json.loads(_receive(connection, int.from_bytes(header)))
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, interrupt)
            for descriptor in (*status_descriptors.values(), *descriptors[3:]):
                os.close(descriptor)
            for connected in (connection, child_ended, wakeup):
                connected.close()
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(env)
            time.tzset()
            if kind == "daemon":
                _run_as_daemon(argv)
            _run_as_command(argv, descriptors[:3])
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        if kind == "command":
            status_descriptors[pid] = descriptors[3]
        connection.sendall(pid.to_bytes(_HEADER_BYTES))


def _reap(status_descriptors: dict[int, int]) -> None:
    """Collect the processes that have ended; the exit code of a command goes to its descriptor."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if (descriptor := status_descriptors.pop(pid, None)) is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(descriptor, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(descriptor)


def _preload() -> None:
    """Import what the daemon and the commands import."""
    from agent_orchestrator.cli import app
    from agent_orchestrator.server.route_table import ROOTS_BY_FILE, load_routes

    for file in ROOTS_BY_FILE:
        load_routes(file)
    importlib.import_module("agent_orchestrator.daemon.__main__")
    for place in {entry.target for entry in (*app.EVERYDAY.values(), *app.MORE_COMMANDS.values())}:
        module = place.partition(":")[0]
        if module not in _NOT_PRELOADED:
            importlib.import_module(f"agent_orchestrator.cli.{module}")
    for package in _PACKAGES:
        name = f"agent_orchestrator.{package}"
        for module_info in pkgutil.iter_modules(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module_info.name)
    for library in (
        "agent_orchestrator.plugins.agents.demo",
        "agent_orchestrator.plugins.notifiers.desktop",
        *_LIBRARIES,
    ):
        importlib.import_module(library)
    gc.freeze()  # what is shared stays shared


def _run_as_daemon(argv: Sequence[str]) -> NoReturn:
    """Run the daemon in this process."""
    from agent_orchestrator.daemon import __main__

    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    sys.argv = ["agent_orchestrator.daemon", *argv]
    os._exit(__main__.main())


def _run_as_command(argv: Sequence[str], descriptors: Sequence[int]) -> NoReturn:
    """Run `ao` in this process on these standard streams."""
    import agent_orchestrator
    from agent_orchestrator.cli import main as ao

    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, errors=sys.stdin.errors, closefd=False)
    sys.stdout = os.fdopen(1, "w", errors=sys.stdout.errors, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.argv = [str(Path(agent_orchestrator.__file__).with_name("__main__.py")), *argv]
    code = 1
    try:
        code = ao()
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as an interpreter that ends does
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
