"""A replacement of pywinpty on other systems: the same calls with a PTY."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import struct
import termios
import threading


class WinptyError(Exception):
    """The error that pywinpty raises at the end of output."""


class PTY:
    def __init__(self, cols: int, rows: int) -> None:
        self._size = (cols, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._status: int | None = None
        self._lock = threading.Lock()
        self.pid = 0

    def spawn(self, appname: str, cmdline: str | None = None, cwd: str | None = None, env: str | None = None) -> bool:
        argv = [appname, *_words(cmdline or "")]
        environment = dict(entry.split("=", 1) for entry in (env or "").split("\0") if entry)
        started, starting = os.pipe()  # closed when the program begins: the real call returns no sooner
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", self._size[1], self._size[0], 0, 0))
                os.chdir(cwd or "/")
                os.execve(appname, argv, environment)
            finally:
                os._exit(127)
        os.close(starting)
        os.read(started, 1)
        os.close(started)
        return True

    def read(self, blocking: bool = False) -> str:
        assert blocking
        try:
            data = os.read(self._master, 65536)
        except OSError:
            raise WinptyError("EOF") from None
        return self._decoder.decode(data)

    def write(self, to_write: str) -> int:
        data = to_write.encode()
        while data:
            data = data[os.write(self._master, data) :]
        return len(to_write)

    def set_size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def isalive(self) -> bool:
        with self._lock:
            if self._status is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._status = os.waitstatus_to_exitcode(status)
            return self._status is None

    def get_exitstatus(self) -> int | None:
        return None if self.isalive() else self._status


def _words(line: str) -> list[str]:
    """Split a command line as Windows programs do."""
    words: list[str] = []
    word, quoted, started, slashes = "", False, False, 0
    for letter in line:
        if letter == "\\":
            slashes += 1
            continue
        if letter == '"':
            word += "\\" * (slashes // 2)
            started = True
            if slashes % 2:
                word += '"'
            else:
                quoted = not quoted
        else:
            word += "\\" * slashes
            if letter in " \t" and not quoted:
                if word or started:
                    words.append(word)
                word, started = "", False
            else:
                word += letter
        slashes = 0
    word += "\\" * slashes
    return [*words, word] if word or started else words
