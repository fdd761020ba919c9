"""Reads what Codex shows in its terminal: the status that it writes for terminals (`OSC 7501`), its dialogs, its retries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

READY = re.compile(r"^› (?!\d\. )", re.MULTILINE)
BUSY = re.compile(r"esc to interrupt")
CONFIRM_HINT = re.compile(r"^  Press enter to confirm or esc to cancel", re.MULTILINE)
RETRYING = re.compile(r"^\W*(Reconnecting\.\.\.[^(\n]*)\(.*esc to interrupt.*\n(?: *└ (.*))?", re.MULTILINE)
LOGIN = re.compile(r"Sign in with ChatGPT")
NOT_LOGGED_IN = "Codex is not logged in: run `codex login`, or log in in its terminal"

_OPTION = re.compile(r"^(?P<chosen>[›>] |  )(?P<number>\d)\. (?P<text>.*?)(?: \((?P<key>\w{1,3})\))?$")
_QUESTION_LINE = re.compile(r"^  (?!\w+: )\S.*\?$")
_QUESTION_START = "  Would you like to "
_CUT_MARK = re.compile(r"  \[… \d+ lines?\]")
_FOOT_LINE = re.compile(r"  .*\b(?:enter|esc)\b")
_SIGNAL = re.compile(rb"\x1b\]7501;([^\x07\x1b]*)(?:\x07|\x1b\\)|(Reconnecting\.\.\.)|(Working)")
_MAX_STATUS_BYTES = 200
_MAX_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CodexDialogOption:
    """One line of a dialog's menu."""

    number: str
    text: str
    key: str


@dataclass(frozen=True, slots=True)
class CodexDialog:
    """A question that waits for an answer."""

    tool: str
    """"" if the screen does not say: its beginning is out of sight, or it is one of the questions at the start."""
    command: str
    """The command as the screen shows it, with lines wrapped at its edge."""
    reason: str
    options: tuple[CodexDialogOption, ...]
    is_cut: bool = False
    """Whether only the beginning of the command is shown."""
    alternative_commands: tuple[str, ...] = ()
    """Other readings of the command, in case what looks like its beginning belongs to something else."""

    def keys(self, decision: str) -> Sequence[str] | None:
        """Return the keys for a decision, or None if it is no yes-or-no question; `always` presses yes once, since the rule is
        kept by us.
        """
        yes = next((option for option in self.options if option.text.startswith("Yes")), None)
        if yes is None:
            return None
        if decision == "deny":
            return ("Escape",)
        return (yes.key,) if yes.key else (yes.number,)

    def shows(self, command: str) -> bool:
        """Return whether the dialog may show this command, as far as the screen shows it."""
        squeezed_command = _squeeze(command)
        texts = [_squeeze(text) for text in (self.command, *self.alternative_commands)]
        return any(
            text and (squeezed_command.startswith(text) if self.is_cut else squeezed_command == text) for text in texts
        )

    def can_be_for(self, permission: str) -> bool:
        """Return whether this can be the dialog of a permission request that was reported."""
        squeezed_permission = _squeeze(permission)
        texts = [_squeeze(text) for text in (self.command, *self.alternative_commands)]
        return not self.command or any(
            text in squeezed_permission if self.is_cut else squeezed_permission.endswith(text) for text in texts
        )


def parse_dialog(screen: str) -> CodexDialog | None:
    """Return the open dialog, or None if Codex takes messages or works."""
    lines = [line.rstrip() for line in screen.splitlines()]
    last_line = next((number for number in range(len(lines) - 1, -1, -1) if lines[number]), -1)
    option_lines = [number for number, line in enumerate(lines) if _OPTION.match(line)]
    if not option_lines or last_line - option_lines[-1] > 4 or not _FOOT_LINE.match(lines[last_line]):
        return None
    if any(READY.match(line) for line in lines[option_lines[-1] + 1 :]):
        return None
    first_option = option_lines[-1]
    while first_option - 1 in option_lines or (first_option and lines[first_option - 1].startswith("     ")):
        first_option -= 1
    options = tuple(
        CodexDialogOption(match["number"], match["text"], match["key"] or "")
        for match in (_OPTION.match(line) for line in lines[first_option : option_lines[-1] + 1])
        if match
    )
    return _build_dialog(lines[:first_option], options)


def _build_dialog(above: list[str], options: tuple[CodexDialogOption, ...]) -> CodexDialog:
    """Build the dialog from the lines above its options."""
    heads = [number for number, line in enumerate(above) if _QUESTION_LINE.match(line)]
    known_heads = [number for number in heads if above[number].startswith(_QUESTION_START)]
    if not heads:  # its beginning is scrolled out of sight, or it is a question at the start
        visible = [line.strip() for line in above if line.strip()]
        return CodexDialog("", "", visible[0] if visible else "", options)
    head = known_heads[0] if known_heads else heads[-1]
    question, body = above[head].strip(), above[head + 1 :]
    fields = dict(re.findall(r"^  (\w+): (.*(?:\n  (?!\w+: )\S.*)*)", "\n".join(body), re.MULTILINE))
    reason = " ".join(fields.get("Reason", "").split())
    if "make the following edits" in question:
        return CodexDialog("edit", "".join(fields.get("Destination", "").split("\n  ")), reason, options)
    tool = (
        "shell"
        if "run the following command" in question
        else question.removeprefix(_QUESTION_START.strip()).strip(" ?")
    )
    cut = any(_CUT_MARK.match(line) for line in body)
    body = [line for line in body if not _CUT_MARK.match(line)]
    commands = [_command_at(body, number) for number, line in enumerate(body) if line.startswith("  $ ")]
    return CodexDialog(tool, commands[0] if commands else "", reason, options, cut, tuple(commands[1:]))


def _command_at(body: list[str], start: int) -> str:
    """Return the command that starts at this line of the body."""
    return "\n".join([body[start][4:], *(line[2:] for line in body[start + 1 :])]).rstrip()


def _squeeze(text: str) -> str:
    """Return the text without blanks, since the screen wraps lines."""
    return "".join(text.split())


@dataclass(frozen=True, slots=True)
class TerminalStatus:
    """A status that Codex wrote to its terminal, and its place in the log."""

    state: str
    """`idle`, `working`, `blocked` or `error`; `retrying` and `at work` are derived from the printed text."""
    start: int
    end: int


class TerminalStatusReader:
    """The statuses that Codex wrote to its terminal since its launch, or since the last one that was reported."""

    cursor_name = "terminal"

    def __init__(self, log: Path, offset: int) -> None:
        self._log = log
        self._offset = offset

    def read(self) -> list[TerminalStatus]:
        """Return the new statuses since the last read."""
        try:
            with self._log.open("rb") as file:
                size = file.seek(0, 2)
                start = max(self._offset if self._offset <= size else 0, size - _MAX_READ_BYTES)
                file.seek(start)
                data = file.read(size - start)
        except OSError:
            return []
        signals, last_end = [], 0
        for match in _SIGNAL.finditer(data):
            last_end = match.end()
            status = re.match(rb"state=(\w+)", match[1] or b"")
            state = status[1].decode() if status else "retrying" if match[2] else "at work" if match[3] else ""
            signals.append(TerminalStatus(state, start + match.start(), start + last_end))
        self._offset = start + max(last_end, len(data) - _MAX_STATUS_BYTES)
        return signals
