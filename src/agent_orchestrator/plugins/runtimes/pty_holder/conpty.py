"""The holder for Windows: the same loop around a pseudo console, reached over loopback with a token.

On Windows only sockets can be polled. So a thread reads the console and wakes the loop by a socket, and the path that is a Unix socket
elsewhere is a file here, with a port and a token; the first frame of a connection is `T` and the token.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from shutil import which
from socket import AF_INET, socket, socketpair
from typing import Protocol, cast

from .holder import (
    LAST_OUTPUT_TIMEOUT,
    POLLIN,
    POLLOUT,
    Holder,
    HolderConnection,
)
from .spec import HolderSpec, lines, write_atomically

LOOPBACK = "127.0.0.1"
_REPORT_NOT_FOUND = "import sys; sys.stderr.write(sys.argv[1] + ': not found\\n'); sys.exit(127)"
# Seconds between two checks whether a program without output has ended.
POLL_INTERVAL = 0.05


class Console(Protocol):
    """The part of pywinpty's `PTY` that is used: the only thing here that requires Windows."""

    pid: int

    def spawn(self, appname: str, cmdline: str | None = None, cwd: str | None = None, env: str | None = None) -> bool:
        """Start a program in the console."""
        ...

    def read(self, blocking: bool = False) -> str:
        """Return new output."""
        ...

    def write(self, to_write: str) -> int:
        """Type into the console."""
        ...

    def set_size(self, cols: int, rows: int) -> None:
        """Set the console's size."""
        ...

    def isalive(self) -> bool:
        """Return whether the program runs."""
        ...

    def get_exitstatus(self) -> int | None:
        """Return the program's exit code."""
        ...


def console(columns: int, rows: int) -> Console:
    """Return a new pseudo console of this size."""
    from winpty import PTY  # type: ignore[import-not-found, unused-ignore]

    return cast("Console", PTY(columns, rows))


class SocketPoll:
    """Replaces `select.poll` on systems without it, for sockets."""

    def __init__(self) -> None:
        self._events_by_socket: dict[int, int] = {}

    def register(self, end: int, events: int) -> None:
        """Watch a socket for these events."""
        self._events_by_socket[end] = events

    modify = register

    def unregister(self, end: int) -> None:
        """Stop watching a socket."""
        del self._events_by_socket[end]

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        """Return the ready sockets with their events, waiting at most this many milliseconds."""
        readers = [end for end, events in self._events_by_socket.items() if events & POLLIN]
        writers = [end for end, events in self._events_by_socket.items() if events & POLLOUT]
        ready = select.select(readers, writers, [], None if timeout is None else timeout / 1000)
        ready_events: dict[int, int] = dict.fromkeys(ready[0], POLLIN)
        for end in ready[1]:
            ready_events[end] = ready_events.get(end, 0) | POLLOUT
        return list(ready_events.items())


class ConsoleHolder(Holder):
    """The loop around one pseudo console."""

    def __init__(self, spec: HolderSpec, console: Console, listener: socket, log: int, token: bytes) -> None:
        self.set_initial_state(spec, console.pid, listener, log)
        self.console, self.token = console, token
        self.authenticated: set[HolderConnection] = set()
        self.output: deque[bytes] = deque()
        self.receiver, self.waker = socketpair()
        self.receiver.setblocking(False)
        self.wakeup = self.receiver.fileno()
        self.poll = cast("select.poll", SocketPoll())
        for end in (self.wakeup, listener.fileno()):
            self.poll.register(end, POLLIN)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        """Read the console's output until its program has ended; runs in a separate thread."""
        while True:
            try:
                text = self.console.read(blocking=True)
            except Exception:  # the error's class differs by version: the program has ended, or there is no more output
                text = ""
            if text:
                self.output.append(text.encode(errors="surrogatepass"))
                self.waker.send(b"o")
            elif not self.console.isalive():
                break
            else:
                time.sleep(POLL_INTERVAL)
        self.waker.send(b"e")

    def wake(self) -> None:
        """Handle what the reading thread has queued."""
        signals = self.receiver.recv(65536)
        while self.output:
            self.handle_output(self.output.popleft())
        if b"e" in signals:
            self.reap_children()

    def reap_children(self) -> None:
        """Record the program's end, after all its output."""
        if self.ended or (self.reader.is_alive() and self.console.isalive()):
            return
        self.reader.join(LAST_OUTPUT_TIMEOUT)
        while self.output:
            self.handle_output(self.output.popleft())
        self.ended = True
        code = self.console.get_exitstatus()
        self.note_end(1 if code is None else code)

    def write_pending(self) -> None:
        """Write all pending input: the console accepts everything."""
        if self.pending and not self.ended:
            self.console.write(self.pending.decode(errors="replace"))
        self.pending.clear()
        if self.enter_pause is not None:
            self.enter_at, self.enter_pause = time.monotonic() + self.enter_pause, None

    def resize(self, columns: int, rows: int) -> None:
        """Set the program's terminal size."""
        self.spec.columns, self.spec.rows = columns, rows
        self.console.set_size(columns, rows)

    def accept(self) -> None:
        """Accept any connection; it must authenticate with the token."""
        try:
            connection, _ = cast("socket", self.listener).accept()
        except OSError:
            return
        connection.setblocking(False)
        self.clients[connection.fileno()] = HolderConnection(connection)
        self.poll.register(connection.fileno(), POLLIN)

    def on_frame(self, client: HolderConnection, kind: bytes, body: bytes) -> None:
        """Handle one frame; a connection that has not sent the token is closed."""
        if client in self.authenticated:
            super().on_frame(client, kind, body)
        elif kind == b"T" and body == self.token:
            self.authenticated.add(client)
        else:
            client.closing = True

    def drop(self, client: HolderConnection) -> None:
        """Close a connection."""
        self.authenticated.discard(client)
        super().drop(client)


def spawn(spec: HolderSpec, console: Console) -> None:
    """Start the agent's program. Exits with an error if that fails, or if it needs standard input from a file."""
    if spec.stdin is not None:
        raise SystemExit(
            "a program in a console of Windows takes no standard input from a file: give its prompt by another way"
        )
    argv = [os.fsdecode(argument) for argument in spec.argv]
    env = {os.fsdecode(name): os.fsdecode(value) for name, value in spec.env.items()}
    program = which(argv[0], path=env.get("PATH"))
    if program is None:
        program, argv = sys.executable, [sys.executable, "-c", _REPORT_NOT_FOUND, argv[0]]
    environment_block = "\0".join(f"{name}={value}" for name, value in env.items()) + "\0"
    arguments = subprocess.list2cmdline(argv[1:])
    if not console.spawn(
        program, cmdline=f" {arguments}" if arguments else None, cwd=os.fsdecode(spec.cwd), env=environment_block
    ):
        raise SystemExit(f"{program} could not be started")


def main(spec_file: str) -> None:
    """Become the holder, unless there is or was one for this generation."""
    spec = HolderSpec(spec_file)
    lock = os.open(spec.file("holder") + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not try_lock(lock) or lines(spec.file("holder") + ".json"):
        return
    listener = socket(AF_INET)
    listener.bind((LOOPBACK, 0))
    listener.listen(16)
    listener.setblocking(False)
    token = os.urandom(16).hex()
    log = os.open(spec.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    pseudo_console = console(spec.columns, spec.rows)
    spawn(spec, pseudo_console)
    write_atomically(spec.socket, f"{listener.getsockname()[1]} {token}\n")
    names = ("holder", "holderStarted", "agent", "agentStarted")
    values = (str(os.getpid()), "", str(pseudo_console.pid), "")
    text = ", ".join(f'"{name}": "{value}"' for name, value in zip(names, values, strict=True))
    write_atomically(spec.file("holder") + ".json", "{" + text + "}\n")
    ConsoleHolder(spec, pseudo_console, listener, log, token.encode()).run()


def try_lock(lock: int) -> bool:
    """Return whether the lock could be acquired; another holder may have it. It is kept until the process ends."""
    if sys.platform != "win32":
        from .holder import try_lock as lock_file

        return lock_file(lock)
    import msvcrt

    try:
        msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
