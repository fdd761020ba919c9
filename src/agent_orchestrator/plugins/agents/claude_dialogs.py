"""Claude Code's dialogs: what a request says, what the screen shows, and which key gives an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST = 2000
COMPARED = 48
"""Characters of a command by which a dialog is known to be about it; longer ones are shown cut."""

_OPTION = re.compile(r"^\s*(?P<at>❯)?\s*(?P<number>\d)\.\s+(?P<label>\S.*?)\s*$")
_RULE = re.compile(r"^\s*[─━═▔╌]{20,}\s*$")
_HINT = re.compile(r"\bEsc to (?:cancel|exit|go back)\b|\bEnter to (?:confirm|select|continue)\b", re.IGNORECASE)
_RETRY = re.compile(r"^\W*(?P<what>\S.*?)\s*·\s*Retrying in \S+(?:\s*·\s*(?P<attempt>attempt \d+/\d+))?", re.MULTILINE)

_SUBJECTS = ("command", "file_path", "notebook_path", "path", "url", "query", "pattern", "skill", "plan", "prompt")
"""What a tool is used for, by the names that tools give it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One line that can be chosen."""

    key: str
    label: str


@dataclass(frozen=True, slots=True)
class Dialog:
    """A dialog on the screen."""

    title: str
    text: str
    options: tuple[Option, ...]


def asked(given: Mapping[str, Any], workspace: Path) -> tuple[str, str]:
    """What a tool is to be used for, and why, by the agent's own words."""
    subject = next((str(given[key]) for key in _SUBJECTS if given.get(key)), "")
    if not subject and given:
        subject = json.dumps(given, ensure_ascii=False, sort_keys=True)
    if subject.startswith(f"{workspace}/"):
        subject = subject[len(str(workspace)) + 1 :]
    return subject[:LONGEST], str(given.get("description") or "")[:LONGEST]


def question(given: Mapping[str, Any]) -> str:
    """The questions that a dialog puts, each with its choices."""
    asked_ones = [one for one in given.get("questions") or () if isinstance(one, dict)]
    return "\n\n".join(_one_question(one) for one in asked_ones)[:LONGEST] or "a question"


def _one_question(one: Mapping[str, Any]) -> str:
    options = [option for option in one.get("options") or () if isinstance(option, dict)]
    choices = [
        f"- {option.get('label')}" + (f": {option['description']}" if option.get("description") else "")
        for option in options
    ]
    return "\n".join([str(one.get("question") or ""), *choices])


def read(screen: str) -> Dialog | None:
    """The dialog at the bottom of the screen; none where there is none."""
    lines = [line.rstrip() for line in screen.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    numbers = [number for number, line in enumerate(lines) if _OPTION.match(line)]
    hinted = any(_HINT.search(line) for line in lines[-6:])
    if not numbers or not (hinted or any("❯" in lines[number] for number in numbers)):
        return None
    first = _first_option(lines, numbers)
    start = next((number + 1 for number in range(first - 1, -1, -1) if re.match(r"^\s*[─━═▔]{20,}", lines[number])), 0)
    body = lines[start:first]
    options = tuple(Option(match["number"], match["label"]) for line in lines[first:] if (match := _OPTION.match(line)))
    title = next((line.strip() for line in body if line.strip() and not _RULE.match(line)), "a dialog")
    return Dialog(title, "\n".join(lines[start:]), options)


def _first_option(lines: list[str], numbers: list[int]) -> int:
    """The last list on the screen that begins with 1."""
    for number in reversed(numbers):
        match = _OPTION.match(lines[number])
        if match and match["number"] == "1":
            return number
    return numbers[0]


def key_for(dialog: Dialog, command: str, decision: str) -> tuple[str, ...] | None:
    """The key that gives this answer to the dialog; none: it is another dialog, or has no such answer."""
    if command and not _is_about(dialog, command):
        return None
    if decision == "deny":
        return ("Escape",)
    plain = [option for option in dialog.options if re.match(r"Yes\b", option.label)]
    once = [option for option in plain if not re.match(r"Yes,? (?:and|allow|always)\b", option.label)] or plain
    return (once[0].key,) if once else None


def _is_about(dialog: Dialog, command: str) -> bool:
    shown = re.sub(r"\s+", "", dialog.text)
    beginning = re.sub(r"\s+", "", command)[:COMPARED]
    name = re.sub(r"\s+", "", Path(command.splitlines()[0]).name) if "/" in command else beginning
    return beginning in shown or bool(name and name in shown)


def retry(screen: str) -> str:
    """Which error is being retried, by the line above the prompt; nothing where none is."""
    lines = list(_RETRY.finditer(screen))
    if not lines:
        return ""
    found = lines[-1]
    attempt = f", {found['attempt']}" if found["attempt"] else ""
    return f"{found['what']}{attempt}"
