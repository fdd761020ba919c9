"""The holder's specification, how it starts the agent, and the files it writes."""

# pathlib alone would double the time to start.
# ruff: noqa: PTH105, PTH108, PTH123

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os
import sys

from .lease import Lease

if sys.platform != "win32":
    import fcntl
    import termios


class HolderSpec:
    """The specification of what to hold, read from a file that is removed then."""

    def __init__(self, path: str) -> None:
        self.argv: list[bytes] = []
        self.env: dict[bytes, bytes] = {}
        values: dict[bytes, bytes] = {}
        with open(path, "rb") as file:
            entries = file.read().split(b"\0")
        os.unlink(path)
        for entry in entries:
            kind, value = entry[:1], entry[1:]
            if kind == b"a":
                self.argv.append(value)
            elif kind == b"e":
                name, _, variable_value = value.partition(b"=")
                self.env[name] = variable_value
            else:
                values[kind] = value
        self.cwd, self.stdin, self.log = values[b"d"], values.get(b"i"), values[b"l"]
        self.lease = Lease(os.fsdecode(values[b"t"])) if b"t" in values else None
        self.socket, self.private = os.fsdecode(values[b"s"]), os.fsdecode(values[b"p"])
        self.generation = int(values[b"g"])
        self.columns, self.rows = int(values[b"c"]), int(values[b"r"])
        self.umask = os.umask(0o077)

    def file(self, name: str) -> str:
        """Return the path of a file of this generation in the private folder."""
        return f"{self.private}/{name}.{self.generation}"


def start_agent(spec: HolderSpec, slave: int) -> int:
    """Fork the agent, write the holder's file, then let the agent's program start; return its pid."""
    (child_waits, go), (parent_waits, ready) = os.pipe(), os.pipe()
    agent = os.fork()
    if agent == 0:
        try:
            os.close(go)
            if spec.lease is not None:
                spec.lease.die_with_holder()
            acquire_terminal(spec, slave)
            os.write(ready, b"1")
            if os.read(child_waits, 1):
                become_agent(spec)
        finally:
            os._exit(126)
    os.close(ready)
    os.read(parent_waits, 1)
    names = ("holder", "holderStarted", "agent", "agentStarted")
    values = (os.getpid(), _start_time(os.getpid()), agent, _start_time(agent))
    text = ", ".join(f'"{name}": "{value}"' for name, value in zip(names, values, strict=True))
    write_atomically(spec.file("holder") + ".json", "{" + text + "}\n")
    os.write(go, b"1")
    for end in (go, child_waits, parent_waits):
        os.close(end)
    return agent


def acquire_terminal(spec: HolderSpec, slave: int) -> None:
    """Make the terminal the controlling one of a new session, and reset signals. Runs in the child."""
    for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    stdin = os.open(spec.stdin, os.O_RDONLY) if spec.stdin is not None else slave
    for source, target in ((stdin, 0), (slave, 1), (slave, 2)):
        os.dup2(source, target)
    os.umask(spec.umask)


def become_agent(spec: HolderSpec) -> None:
    """Execute the agent's program. Runs in the child."""
    try:
        os.chdir(spec.cwd)
        os.execvpe(spec.argv[0], spec.argv, spec.env)
    except OSError as error:
        os.write(2, b"%s: %s\r\n" % (spec.argv[0], os.strerror(error.errno or 0).encode()))
        os._exit(127 if error.errno == errno.ENOENT else 126)


def _start_time(pid: int) -> str:
    """Return a process's start time as the kernel reports it, or "" if it does not report it this way."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def uint16(number: int) -> bytes:
    """Return a number in the format of the terminal's size."""
    return max(1, min(number, 65535)).to_bytes(2, sys.byteorder)


def unlink(path: str) -> None:
    """Remove a file, if it exists."""
    try:
        os.unlink(path)
    except OSError:
        pass


def lines(path: str) -> list[str]:
    """Return a file's lines; none if it does not exist."""
    try:
        with open(path) as file:
            return file.read().split("\n")
    except OSError:
        return []


def append(path: str, text: str) -> None:
    """Append to a file, ignoring errors: a full disk must not end the holder, and the agent with it."""
    try:
        with open(path, "a") as file:
            file.write(text)
    except OSError:
        pass


def write_atomically(path: str, text: str) -> None:
    """Write a file atomically."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)
