"""What the holder tracks of terminals: the modes a program has switched on, the scrollback, terminal queries and their answers."""

from __future__ import annotations

MAX_SCROLLBACK_BYTES = 262144

# Programs query the terminal and wait for its answer: the holder answers while nothing is attached, otherwise the terminal
# that was attached or resized last. Queries in the scrollback are old: an answer to one would be a stray keystroke.
ANSWERS = (
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[5n", b"\x1b[0n"),
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b[0c", b"\x1b[?62;22c"),
)
OTHER_QUERIES = (
    b"\x1b[?6n",
    b"\x1b[>c",
    b"\x1b[>0c",
    b"\x1b[>q",
    b"\x1b[>0q",
    b"\x1b[?u",
    b"\x1b]10;?",
    b"\x1b]11;?",
    b"\x1b]4;",
)


class Modes:
    """The private modes (bracketed paste, alternate screen …) that a program has switched on, according to its output."""

    def __init__(self) -> None:
        self.active: dict[bytes, bool] = {}
        self._unfinished = b""

    def feed(self, output: bytes) -> None:
        """Update the modes from the output; a sequence may be split between two calls."""
        output = self._unfinished + output
        self._unfinished = b""
        position = output.find(b"\x1b")
        while position >= 0:
            end = position + 3
            while end < len(output) and (48 <= output[end] <= 57 or output[end] == 59):
                end += 1
            if end >= len(output):
                if output.startswith(b"\x1b[?"[: len(output) - position], position) and len(output) - position < 64:
                    self._unfinished = output[position:]
                    return
            elif output.startswith(b"\x1b[?", position) and output[end] in b"hl":
                for mode in output[position + 3 : end].split(b";"):
                    self.active.pop(mode, None)
                    if output[end] == 104:
                        self.active[mode] = True
            position = output.find(b"\x1b", position + 1)

    def sequence(self) -> bytes:
        """Return the sequence that switches a fresh terminal to these modes."""
        return b"".join(b"\x1b[?%sh" % mode for mode in self.active)


class Scrollback:
    """The end of the output, and the modes that a fresh terminal needs before it."""

    def __init__(self) -> None:
        self._output = bytearray()
        self._modes_before = Modes()

    def add(self, output: bytes) -> None:
        """Append output and drop the oldest, up to the end of a line if there is one."""
        self._output += output
        surplus = len(self._output) - MAX_SCROLLBACK_BYTES
        if surplus > 65536:
            line = self._output.find(b"\n", surplus, surplus + 16384)
            cut = surplus if line < 0 else line + 1
            self._modes_before.feed(bytes(self._output[:cut]))
            del self._output[:cut]

    def replay(self) -> bytes:
        """Return the bytes that bring a fresh terminal to the current state, without terminal queries."""
        output = self._modes_before.sequence() + bytes(self._output)
        for question in (*(question for question, _ in ANSWERS), *OTHER_QUERIES):
            output = output.replace(question, b"")
        return output


def without_answers(keys: bytes) -> bytes:
    """Return keystrokes without a terminal's answers to queries: ESC [ numbers, then R, n or c."""
    position = keys.find(b"\x1b[")
    while position >= 0:
        end = position + 2
        while end < len(keys) and keys[end] in b"0123456789;?>":
            end += 1
        if end > position + 2 and keys[end : end + 1] in (b"R", b"n", b"c"):
            keys = keys[:position] + keys[end + 1 :]
            position = keys.find(b"\x1b[", position)
        else:
            position = keys.find(b"\x1b[", position + 2)
    return keys
