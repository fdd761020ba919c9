"""Reads Claude Code's dialogs: what a request asks for, what the screen shows, and which key gives an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_TEXT_LENGTH = 2000
COMPARED_CHARACTERS = 48
"""The number of characters by which a dialog is matched to a command; longer commands are cut on the screen."""

_CHOSEN_LINE = re.compile(r"^(?P<indent>\s*)❯\s+(?:(?P<number>\d)\.\s+)?(?P<label>\S.*)$")
_NUMBERED_LINE = re.compile(r"^\s*(?:❯\s*)?(?P<number>\d)\.\s+(?P<label>\S.*)$")
_RULE_LINE = re.compile(r"^\s*[─━═▔╌]{20}")
_EDGE_LINE = re.compile(r"^\s*[─━═▔]{20}")
_RETRY_LINE = re.compile(r"^(?P<what>.*?)·\s*+Retrying in \S+(?:\s*+·\s*+(?P<attempt>attempt \d+/\d+))?", re.MULTILINE)
_LEADING_SYMBOLS = re.compile(r"\A\W+")

_SUBJECT_KEYS = ("command", "file_path", "notebook_path", "path", "url", "query", "pattern", "skill", "plan", "prompt")
"""The names of the tool argument that says what the tool is used for."""
_PATH_KEYS = ("file_path", "notebook_path", "path")
"""Arguments that name a file, which is shortened to its path in the workspace. A command never is: `WORKSPACE/git status` is a
program of the agent.
"""


@dataclass(frozen=True, slots=True)
class ClaudeDialogOption:
    """One option of a dialog, and the keys that choose it."""

    label: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClaudeDialog:
    """A dialog on the screen."""

    title: str
    text: str
    options: tuple[ClaudeDialogOption, ...]


def permission_subject(arguments: Mapping[str, Any], workspace: Path) -> tuple[str, str]:
    """Return what a tool is to be used for, and the agent's reason."""
    key = next((key for key in _SUBJECT_KEYS if arguments.get(key)), "")
    subject = str(arguments[key]) if key else ""
    if not subject and arguments:
        subject = json.dumps(arguments, ensure_ascii=False, sort_keys=True)
    if key in _PATH_KEYS and subject.startswith(f"{workspace}/"):
        subject = subject[len(str(workspace)) + 1 :]
    return subject, str(arguments.get("description") or "")[:MAX_TEXT_LENGTH]


def can_be_typed(arguments: Mapping[str, Any]) -> bool:
    """Return whether typed text answers the request: a single question does; several, or one with several answers, need keys."""
    questions = arguments.get("questions")
    return isinstance(questions, list) and len(questions) == 1 and not _is_multiple(questions[0])


def _is_multiple(question: object) -> bool:
    """Return whether a question takes several answers."""
    return isinstance(question, dict) and bool(question.get("multiSelect"))


def render_questions(arguments: Mapping[str, Any]) -> str:
    """Return the text of the questions of a dialog, each with its options."""
    questions = [item for item in arguments.get("questions") or () if isinstance(item, dict)]
    return "\n\n".join(_question_text(item) for item in questions)[:MAX_TEXT_LENGTH] or "a question"


def _question_text(question: Mapping[str, Any]) -> str:
    """Return the text of one question with its options."""
    options = [option for option in question.get("options") or () if isinstance(option, dict)]
    choices = [
        f"- {option.get('label')}" + (f": {option['description']}" if option.get("description") else "")
        for option in options
    ]
    return "\n".join([str(question.get("question") or ""), *choices])


def parse_dialog(screen: str) -> ClaudeDialog | None:
    """Return the dialog at the bottom of the screen, or None."""
    lines = [line.rstrip() for line in screen.splitlines()]
    chosen_line = next((number for number in range(len(lines) - 1, -1, -1) if _CHOSEN_LINE.match(lines[number])), None)
    if chosen_line is None:
        return None
    edges = [number for number in range(chosen_line) if _EDGE_LINE.match(lines[number])]
    start = edges[-1] + 1 if edges else 0
    options = _numbered_options(lines, start) or _listed_options(lines, chosen_line)
    body = [line.strip() for line in lines[start:] if line.strip() and not _RULE_LINE.match(line)]
    if not options or not body or _CHOSEN_LINE.match(lines[start]):
        return None  # this is the prompt, not a dialog
    return ClaudeDialog(body[0], "\n".join(lines[start:]), options)


def _numbered_options(lines: list[str], start: int) -> tuple[ClaudeDialogOption, ...]:
    """Return the options with a number, a key that chooses at once."""
    matches = [match for line in lines[start:] if (match := _NUMBERED_LINE.match(line))]
    first = next((number for number, match in enumerate(matches) if match["number"] == "1"), None)
    if first is None or not any("❯" in match[0] for match in matches):
        return ()
    return tuple(ClaudeDialogOption(match["label"].strip(), (match["number"],)) for match in matches[first:])


def _listed_options(lines: list[str], chosen_line: int) -> tuple[ClaudeDialogOption, ...]:
    """Return the options without numbers, one per line: arrow keys move to one, Enter chooses it."""
    column = re.search(r"❯\s+", lines[chosen_line])
    assert column is not None
    option_line = re.compile(rf"^\s{{{column.end()}}}\S")
    first = last = chosen_line
    while first > 0 and option_line.match(lines[first - 1]):
        first -= 1
    while last + 1 < len(lines) and option_line.match(lines[last + 1]):
        last += 1
    if first == last:
        return ()
    return tuple(
        ClaudeDialogOption(lines[number][column.end() :].strip(), (*_arrow_keys(number - chosen_line), "Enter"))
        for number in range(first, last + 1)
    )


def _arrow_keys(distance: int) -> tuple[str, ...]:
    """Return the arrow keys for a number of lines."""
    return ("Down",) * distance if distance >= 0 else ("Up",) * -distance


def key_for(dialog: ClaudeDialog, command: str, decision: str) -> tuple[str, ...] | None:
    """Return the keys that give this answer, or None if the dialog is about another command or has no such answer."""
    if command and not _is_about(dialog, command):
        return None
    if decision == "deny":
        return ("Escape",)
    yes_options = [option for option in dialog.options if re.match(r"Yes\b", option.label)]
    once_options = [
        option for option in yes_options if not re.match(r"Yes,? (?:and|allow|always)\b", option.label)
    ] or yes_options
    return once_options[0].keys if once_options else None


def _is_about(dialog: ClaudeDialog, command: str) -> bool:
    """Return whether the dialog shows the command, or the name of its file."""
    dialog_text, first_line = _squeeze(dialog.text), next((line for line in command.splitlines() if line.strip()), "")
    name = _squeeze(Path(first_line).name) if "/" in first_line and " " not in first_line.strip() else ""
    return _squeeze(first_line)[:COMPARED_CHARACTERS] in dialog_text or bool(name and name in dialog_text)


def _squeeze(text: str) -> str:
    """Return the text without blanks, since long lines are wrapped and indented."""
    return re.sub(r"\s+", "", text)


def prompt_text(screen: str) -> str:
    """Return the first line of the text in the prompt."""
    lines = screen.splitlines()
    edges = [number for number, line in enumerate(lines) if _EDGE_LINE.match(line)]
    first_line = lines[edges[-2] + 1] if len(edges) > 1 and edges[-2] + 1 < len(lines) else ""
    return first_line.removeprefix("❯").strip() if first_line.startswith("❯") else ""


def is_put_back(screen_text: str, message: str) -> bool:
    """Return whether the text in the prompt is the interrupted message; a long one is shown as a mark."""
    beginning = _squeeze(screen_text)[:COMPARED_CHARACTERS]
    return bool(beginning) and (beginning.startswith("[Pastedtext") or _squeeze(message).startswith(beginning))


def retried_error(screen: str) -> str:
    """Return the error that is being retried, from the line above the prompt, or ""."""
    lines = list(_RETRY_LINE.finditer(screen))
    if not lines:
        return ""
    last = lines[-1]
    error = last["what"].strip() or screen[: last.start()].rstrip().rpartition("\n")[2].strip()
    attempt = f", {last['attempt']}" if error and last["attempt"] else ""
    return f"{_LEADING_SYMBOLS.sub('', error) or error}{attempt}"
