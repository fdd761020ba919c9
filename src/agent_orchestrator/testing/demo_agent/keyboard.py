"""The scripted agent's standard input: keys, pastes and messages."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable

from .output import record, show

PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
UNPRINTABLE_BYTES = bytes(set(range(32)) - set(b"\t\n")) + b"\x7f"
ESCAPE_TIMEOUT = 0.05


class Interrupted(Exception):
    """A person pressed Escape or Ctrl-C."""


class Keyboard:
    """Standard input as keys and messages: a terminal in cbreak mode with bracketed paste, or a pipe read by lines."""

    def __init__(self) -> None:
        self.is_terminal = os.isatty(0)
        self.is_closed = False
        self.messages: list[str] = []
        self.keys: list[str] = []
        self.is_in_dialog = False
        self.is_editing = False
        self._buffer = b""
        self._buffered_since = 0.0
        self._line = b""
        self._is_pasting = False
        self._restore: Callable[[], None] = lambda: None
        self._signals, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def open(self) -> None:
        """Switch the terminal to single keys and bracketed paste; input that was typed before is kept."""
        if not self.is_terminal:
            return
        import termios

        before, settings = termios.tcgetattr(0), termios.tcgetattr(0)
        settings[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
        termios.tcsetattr(0, termios.TCSANOW, settings)
        self._restore = lambda: termios.tcsetattr(0, termios.TCSANOW, before)
        show("\x1b[?2004h")

    def close(self) -> None:
        """Restore the terminal's settings."""
        if self.is_terminal:
            try:
                os.write(1, b"\x1b[?2004l\r")
                self._restore()
            except Exception:  # the terminal may be gone, and termios.error is not an OSError
                return

    def poll(self, timeout: float | None) -> None:
        """Read input, waiting at most `timeout` seconds; raise `Interrupted` on Escape or Ctrl-C."""
        if self._buffer:
            timeout = ESCAPE_TIMEOUT if timeout is None else min(timeout, ESCAPE_TIMEOUT)
        watched = [self._signals] if self.is_closed else [0, self._signals]
        ready = select.select(watched, [], [], timeout)[0]
        if self._signals in ready and signal.SIGINT in os.read(self._signals, 4096):
            raise Interrupted
        if 0 in ready:
            self._read()
        self._process_buffer()

    def _read(self) -> None:
        try:
            data = os.read(0, 65536)
        except OSError:
            data = b""
        if not data:
            self.is_closed = True
            self._submit()
        self._buffer += data
        self._buffered_since = time.monotonic()

    def _process_buffer(self) -> None:
        while self._buffer:
            if self._is_pasting:
                text, end, rest = self._buffer.partition(PASTE_END)
                if not end:
                    keep = len(PASTE_END) - 1
                    text, rest = self._buffer[:-keep], self._buffer[-keep:]
                self._type(text, pasted=True)
                self._buffer, self._is_pasting = rest, not end
                if not end:
                    return
            elif self._buffer[:1] == b"\x1b":
                if not self._remove_escape_sequence():
                    return
            else:
                byte, self._buffer = self._buffer[:1], self._buffer[1:]
                self._press(byte)

    def _remove_escape_sequence(self) -> bool:
        """Remove an escape sequence from the buffer; return False if it may be incomplete."""
        if self._buffer.startswith(PASTE_BEGIN):
            self._buffer = self._buffer[len(PASTE_BEGIN) :]
            self._is_pasting = True
            return True
        sequence = re.match(rb"\x1b(\[[0-?]*[ -/]*[@-~]|O[@-~])", self._buffer)
        if sequence:
            self._buffer = self._buffer[sequence.end() :]
            return True
        is_complete = len(self._buffer) > 1 and self._buffer[1:2] not in (b"[", b"O")
        if not is_complete and time.monotonic() - self._buffered_since < ESCAPE_TIMEOUT:
            return False
        self._buffer = self._buffer[1:]
        raise Interrupted

    def _press(self, byte: bytes) -> None:
        if self.is_in_dialog:
            self.keys.append(byte.decode(errors="replace"))
        elif byte in (b"\r", b"\n"):
            self._submit()
        elif byte in (b"\x7f", b"\b"):
            self._line = self._line.decode(errors="replace")[:-1].encode()
        elif byte == b"\x15":
            self._line = b""
        elif byte == b"\x04":
            if not self._line:
                self.is_closed = True
        elif byte == b"\x03":
            raise Interrupted
        elif byte == b"\t" or byte >= b" ":
            self._type(byte, pasted=False)

    def _type(self, text: bytes, *, pasted: bool) -> None:
        if self.is_in_dialog:
            if text:
                record("dialog-input", text=text.decode(errors="replace"), pasted=pasted)
            return
        self._line += text
        if self.is_editing and self.is_terminal:
            show(text.replace(b"\r", b"\n").translate(None, UNPRINTABLE_BYTES))

    def _submit(self) -> None:
        text = self._line.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        self._line = b""
        text = CONTROL.sub("", text).strip()
        if text:
            self.messages.append(text)
