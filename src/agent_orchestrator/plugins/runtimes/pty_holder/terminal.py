"""What the holder knows of terminals: the modes a program has switched on, the scrollback, questions and answers."""

from __future__ import annotations

SCROLLBACK = 262144

# Programs ask the terminal and wait for its answer: while nobody is attached the holder gives it, otherwise the terminal
# that was attached or resized last. In the scrollback the questions are old, and an answer would be a stray keystroke.
ANSWERS = (
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[5n", b"\x1b[0n"),
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b[0c", b"\x1b[?62;22c"),
)
OTHER_QUESTIONS = (
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
    """Which private modes (bracketed paste, alternate screen …) a program has switched on, by its output."""

    def __init__(self) -> None:
        self.on: dict[bytes, bool] = {}
        self._rest = b""

    def feed(self, output: bytes) -> None:
        """Follow the output; a sequence may be split between two calls."""
        output = self._rest + output
        self._rest = b""
        at = output.find(b"\x1b")
        while at >= 0:
            end = at + 3
            while end < len(output) and (48 <= output[end] <= 57 or output[end] == 59):
                end += 1
            if end >= len(output):
                if output.startswith(b"\x1b[?"[: len(output) - at], at) and len(output) - at < 64:
                    self._rest = output[at:]
                    return
            elif output.startswith(b"\x1b[?", at) and output[end] in b"hl":
                for mode in output[at + 3 : end].split(b";"):
                    self.on.pop(mode, None)
                    if output[end] == 104:
                        self.on[mode] = True
            at = output.find(b"\x1b", at + 1)

    def sequence(self) -> bytes:
        """What brings a fresh terminal into these modes."""
        return b"".join(b"\x1b[?%sh" % mode for mode in self.on)


class Scrollback:
    """The end of the output, and what a fresh terminal must know before it."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._before = Modes()

    def add(self, output: bytes) -> None:
        """Append, and forget what is too old, up to the end of a line where there is one."""
        self._kept += output
        surplus = len(self._kept) - SCROLLBACK
        if surplus > 65536:
            line = self._kept.find(b"\n", surplus, surplus + 16384)
            cut = surplus if line < 0 else line + 1
            self._before.feed(bytes(self._kept[:cut]))
            del self._kept[:cut]

    def replay(self) -> bytes:
        """Bytes that show a fresh terminal what the others show."""
        output = self._before.sequence() + bytes(self._kept)
        for question in (*(question for question, _ in ANSWERS), *OTHER_QUESTIONS):
            output = output.replace(question, b"")
        return output


def without_answers(keys: bytes) -> bytes:
    """Keystrokes without what a terminal answers by itself: ESC [ numbers, then R, n or c."""
    at = keys.find(b"\x1b[")
    while at >= 0:
        end = at + 2
        while end < len(keys) and keys[end] in b"0123456789;?>":
            end += 1
        if end > at + 2 and keys[end : end + 1] in (b"R", b"n", b"c"):
            keys = keys[:at] + keys[end + 1 :]
            at = keys.find(b"\x1b[", at)
        else:
            at = keys.find(b"\x1b[", at + 2)
    return keys
