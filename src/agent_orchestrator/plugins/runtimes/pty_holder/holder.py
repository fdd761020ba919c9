"""The holder's loop: one PTY, any number of connections, and nothing to do while nothing happens."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys
import time

from .lease import end_family
from .spec import Spec, append, lines, start, uint16, unlink, write_whole
from .terminal import ANSWERS, Modes, Scrollback, without_answers

if sys.platform != "win32":
    import fcntl
    import termios

POLLIN, POLLOUT = getattr(select, "POLLIN", 1), getattr(select, "POLLOUT", 4)

BACKLOG = 1048576
# Seconds that keystrokes without Enter hold a message back.
TYPING_COUNTS = 30.0
# Seconds between a message and its Enter: programs with bracketed paste drop an Enter that comes at once.
ENTER_AFTER = 0.05
ENTER_AFTER_PASTE = 0.6
# Seconds for attachments to take the last output, and milliseconds of silence that make it the last.
LINGER = 2.0
LAST_OUTPUT = 30
REQUEST_LIMIT = 16777216
LEASE_OVER = (
    b"\r\n[the daemon was not heard of for too long: this agent is ended, and goes on where it is heard of]\r\n"
)


class Client:
    """A connection."""

    def __init__(self, connection: _socket.socket) -> None:
        self.connection = connection
        self.attached = False
        self.watches = False
        self.inbox = b""
        self.outbox = bytearray()
        self.behind = False
        self.closing = False

    def fileno(self) -> int:
        """For poll."""
        return self.connection.fileno()

    def frames(self) -> list[tuple[bytes, bytes]]:
        """The complete frames that have arrived."""
        found = []
        while len(self.inbox) >= 5:
            end = 5 + int.from_bytes(self.inbox[1:5], "big")
            if end > REQUEST_LIMIT:
                raise ValueError("frame too long")
            if len(self.inbox) < end:
                break
            found.append((self.inbox[:1], self.inbox[5:end]))
            self.inbox = self.inbox[end:]
        return found


class Holder:
    """The loop around one PTY."""

    wakeup: int
    poll: select.poll

    def __init__(self, spec: Spec, ends: tuple[int, int], agent: int, listener: _socket.socket, log: int) -> None:
        self.remember_nothing(spec, agent, listener, log)
        # Our own hold on the program's end: without it the terminal would count as hung up whenever nobody has it open.
        self.master, self.slave = ends
        self.wakeup, wake = os.pipe()
        for end in (self.wakeup, wake, self.master):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(wake)
        for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGINT):
            _signal.signal(number, self.on_signal)
        self.poll = select.poll()
        for end in (self.wakeup, self.master, listener.fileno()):
            self.poll.register(end, POLLIN)
        if spec.lease is not None and spec.lease.timer is not None:
            self.poll.register(spec.lease.timer, POLLIN)

    def remember_nothing(self, spec: Spec, agent: int, listener: _socket.socket, log: int) -> None:
        """What is known at the beginning."""
        self.spec, self.agent, self.listener, self.log = spec, agent, listener, log
        self.clients: dict[int, Client] = {}
        self.leader: Client | None = None
        self.modes = Modes()
        self.scrollback = Scrollback()
        self.asked = b""
        self.pending = bytearray()
        self.enter_at: float | None = None
        self.enter_pause: float | None = None
        self.typed_at: float | None = None
        self.delivered = set(lines(spec.file("delivered")))
        self.ended = False
        self.give_up_at: float | None = None
        self.reason = ""
        self.master = -1

    def on_signal(self, number: int, _frame: object) -> None:
        """Asked to end: hang up on the agent and see it out."""
        if number != _signal.SIGCHLD and not self.ended:
            for what in (_signal.SIGHUP, _signal.SIGCONT, _signal.SIGTERM):
                _kill(self.agent, what)

    def run(self) -> None:
        """Until the agent has ended and everybody has seen its last output."""
        self.reap()
        while not self.finished():
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
        """A signal came."""
        _read(self.wakeup)
        self.reap()

    def timeout(self) -> float | None:
        """Milliseconds until something is due; none: nothing is."""
        now = time.monotonic()
        due = [at - now for at in (self.enter_at, self.give_up_at) if at is not None]
        if self.spec.lease is not None and self.spec.lease.timer is None and not self.ended:
            due.append(self.spec.lease.left())
        return max(0, min(due) * 1000 + 1) if due else None

    def finished(self) -> bool:
        """Also gives up on attachments that do not take the last output."""
        if self.give_up_at is None:
            return False
        return time.monotonic() >= self.give_up_at or not any(client.outbox for client in self.clients.values())

    # -- the agent

    def reap(self) -> None:
        """Note the agent's end, after all its output; others that ended here had nobody else to see them out."""
        pid, status = _next_ended()
        while pid and pid != self.agent:
            pid, status = _next_ended()
        if not pid:
            return
        self.ended = True
        self.read_the_rest()
        self.poll.unregister(self.master)
        self.note_end(os.waitstatus_to_exitcode(status))

    def note_end(self, code: int) -> None:
        """Write down how the agent ended, and listen no more; below nothing: the signal that it was killed by."""
        known, killed_by = (code, "null") if code >= 0 else ("null", -code)
        why = f', "reason": "{self.reason}"' if self.reason else ""
        try:
            write_whole(self.spec.file("exit") + ".json", f'{{"code": {known}, "signal": {killed_by}{why}}}\n')
        except OSError:
            # A full disk: the end is seen, how it ended is not.
            pass
        self.give_up_at = time.monotonic() + LINGER
        self.poll.unregister(self.listener.fileno())
        self.listener.close()
        unlink(self.spec.socket)

    def end_when_lease_is_over(self) -> None:
        """Nobody vouches for the agent any more: end it and all that it started, at once, whatever they think of it."""
        if self.spec.lease is None or self.ended or not self.spec.lease.is_over():
            return
        if not self.reason:
            self.keep(LEASE_OVER)
        self.reason = "lease"
        end_family(self.agent)
        self.reap()
        # Killed, and not gone: it hangs in the kernel, and comes back from there only to end.
        self.spec.lease.look_again()

    def read_the_rest(self) -> None:
        """The last output; a child that still has the terminal open is not waited for."""
        os.close(self.slave)
        rest = select.poll()
        rest.register(self.master, POLLIN)
        until = time.monotonic() + LINGER
        while rest.poll(LAST_OUTPUT) and time.monotonic() < until:
            output = _read(self.master)
            if not output:
                return
            self.keep(output)

    def on_terminal(self, event: int) -> None:
        """Read output, write input."""
        if event & POLLOUT:
            self.write_pending()
        output = _read(self.master) if event & POLLIN else None
        if output:
            self.keep(output)

    def keep(self, output: bytes) -> None:
        """Log it, remember it, show it, and answer what it asks."""
        try:
            os.write(self.log, output)
        except OSError:
            # A full disk costs the log, not the agent.
            pass
        self.modes.feed(output)
        self.scrollback.add(output)
        asked = self.asked + output
        for question, answer in ANSWERS:
            if self.leader is None and asked.count(question) > self.asked.count(question):
                self.type(answer)
        self.asked = asked[-4:]
        for client in list(self.clients.values()):
            if client.attached:
                self.show(client, output)

    def type(self, data: bytes) -> None:
        """Write to the program's standard input as fast as it reads."""
        self.pending += data
        self.write_pending()

    def write_pending(self) -> None:
        """Write what the terminal takes now, the rest when it takes more."""
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
        """The Enter that ends a delivered message."""
        if self.enter_at is not None and time.monotonic() >= self.enter_at:
            self.enter_at = None
            self.type(b"\r")

    def resize(self, columns: int, rows: int) -> None:
        """Tell the program its size; also one that is the same makes it draw again."""
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
        """Let the same user in."""
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
        self.clients[descriptor] = Client(connection)
        self.poll.register(descriptor, POLLIN)

    def on_client(self, client: Client, event: int) -> None:
        """Serve one connection."""
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

    def drop(self, client: Client) -> None:
        """Close a connection."""
        if self.clients.pop(client.fileno(), None) is not None:
            self.poll.unregister(client.fileno())
            client.connection.close()
        if client is self.leader:
            others = (other for other in self.clients.values() if other.attached and not other.watches)
            self.leader = next(others, None)

    def on_frame(self, client: Client, kind: bytes, body: bytes) -> None:
        """Carry out one frame."""
        if kind == b"Q":
            self.send(client, self.answer(body.split(b"\0", 3)))
        elif kind in b"AWR" and len(body) == 4:
            if kind != b"R":
                client.attached, client.watches = True, kind == b"W"
                self.show(client, self.scrollback.replay())
            if not client.watches:
                self.leader = client
            if self.leader in (None, client):
                self.resize(max(1, int.from_bytes(body[:2], "big")), max(1, int.from_bytes(body[2:], "big")))
        elif kind == b"K" and client.attached and not client.watches:
            keys = without_answers(body)
            self.note_typing(keys)
            self.type(body if client is self.leader else keys)

    def answer(self, request: list[bytes]) -> list[bytes]:
        """The fields that answer a request."""
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
        """Write a message, once for each id."""
        if message in self.delivered:
            return [b"delivered"]
        if self.ended:
            return [b"ended"]
        if self.enter_at is not None or self.enter_pause is not None or self.pending:
            return [b"due"]
        if self.typed_at is not None and time.monotonic() - self.typed_at < TYPING_COUNTS:
            return [b"held", b"somebody is typing"]
        paste = b"2004" in self.modes.on
        text = text.replace(b"\n", b"\r")
        if enter:
            self.enter_pause = ENTER_AFTER_PASTE if paste else ENTER_AFTER
        self.type(b"\x1b[200~" + text + b"\x1b[201~" if paste and text else text)
        self.remember(message)
        return [b"delivered"]

    def press(self, keys: bytes, once: str) -> None:
        """Type keys; those with an id once."""
        if once not in self.delivered:
            self.type(keys)
            if once:
                self.remember(once)

    def remember(self, written: str) -> None:
        """What was written is not written again."""
        self.delivered.add(written)
        append(self.spec.file("delivered"), written + "\n")

    def note_typing(self, keys: bytes) -> None:
        """Keystrokes count as unsent until Enter or Ctrl-C."""
        sent = max(keys.rfind(b"\r"), keys.rfind(b"\n"), keys.rfind(b"\x03"))
        if sent >= 0:
            self.typed_at = None
        if keys[sent + 1 :]:
            self.typed_at = time.monotonic()

    def show(self, client: Client, output: bytes) -> None:
        """Send output to an attachment; one that is too far behind gets the scrollback later instead."""
        if client.behind:
            return
        if len(client.outbox) + len(output) > BACKLOG:
            client.behind = True
            client.outbox.clear()
            client.outbox += b"\x18"
        else:
            client.outbox += output
        self.flush(client)

    def send(self, client: Client, fields: list[bytes]) -> None:
        """Answer a request and close."""
        body = b"\0".join(fields)
        client.outbox += b"Q" + len(body).to_bytes(4, "big") + body
        client.closing = True
        self.flush(client)

    def flush(self, client: Client) -> None:
        """Send what the connection takes now."""
        try:
            while client.outbox:
                del client.outbox[: client.connection.send(client.outbox[:65536])]
            if client.behind:
                client.behind = False
                client.outbox += b"\x1b[H\x1b[2J" + self.scrollback.replay()
        except BlockingIOError:
            pass
        except OSError:
            client.outbox.clear()
            client.closing = True
        if client.fileno() in self.clients:
            self.poll.modify(client.fileno(), POLLIN | (POLLOUT if client.outbox else 0))


def main(told: str) -> None:
    """Become the holder, unless there is or was one for this generation."""
    spec = Spec(told)
    lock = os.open(spec.file("holder") + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not take(lock) or lines(spec.file("holder") + ".json"):
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
    agent = start(spec, slave)
    Holder(spec, (master, slave), agent, listener, log).run()


def take(lock: int) -> bool:
    """Get the lock for good, unless another holder has it; somebody who only looks has it for an instant."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.005)
        else:
            return True
    return False


def _next_ended() -> tuple[int, int]:
    """A child that has ended, and how; 0: none has."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0


def _read(end: int) -> bytes | None:
    """What can be read now; none: nothing yet; empty: the other side is gone."""
    try:
        return os.read(end, 65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _receive(connection: _socket.socket) -> bytes | None:
    try:
        return connection.recv(65536)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass
