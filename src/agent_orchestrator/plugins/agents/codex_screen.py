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
    reason: str
    options: tuple[Option, ...]

    def keys(self, decision: str) -> Sequence[str] | None:
        """What to press; `always` is once here, since the rule is kept by us."""
        if decision == "deny":
            return ("Escape",)
        yes = next((option for option in self.options if option.text.startswith("Yes")), None)
        if yes is None:
            return None
        return (yes.key,) if yes.key else (yes.number,)


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
    head = next((number for number in range(len(above) - 1, -1, -1) if _HEAD.match(above[number])), None)
    if head is None:  # it began above what is visible, or is one of the questions at its start
        shown = [line.strip() for line in above if line.strip()]
        return Dialog("", "", shown[0] if shown else "", options)
    question, body = above[head].strip(), above[head + 1 :]
    fields = dict(re.findall(r"^  (\w+): (.*(?:\n  (?!\w+: )\S.*)*)", "\n".join(body), re.MULTILINE))
    reason = _joined(fields.get("Reason", ""))
    if "run the following command" in question:
        return Dialog("shell", _command(body), reason, options)
    if "make the following edits" in question:
        return Dialog("edit", _joined(fields.get("Destination", "")), reason, options)
    return Dialog(question.removeprefix("Would you like to ").rstrip("?"), _command(body), reason, options)


def _command(body: list[str]) -> str:
    start = next((number for number, line in enumerate(body) if line.startswith("  $ ")), None)
    if start is None:
        return ""
    found = [body[start][4:]]
    for line in body[start + 1 :]:
        if not line.strip():
            break
        found.append(line[2:])
    return _joined("\n".join(found))


def _joined(text: str) -> str:
    return " ".join(text.split())


def same(one: str, other: str) -> bool:
    """The same command, however the screen breaks its lines."""
    return "".join(one.split()) == "".join(other.split())


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
