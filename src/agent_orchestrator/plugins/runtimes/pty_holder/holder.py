"""The holder's loop: one PTY, any number of connections, and no work while nothing happens."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys
import time

from .lease import kill_descendants
from .spec import (
    HolderSpec,
    append,
    lines,
    start_agent,
    uint16,
    unlink,
    write_atomically,
)
from .terminal import ANSWERS, Modes, Scrollback, without_answers

if sys.platform != "win32":
    import fcntl
    import termios

POLLIN, POLLOUT = getattr(select, "POLLIN", 1), getattr(select, "POLLOUT", 4)

MAX_UNSENT_BYTES = 1048576
# Seconds that keystrokes without Enter hold a message back.
TYPING_HOLD_SECONDS = 30.0
# Seconds between a message and its Enter: programs with bracketed paste drop an Enter that comes at once.
ENTER_DELAY = 0.05
PASTE_ENTER_DELAY = 0.6
# Seconds for attachments to take the last output, and milliseconds of silence that make it the last.
LAST_OUTPUT_TIMEOUT = 2.0
LAST_OUTPUT_SILENCE_MS = 30
MAX_FRAME_BYTES = 16777216
LEASE_OVER_NOTICE = (
    b"\r\n[the daemon was not heard of for too long: this agent is ended, and goes on where it is heard of]\r\n"
)


class HolderConnection:
    """A connection to the holder."""

    def __init__(self, connection: _socket.socket) -> None:
        self.connection = connection
        self.attached = False
        self.is_watching = False
        self.inbox = b""
        self.outbox = bytearray()
        self.is_behind = False
        self.closing = False

    def fileno(self) -> int:
        """Return the connection's descriptor, for poll."""
        return self.connection.fileno()

    def frames(self) -> list[tuple[bytes, bytes]]:
        """Return the complete frames that have arrived. Raises `ValueError` if one is too long."""
        complete_frames = []
        while len(self.inbox) >= 5:
            end = 5 + int.from_bytes(self.inbox[1:5], "big")
            if end > MAX_FRAME_BYTES:
                raise ValueError("frame too long")
            if len(self.inbox) < end:
                break
            complete_frames.append((self.inbox[:1], self.inbox[5:end]))
            self.inbox = self.inbox[end:]
        return complete_frames


class Holder:
    """The loop around one PTY."""

    wakeup: int
    poll: select.poll

    def __init__(self, spec: HolderSpec, ends: tuple[int, int], agent: int, listener: _socket.socket, log: int) -> None:
        self.set_initial_state(spec, agent, listener, log)
        # The program's end is kept open here: otherwise the terminal would count as hung up whenever no process has it open.
        self.master, self.slave = ends
        self.wakeup, wakeup_write = os.pipe()
        for end in (self.wakeup, wakeup_write, self.master):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(wakeup_write)
        for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGINT):
            _signal.signal(number, self.on_signal)
        self.poll = select.poll()
        for end in (self.wakeup, self.master, listener.fileno()):
            self.poll.register(end, POLLIN)
        if spec.lease is not None and spec.lease.timer is not None:
            self.poll.register(spec.lease.timer, POLLIN)

    def set_initial_state(self, spec: HolderSpec, agent: int, listener: _socket.socket, log: int) -> None:
        """Set the initial state."""
        self.spec, self.agent, self.listener, self.log = spec, agent, listener, log
        self.clients: dict[int, HolderConnection] = {}
        self.leader: HolderConnection | None = None
        self.modes = Modes()
        self.scrollback = Scrollback()
        self.output_tail = b""
        self.pending = bytearray()
        self.enter_at: float | None = None
        self.enter_pause: float | None = None
        self.typed_at: float | None = None
        self.delivered_ids = set(lines(spec.file("delivered")))
        self.ended = False
        self.close_deadline: float | None = None
        self.reason = ""
        self.master = -1

    def on_signal(self, number: int, _frame: object) -> None:
        """Hang up on the agent when asked to end; the loop then waits for the agent's end."""
        if number != _signal.SIGCHLD and not self.ended:
            for sent_signal in (_signal.SIGHUP, _signal.SIGCONT, _signal.SIGTERM):
                _kill(self.agent, sent_signal)

    def run(self) -> None:
        """Run until the agent has ended and all attachments have received its last output."""
        self.reap_children()
        while not self.is_finished():
            for end, event in self.poll.poll(self.timeout()):
                if end == self.wakeup:
                    self.wake()
                elif end == self.master:
                    self.on_terminal(event)
                elif end == self.listener.fileno():
                    self.accept()
                elif end in self.clients:
                    self.on_client(self.clients[end], event)
            self.press_enter_when_due()
            self.end_when_lease_is_over()

    def wake(self) -> None:
        """Handle an arrived signal."""
        _read(self.wakeup)
        self.reap_children()

    def timeout(self) -> float | None:
        """Return the milliseconds until something is due, or None if nothing is."""
        now = time.monotonic()
        delays = [due_at - now for due_at in (self.enter_at, self.close_deadline) if due_at is not None]
        if self.spec.lease is not None and self.spec.lease.timer is None and not self.ended:
            delays.append(self.spec.lease.seconds_left())
        return max(0, min(delays) * 1000 + 1) if delays else None

    def is_finished(self) -> bool:
        """Return whether the loop may end: all attachments have the last output, or the time for that is over."""
        if self.close_deadline is None:
            return False
        return time.monotonic() >= self.close_deadline or not any(client.outbox for client in self.clients.values())

    # -- the agent

    def reap_children(self) -> None:
        """Record the agent's end, after all its output; other ended children are orphans of the agent and only reaped."""
        pid, status = _reap_child()
        while pid and pid != self.agent:
            pid, status = _reap_child()
        if not pid:
            return
        self.ended = True
        self.read_last_output()
        self.poll.unregister(self.master)
        self.note_end(os.waitstatus_to_exitcode(status))

    def note_end(self, code: int) -> None:
        """Write the agent's exit to its file, and stop listening; a negative code is the signal that killed it."""
        exit_code, killed_by = (code, "null") if code >= 0 else ("null", -code)
        reason_field = f', "reason": "{self.reason}"' if self.reason else ""
        try:
            write_atomically(
                self.spec.file("exit") + ".json", f'{{"code": {exit_code}, "signal": {killed_by}{reason_field}}}\n'
            )
        except OSError:
            # The disk is full: the end is still noticed, only the exit status is lost.
            pass
        self.close_deadline = time.monotonic() + LAST_OUTPUT_TIMEOUT
        self.poll.unregister(self.listener.fileno())
        self.listener.close()
        unlink(self.spec.socket)

    def end_when_lease_is_over(self) -> None:
        """Kill the agent and all that it started, if its lease was not renewed in time."""
        if self.spec.lease is None or self.ended or not self.spec.lease.is_over():
            return
        if not self.reason:
            self.handle_output(LEASE_OVER_NOTICE)
        self.reason = "lease"
        kill_descendants(self.agent)
        self.reap_children()
        # Killed but not gone: it hangs in the kernel, and ends as soon as it leaves that.
        self.spec.lease.recheck_soon()

    def read_last_output(self) -> None:
        """Read the last output, without waiting for a child that still has the terminal open."""
        os.close(self.slave)
        poller = select.poll()
        poller.register(self.master, POLLIN)
        deadline = time.monotonic() + LAST_OUTPUT_TIMEOUT
        while poller.poll(LAST_OUTPUT_SILENCE_MS) and time.monotonic() < deadline:
            output = _read(self.master)
            if not output:
                return
            self.handle_output(output)

    def on_terminal(self, event: int) -> None:
        """Read output and write pending input."""
        if event & POLLOUT:
            self.write_pending()
        output = _read(self.master) if event & POLLIN else None
        if output:
            self.handle_output(output)

    def handle_output(self, output: bytes) -> None:
        """Log output, add it to the scrollback, send it to attachments, and answer the terminal queries in it."""
        try:
            os.write(self.log, output)
        except OSError:
            # The disk is full: the log loses output, the agent continues.
            pass
        self.modes.feed(output)
        self.scrollback.add(output)
        recent_output = self.output_tail + output
        for question, answer in ANSWERS:
            if self.leader is None and recent_output.count(question) > self.output_tail.count(question):
                self.type(answer)
        self.output_tail = recent_output[-4:]
        for client in list(self.clients.values()):
            if client.attached:
                self.show(client, output)

    def type(self, data: bytes) -> None:
        """Write to the program's standard input as fast as it reads."""
        self.pending += data
        self.write_pending()

    def write_pending(self) -> None:
        """Write what the terminal accepts now; the rest follows when it accepts more."""
        while self.pending:
            try:
                written = os.write(self.master, self.pending[:4096])
            except BlockingIOError:
                break
            except OSError:
                self.pending.clear()
                break
            del self.pending[:written]
        if not self.pending and self.enter_pause is not None:
            self.enter_at, self.enter_pause = time.monotonic() + self.enter_pause, None
        if not self.ended:
            self.poll.modify(self.master, POLLIN | (POLLOUT if self.pending else 0))

    def press_enter_when_due(self) -> None:
        """Press the Enter that ends a delivered message, once it is due."""
        if self.enter_at is not None and time.monotonic() >= self.enter_at:
            self.enter_at = None
            self.type(b"\r")

    def resize(self, columns: int, rows: int) -> None:
        """Set the program's terminal size; the same size again makes the program redraw."""
        size = uint16(rows) + uint16(columns) + b"\0\0\0\0"
        if (columns, rows) == (self.spec.columns, self.spec.rows):
            try:
                os.killpg(os.tcgetpgrp(self.master), _signal.SIGWINCH)
            except OSError:
                pass
        self.spec.columns, self.spec.rows = columns, rows
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    # -- the connections

    def accept(self) -> None:
        """Accept a connection of the same user."""
        try:
            descriptor, _ = self.listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        connection = _socket.socket(fileno=descriptor)
        connection.setblocking(False)
        if hasattr(_socket, "SO_PEERCRED"):
            peer = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
            if int.from_bytes(peer[4:8], sys.byteorder) != os.getuid():
                connection.close()
                return
        self.clients[descriptor] = HolderConnection(connection)
        self.poll.register(descriptor, POLLIN)

    def on_client(self, client: HolderConnection, event: int) -> None:
        """Read from and write to one connection."""
        if event & POLLOUT:
            self.flush(client)
        if event & POLLIN:
            data = _receive(client.connection)
            if data:
                client.inbox += data
                try:
                    for kind, body in client.frames():
                        self.on_frame(client, kind, body)
                except ValueError:
                    client.closing = True
            elif data is not None:
                client.closing = True
                client.outbox.clear()
        elif event & ~POLLOUT:
            client.closing = True
            client.outbox.clear()
        if client.closing and not client.outbox:
            self.drop(client)

    def drop(self, client: HolderConnection) -> None:
        """Close a connection."""
        if self.clients.pop(client.fileno(), None) is not None:
            self.poll.unregister(client.fileno())
            client.connection.close()
        if client is self.leader:
            others = (other for other in self.clients.values() if other.attached and not other.is_watching)
            self.leader = next(others, None)

    def on_frame(self, client: HolderConnection, kind: bytes, body: bytes) -> None:
        """Handle one frame."""
        if kind == b"Q":
            self.send(client, self.answer(body.split(b"\0", 3)))
        elif kind in b"AWR" and len(body) == 4:
            if kind != b"R":
                client.attached, client.is_watching = True, kind == b"W"
                self.show(client, self.scrollback.replay())
            if not client.is_watching:
                self.leader = client
            if self.leader in (None, client):
                self.resize(max(1, int.from_bytes(body[:2], "big")), max(1, int.from_bytes(body[2:], "big")))
        elif kind == b"K" and client.attached and not client.is_watching:
            keys = without_answers(body)
            self.note_typing(keys)
            self.type(body if client is self.leader else keys)

    def answer(self, request: list[bytes]) -> list[bytes]:
        """Handle a request and return the fields of its answer."""
        name = request[0]
        if name == b"deliver" and len(request) == 4:
            return self.deliver(request[1].decode(), request[2] == b"1", request[3])
        if name == b"press" and len(request) in (2, 3):
            self.press(bytes.fromhex(request[1].decode()), "".join(field.decode() for field in request[2:]))
            return [b"done"]
        if name == b"resize" and len(request) == 3:
            self.resize(int(request[1]), int(request[2]))
            return [b"done"]
        if name == b"watched":
            return [b"1" if any(client.attached for client in self.clients.values()) else b"0"]
        if name == b"screen":
            return [b"%d" % self.spec.columns, b"%d" % self.spec.rows, self.scrollback.replay()]
        return [b"unknown"]

    def deliver(self, message: str, enter: bool, text: bytes) -> list[bytes]:
        """Write a message, once for each id; return the answer's fields."""
        if message in self.delivered_ids:
            return [b"delivered"]
        if self.ended:
            return [b"ended"]
        if self.enter_at is not None or self.enter_pause is not None or self.pending:
            return [b"due"]
        if self.typed_at is not None and time.monotonic() - self.typed_at < TYPING_HOLD_SECONDS:
            return [b"held", b"somebody is typing"]
        paste = b"2004" in self.modes.active
        text = text.replace(b"\n", b"\r")
        if enter:
            self.enter_pause = PASTE_ENTER_DELAY if paste else ENTER_DELAY
        self.type(b"\x1b[200~" + text + b"\x1b[201~" if paste and text else text)
        self.remember(message)
        return [b"delivered"]

    def press(self, keys: bytes, once: str) -> None:
        """Type keys; those with an id only once."""
        if once not in self.delivered_ids:
            self.type(keys)
            if once:
                self.remember(once)

    def remember(self, written: str) -> None:
        """Store the id of what was written, so that it is not written again."""
        self.delivered_ids.add(written)
        append(self.spec.file("delivered"), written + "\n")

    def note_typing(self, keys: bytes) -> None:
        """Record when keys were typed; they count as unsent until Enter or Ctrl-C."""
        sent = max(keys.rfind(b"\r"), keys.rfind(b"\n"), keys.rfind(b"\x03"))
        if sent >= 0:
            self.typed_at = None
        if keys[sent + 1 :]:
            self.typed_at = time.monotonic()

    def show(self, client: HolderConnection, output: bytes) -> None:
        """Send output to an attachment; one that is too far behind gets the scrollback later instead."""
        if client.is_behind:
            return
        if len(client.outbox) + len(output) > MAX_UNSENT_BYTES:
            client.is_behind = True
            client.outbox.clear()
            client.outbox += b"\x18"
        else:
            client.outbox += output
        self.flush(client)

    def send(self, client: HolderConnection, fields: list[bytes]) -> None:
        """Send the answer to a request; the connection is closed after it."""
        body = b"\0".join(fields)
        client.outbox += b"Q" + len(body).to_bytes(4, "big") + body
        client.closing = True
        self.flush(client)

    def flush(self, client: HolderConnection) -> None:
        """Send what the connection accepts now."""
        try:
            while client.outbox:
                del client.outbox[: client.connection.send(client.outbox[:65536])]
            if client.is_behind:
                client.is_behind = False
                client.outbox += b"\x1b[H\x1b[2J" + self.scrollback.replay()
        except BlockingIOError:
            pass
        except OSError:
            client.outbox.clear()
            client.closing = True
        if client.fileno() in self.clients:
            self.poll.modify(client.fileno(), POLLIN | (POLLOUT if client.outbox else 0))


def main(spec_file: str) -> None:
    """Become the holder, unless there is or was one for this generation."""
    spec = HolderSpec(spec_file)
    lock = os.open(spec.file("holder") + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not try_lock(lock) or lines(spec.file("holder") + ".json"):
        return
    if spec.lease is not None and spec.lease.is_over():
        raise SystemExit("its lease is over")
    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)
    unlink(spec.socket)
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    listener.bind(spec.socket)
    listener.listen(16)
    listener.setblocking(False)
    log = os.open(spec.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, uint16(spec.rows) + uint16(spec.columns) + b"\0\0\0\0")
    if spec.lease is not None:
        spec.lease.watch()
    agent = start_agent(spec, slave)
    Holder(spec, (master, slave), agent, listener, log).run()


def try_lock(lock: int) -> bool:
    """Return whether the lock could be acquired; it is kept until the process ends.

    It is retried for a moment, because a process that only checks the lock holds it briefly.
    """
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.005)
        else:
            return True
    return False


def _reap_child() -> tuple[int, int]:
    """Return the pid and status of a child that has ended, or pid 0."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0


def _read(end: int) -> bytes | None:
    """Return what can be read now: None if there is nothing yet, b"" if the other side is gone."""
    try:
        return os.read(end, 65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _receive(connection: _socket.socket) -> bytes | None:
    """Return what the connection has received: None if nothing yet, b"" if the other side is gone."""
    try:
        return connection.recv(65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _kill(pid: int, number: int) -> None:
    """Send a signal; a process that is gone is no error."""
    try:
        os.kill(pid, number)
    except OSError:
        pass
