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

_CHOSEN = re.compile(r"^(?P<indent>\s*)❯\s+(?:(?P<number>\d)\.\s+)?(?P<label>\S.*)$")
_NUMBERED = re.compile(r"^\s*(?:❯\s*)?(?P<number>\d)\.\s+(?P<label>\S.*)$")
_RULE = re.compile(r"^\s*[─━═▔╌]{20}")
_EDGE = re.compile(r"^\s*[─━═▔]{20}")
_RETRY = re.compile(r"^(?P<what>.*?)·\s*+Retrying in \S+(?:\s*+·\s*+(?P<attempt>attempt \d+/\d+))?", re.MULTILINE)
_AHEAD = re.compile(r"\A\W+")

_SUBJECTS = ("command", "file_path", "notebook_path", "path", "url", "query", "pattern", "skill", "plan", "prompt")
"""What a tool is used for, by the names that tools give it."""
_PATHS = ("file_path", "notebook_path", "path")
"""Those that name a file. A command is never shortened: `WORKSPACE/git status` is a program of the agent's own."""


@dataclass(frozen=True, slots=True)
class Option:
    """One line that can be chosen, and the keys that choose it."""

    label: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialog:
    """A dialog on the screen."""

    title: str
    text: str
    options: tuple[Option, ...]


def asked(given: Mapping[str, Any], workspace: Path) -> tuple[str, str]:
    """What a tool is to be used for, and why, by the agent's own words."""
    key = next((key for key in _SUBJECTS if given.get(key)), "")
    subject = str(given[key]) if key else ""
    if not subject and given:
        subject = json.dumps(given, ensure_ascii=False, sort_keys=True)
    if key in _PATHS and subject.startswith(f"{workspace}/"):
        subject = subject[len(str(workspace)) + 1 :]
    return subject, str(given.get("description") or "")[:LONGEST]


def can_be_typed(given: Mapping[str, Any]) -> bool:
    """A single question takes what is typed as its answer; several, or one with several answers, have keys of their own."""
    questions = given.get("questions")
    return isinstance(questions, list) and len(questions) == 1 and not _is_multiple(questions[0])


def _is_multiple(one: object) -> bool:
    return isinstance(one, dict) and bool(one.get("multiSelect"))


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
    chosen = next((number for number in range(len(lines) - 1, -1, -1) if _CHOSEN.match(lines[number])), None)
    if chosen is None:
        return None
    edges = [number for number in range(chosen) if _EDGE.match(lines[number])]
    start = edges[-1] + 1 if edges else 0
    options = _numbered(lines, start) or _listed(lines, chosen)
    body = [line.strip() for line in lines[start:] if line.strip() and not _RULE.match(line)]
    if not options or not body or _CHOSEN.match(lines[start]):
        return None  # the prompt itself
    return Dialog(body[0], "\n".join(lines[start:]), options)


def _numbered(lines: list[str], start: int) -> tuple[Option, ...]:
    """Options with a number: that key chooses it at once."""
    found = [match for line in lines[start:] if (match := _NUMBERED.match(line))]
    first = next((number for number, match in enumerate(found) if match["number"] == "1"), None)
    if first is None or not any("❯" in match[0] for match in found):
        return ()
    return tuple(Option(match["label"].strip(), (match["number"],)) for match in found[first:])


def _listed(lines: list[str], chosen: int) -> tuple[Option, ...]:
    """Options without numbers, one below the other: the arrow keys go to it, Enter chooses it."""
    column = re.search(r"❯\s+", lines[chosen])
    assert column is not None
    listed = re.compile(rf"^\s{{{column.end()}}}\S")
    first = last = chosen
    while first > 0 and listed.match(lines[first - 1]):
        first -= 1
    while last + 1 < len(lines) and listed.match(lines[last + 1]):
        last += 1
    if first == last:
        return ()
    return tuple(
        Option(lines[number][column.end() :].strip(), (*_moves(number - chosen), "Enter"))
        for number in range(first, last + 1)
    )


def _moves(distance: int) -> tuple[str, ...]:
    return ("Down",) * distance if distance >= 0 else ("Up",) * -distance


def key_for(dialog: Dialog, command: str, decision: str) -> tuple[str, ...] | None:
    """The key that gives this answer to the dialog; none: it is another dialog, or has no such answer."""
    if command and not _is_about(dialog, command):
        return None
    if decision == "deny":
        return ("Escape",)
    plain = [option for option in dialog.options if re.match(r"Yes\b", option.label)]
    once = [option for option in plain if not re.match(r"Yes,? (?:and|allow|always)\b", option.label)] or plain
    return once[0].keys if once else None


def _is_about(dialog: Dialog, command: str) -> bool:
    shown, first = _dense(dialog.text), next((line for line in command.splitlines() if line.strip()), "")
    name = _dense(Path(first).name) if "/" in first and " " not in first.strip() else ""
    return _dense(first)[:COMPARED] in shown or bool(name and name in shown)


def _dense(text: str) -> str:
    """Without blanks: long lines are wrapped, and indented."""
    return re.sub(r"\s+", "", text)


def draft(screen: str) -> str:
    """The first line of what stands in the prompt."""
    lines = screen.splitlines()
    edges = [number for number, line in enumerate(lines) if _EDGE.match(line)]
    first = lines[edges[-2] + 1] if len(edges) > 1 and edges[-2] + 1 < len(lines) else ""
    return first.removeprefix("❯").strip() if first.startswith("❯") else ""


def is_put_back(shown: str, message: str) -> bool:
    """Is what stands in the prompt the message that was being worked on? A long one is shown by a mark."""
    beginning = _dense(shown)[:COMPARED]
    return bool(beginning) and (beginning.startswith("[Pastedtext") or _dense(message).startswith(beginning))


def retry(screen: str) -> str:
    """Which error is being retried, by the line above the prompt; nothing where none is."""
    lines = list(_RETRY.finditer(screen))
    if not lines:
        return ""
    found = lines[-1]
    what = found["what"].strip() or screen[: found.start()].rstrip().rpartition("\n")[2].strip()
    attempt = f", {found['attempt']}" if what and found["attempt"] else ""
    return f"{_AHEAD.sub('', what) or what}{attempt}"
