"""What Codex shows in its terminal: the status it writes there for terminals (`OSC 7501`), its dialogs, its retries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

READY = re.compile(r"^› (?!\d\. )", re.MULTILINE)
BUSY = re.compile(r"esc to interrupt")
ASKS = re.compile(r"^  Press enter to confirm or esc to cancel", re.MULTILINE)
RETRYING = re.compile(r"^\W*(Reconnecting\.\.\.[^(\n]*)\(.*esc to interrupt.*\n(?: *└ (.*))?", re.MULTILINE)
LOGIN = re.compile(r"Sign in with ChatGPT")
NOT_LOGGED_IN = "Codex is not logged in: run `codex login`, or log in in its terminal"

_OPTION = re.compile(r"^(?P<chosen>[›>] |  )(?P<number>\d)\. (?P<text>.*?)(?: \((?P<key>\w{1,3})\))?$")
_HEAD = re.compile(r"^  (?!\w+: )\S.*\?$")
_ASKS = "  Would you like to "
_CUT = re.compile(r"  \[… \d+ lines?\]")
_FOOT = re.compile(r"  .*\b(?:enter|esc)\b")
_SIGNAL = re.compile(rb"\x1b\]7501;([^\x07\x1b]*)(?:\x07|\x1b\\)|(Reconnecting\.\.\.)|(Working)")
_LONGEST_SIGNAL = 200
_FARTHEST_BACK = 1 << 20


@dataclass(frozen=True, slots=True)
class Option:
    """One line of a dialog's menu."""

    number: str
    text: str
    key: str


@dataclass(frozen=True, slots=True)
class Dialog:
    """A question that it waits to be answered."""

    tool: str
    """Empty where it does not say: its beginning is out of sight, or it is one of the questions at a start."""
    command: str
    """As the screen shows it: lines are broken at its edge."""
    reason: str
    options: tuple[Option, ...]
    cut: bool = False
    """Only the beginning of the command is shown."""
    others: tuple[str, ...] = ()
    """What the command is if what looks like its beginning belongs to something else."""

    def keys(self, decision: str) -> Sequence[str] | None:
        """What to press; `always` is once here, since the rule is kept by us. None: it is no question of yes or no."""
        yes = next((option for option in self.options if option.text.startswith("Yes")), None)
        if yes is None:
            return None
        if decision == "deny":
            return ("Escape",)
        return (yes.key,) if yes.key else (yes.number,)

    def shows(self, command: str) -> bool:
        """Is this the command that is shown, as far as it can be told?"""
        whole = _squeezed(command)
        shown = [_squeezed(text) for text in (self.command, *self.others)]
        return any(text and (whole.startswith(text) if self.cut else whole == text) for text in shown)

    def may_be(self, permission: str) -> bool:
        """Can this be the dialog that a permission was told of?"""
        whole = _squeezed(permission)
        shown = [_squeezed(text) for text in (self.command, *self.others)]
        return not self.command or any(text in whole if self.cut else whole.endswith(text) for text in shown)


def read(screen: str) -> Dialog | None:
    """The dialog that is open; none: it takes messages, or works."""
    lines = [line.rstrip() for line in screen.splitlines()]
    last = next((number for number in range(len(lines) - 1, -1, -1) if lines[number]), -1)
    ends = [number for number, line in enumerate(lines) if _OPTION.match(line)]
    if not ends or last - ends[-1] > 4 or not _FOOT.match(lines[last]):
        return None
    if any(READY.match(line) for line in lines[ends[-1] + 1 :]):
        return None
    first = ends[-1]
    while first - 1 in ends or (first and lines[first - 1].startswith("     ")):
        first -= 1
    options = tuple(
        Option(found["number"], found["text"], found["key"] or "")
        for found in (_OPTION.match(line) for line in lines[first : ends[-1] + 1])
        if found
    )
    return _dialog(lines[:first], options)


def _dialog(above: list[str], options: tuple[Option, ...]) -> Dialog:
    heads = [number for number, line in enumerate(above) if _HEAD.match(line)]
    known = [number for number in heads if above[number].startswith(_ASKS)]
    if not heads:  # it began above what is visible, or is one of the questions at its start
        shown = [line.strip() for line in above if line.strip()]
        return Dialog("", "", shown[0] if shown else "", options)
    head = known[0] if known else heads[-1]
    question, body = above[head].strip(), above[head + 1 :]
    fields = dict(re.findall(r"^  (\w+): (.*(?:\n  (?!\w+: )\S.*)*)", "\n".join(body), re.MULTILINE))
    reason = " ".join(fields.get("Reason", "").split())
    if "make the following edits" in question:
        return Dialog("edit", "".join(fields.get("Destination", "").split("\n  ")), reason, options)
    tool = "shell" if "run the following command" in question else question.removeprefix(_ASKS.strip()).strip(" ?")
    cut = any(_CUT.match(line) for line in body)
    body = [line for line in body if not _CUT.match(line)]
    commands = [_command(body, number) for number, line in enumerate(body) if line.startswith("  $ ")]
    return Dialog(tool, commands[0] if commands else "", reason, options, cut, tuple(commands[1:]))


def _command(body: list[str], start: int) -> str:
    return "\n".join([body[start][4:], *(line[2:] for line in body[start + 1 :])]).rstrip()


def _squeezed(text: str) -> str:
    return "".join(text.split())


@dataclass(frozen=True, slots=True)
class Signal:
    """A status that it wrote to its terminal, and where in the log."""

    state: str
    """`idle`, `working`, `blocked` or `error`; `retrying` and `at work` by what it shows."""
    start: int
    end: int


class Signals:
    """The statuses that it wrote to its terminal since its launch, or since the last one that was told of."""

    place = "terminal"

    def __init__(self, log: Path, offset: int) -> None:
        self._log = log
        self._offset = offset

    def read(self) -> list[Signal]:
        """Those that came since the last reading."""
        try:
            with self._log.open("rb") as file:
                size = file.seek(0, 2)
                start = max(self._offset if self._offset <= size else 0, size - _FARTHEST_BACK)
                file.seek(start)
                data = file.read(size - start)
        except OSError:
            return []
        found, seen = [], 0
        for match in _SIGNAL.finditer(data):
            seen = match.end()
            status = re.match(rb"state=(\w+)", match[1] or b"")
            state = status[1].decode() if status else "retrying" if match[2] else "at work" if match[3] else ""
            found.append(Signal(state, start + match.start(), start + seen))
        self._offset = start + max(seen, len(data) - _LONGEST_SIGNAL)
        return found
