"""Shows a held terminal in a person's terminal: `python -I attach.py SOCKET NAME [watch]`. Ctrl-] detaches.

A script of its own that needs nothing but the standard library. It says goodbye to the terminal as it found it, whatever ends it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import sys
import termios
import tty

DETACH = b"\x1d"
# Whatever the program inside switched on, off again: alternate screen, mouse, bracketed paste, focus, application keys, colours.
RESTORE = b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"


# Strings for the terminal itself, up to their end: they may be for its clipboard, its keys, files or other windows.
_BEGIN = re.compile(rb"\x1b[]PX^_]|\xc2[\x90\x98\x9d-\x9f]")
_END = re.compile(rb"\x07|\x1b\\|\xc2\x9c|(?=[\x18\x1a])|(?=\x1b[^\\])")
_PART = re.compile(rb"[\x1b\xc2]\Z")
_HARMLESS = re.compile(rb"(?:\x1b\]|\xc2\x9d)(?:[01248]|1[012]|104|11[012]|133)(?:;|\Z|[\x07\x1b\xc2])")
"""Titles, colours, links, and where a prompt begins."""
_LONGEST = 1 << 16


class Screen:
    """What an agent prints, without what must not reach a person's terminal; tmux keeps that for itself too."""

    def __init__(self) -> None:
        self._held = b""

    def __call__(self, output: bytes) -> bytes:
        """What of it, and of what was held back before, may be shown now."""
        data, self._held = self._held + output, b""
        shown = []
        while begin := _BEGIN.search(data):
            start, end = begin.start(), _END.search(data, begin.end())
            shown.append(data[:start])
            if end is None:
                short = len(data) - start <= _LONGEST
                self._held = data[start:] if short else begin[0] + b"!" + data[-1:]  # nothing harmless, whatever comes
                return b"".join(shown)
            if _HARMLESS.match(data, start):
                shown.append(data[start : end.end()])
            data = data[end.end() :]
        if _PART.search(data):
            data, self._held = data[:-1], data[-1:]
        return b"".join((*shown, data))


class Detached(Exception):
    """The person pressed the key, or the terminal is closing."""


def main(path: str, name: str, watch: bool) -> int:
    """Attach until the key, the end of the agent, or the end of the terminal."""
    try:
        holder = dial(path)
    except (OSError, ValueError):
        sys.stderr.write(f"the terminal of {name} is gone: restore the session\n")
        return 1
    if not os.isatty(0):
        sys.stderr.write("attach needs a terminal\n")
        return 2
    before = termios.tcgetattr(0)
    why = "ended"
    try:
        tty.setraw(0)  # this drops what was typed before: nobody is invited to type yet
        os.write(1, f"[{name}: Ctrl-] detaches]\r\n".encode())
        relay(holder, watch)
    except Detached:
        why = "detached"
    finally:
        os.write(1, RESTORE)
        termios.tcsetattr(0, termios.TCSADRAIN, before)
    os.write(1, f"\r\n[{name}: {why}]\r\n".encode())
    return 0


def dial(path: str) -> socket.socket:
    """By a Unix socket, or by a file that names a port and a token."""
    if not os.path.isfile(path):  # noqa: PTH113 - pathlib is half of the time to start
        holder = socket.socket(socket.AF_UNIX)
        holder.connect(path)
        return holder
    with open(path, encoding="ascii") as file:  # noqa: PTH123
        port, token = file.read().split()
    holder = socket.create_connection(("127.0.0.1", int(port)))
    send(holder, b"T", token.encode())
    return holder


def relay(holder: socket.socket, watch: bool) -> None:
    """Keystrokes in, output out; for who only watches output alone."""
    wakeup, wake = os.pipe()
    for end in (wakeup, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    send(holder, b"W" if watch else b"A", size())
    screen = Screen()
    while True:
        ready, _, _ = select.select([0, holder.fileno(), wakeup], [], [])
        if wakeup in ready:
            if set(os.read(wakeup, 512)) - {signal.SIGWINCH}:
                raise Detached
            send(holder, b"R", size())
        if holder.fileno() in ready:
            try:
                output = holder.recv(65536)
            except ConnectionError:
                return
            if not output:
                return
            write_all(screen(output))
        if 0 in ready:
            keys = os.read(0, 65536)
            typed, detach, _ = keys.partition(DETACH)
            if typed and not watch:
                send(holder, b"K", typed)
            if detach or not keys:
                raise Detached


def send(holder: socket.socket, kind: bytes, body: bytes) -> None:
    """One frame; a holder that is gone shows at the next read."""
    try:
        holder.sendall(kind + len(body).to_bytes(4, "big") + body)
    except ConnectionError:
        return


def size() -> bytes:
    """This terminal's size."""
    try:
        columns, rows = os.get_terminal_size(1)
    except OSError:
        columns, rows = 80, 24
    return (columns or 80).to_bytes(2, "big") + (rows or 24).to_bytes(2, "big")


def write_all(output: bytes) -> None:
    """All of it, to a terminal that may take it in parts."""
    while output:
        output = output[os.write(1, output) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["watch"]))
