"""Shows a held terminal in a person's terminal: `python -I attach.py SOCKET NAME [watch]`. Ctrl-] detaches.

A separate script that needs only the standard library. It restores the terminal's state when it ends, whatever the reason.
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

DETACH_KEY = b"\x1d"
# Switches off what the program may have switched on: alternate screen, mouse, bracketed paste, focus, application keys, colours.
RESET_MODES = (
    b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"
)


# Strings for the terminal itself: they could write its clipboard, redefine keys, write files or change other windows.
_STRING_BEGIN = re.compile(rb"\x1b[]PX^_]|\xc2[\x90\x98\x9d-\x9f]")
_STRING_END = re.compile(rb"\x07|\x1b\\|\xc2\x9c|(?=[\x18\x1a])|(?=\x1b[^\\])")
_PARTIAL_BEGIN = re.compile(rb"[\x1b\xc2]\Z")
_HARMLESS_STRING = re.compile(rb"(?:\x1b\]|\xc2\x9d)(?:[01248]|1[012]|104|11[012]|133)(?:;|\Z|[\x07\x1b\xc2])")
"""Matches strings that are passed on: titles, colours, links, and marks where a prompt begins."""
_MAX_STRING = 1 << 16


class OutputFilter:
    """Filters an agent's output: removes what must not reach a person's terminal. tmux does the same with its panes."""

    def __init__(self) -> None:
        self._unfinished = b""

    def __call__(self, output: bytes) -> bytes:
        """Return the part of the output, and of what was held back before, that may be shown now."""
        data, self._unfinished = self._unfinished + output, b""
        parts = []
        while begin := _STRING_BEGIN.search(data):
            start, end = begin.start(), _STRING_END.search(data, begin.end())
            parts.append(data[:start])
            if end is None:
                # A string that is too long is dropped: its beginning is kept with a mark that never matches as harmless.
                is_short = len(data) - start <= _MAX_STRING
                self._unfinished = data[start:] if is_short else begin[0] + b"!" + data[-1:]
                return b"".join(parts)
            if _HARMLESS_STRING.match(data, start):
                parts.append(data[start : end.end()])
            data = data[end.end() :]
        if _PARTIAL_BEGIN.search(data):
            data, self._unfinished = data[:-1], data[-1:]
        return b"".join((*parts, data))


class DetachRequested(Exception):
    """Raised when the person pressed the detach key, or the terminal is closing."""


def main(path: str, name: str, watch: bool) -> int:
    """Attach until the detach key, the end of the agent, or the end of the terminal; return the exit code."""
    try:
        holder = dial(path)
    except (OSError, ValueError):
        sys.stderr.write(f"the terminal of {name} is gone: restore the session\n")
        return 1
    if not os.isatty(0):
        sys.stderr.write("attach needs a terminal\n")
        return 2
    saved_attributes = termios.tcgetattr(0)
    reason = "ended"
    try:
        tty.setraw(0)  # this drops what was typed before the prompt
        os.write(1, f"[{name}: Ctrl-] detaches]\r\n".encode())
        relay(holder, watch)
    except DetachRequested:
        reason = "detached"
    finally:
        os.write(1, RESET_MODES)
        termios.tcsetattr(0, termios.TCSADRAIN, saved_attributes)
    os.write(1, f"\r\n[{name}: {reason}]\r\n".encode())
    return 0


def dial(path: str) -> socket.socket:
    """Connect to the holder by a Unix socket, or by a file that contains a port and a token."""
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
    """Pass keystrokes to the holder and its output to the terminal; with `watch` only the output."""
    wakeup_read, wakeup_write = os.pipe()
    for end in (wakeup_read, wakeup_write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakeup_write)
    for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    send(holder, b"W" if watch else b"A", size())
    screen = OutputFilter()
    while True:
        ready, _, _ = select.select([0, holder.fileno(), wakeup_read], [], [])
        if wakeup_read in ready:
            if set(os.read(wakeup_read, 512)) - {signal.SIGWINCH}:
                raise DetachRequested
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
            typed, detach, _ = keys.partition(DETACH_KEY)
            if typed and not watch:
                send(holder, b"K", typed)
            if detach or not keys:
                raise DetachRequested


def send(holder: socket.socket, kind: bytes, body: bytes) -> None:
    """Send one frame; if the holder is gone, the next read shows it."""
    try:
        holder.sendall(kind + len(body).to_bytes(4, "big") + body)
    except ConnectionError:
        return


def size() -> bytes:
    """Return this terminal's size as the holder expects it."""
    try:
        columns, rows = os.get_terminal_size(1)
    except OSError:
        columns, rows = 80, 24
    return (columns or 80).to_bytes(2, "big") + (rows or 24).to_bytes(2, "big")


def write_all(output: bytes) -> None:
    """Write all output to a terminal that may accept it in parts."""
    while output:
        output = output[os.write(1, output) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["watch"]))
