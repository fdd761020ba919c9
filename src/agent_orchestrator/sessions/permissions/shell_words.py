"""A command line as plain words, or nothing: only what every shell reads in the same one way. Pure.

Words, quotes around plain text, and `&&` between commands. Whatever a shell would put something else in for (variables, substitutions,
home folders, braces), anything that redirects, and every character that is not seen, makes it more than plain words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent_orchestrator.protocols.text import is_seen

LONGEST = 10_000
MOST_COMMANDS = 8

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=+:,@%^~")
_GLOB = frozenset("*?")
_REFLOG = re.compile(r"@\{(?:-?\d{1,6}|u|upstream|push)\}")
"""The only braces that are words of their own in every shell."""
_IN_DOUBLE = frozenset('"$`\\')
_HERE = re.compile(r"\"\$\(cat <<'(EOF|MSG|END)'\n(?P<body>(?:(?!\1\n)[^\n]*\n)*?)\1\n *\)\"")
"""A message on several lines as agents like to write it: with a quoted end, nothing in it is the shell's."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word; `quoted` if any of it was, `several` if it may stand for other names (`src/*.py`)."""

    text: str
    quoted: bool = False
    several: bool = False


def commands(line: str) -> list[list[Word]] | None:
    """The commands of a line, which follow each other by `&&`; none where it is anything else."""
    if len(line) > LONGEST or "⟦" in line:
        return None
    found: list[list[Word]] = [[]]
    at = 0
    while at < len(line):
        if line[at] == " ":
            at += 1
        elif line.startswith("&&", at) and found[-1] and len(found) < MOST_COMMANDS:
            found.append([])
            at += 2
        else:
            read = _word(line, at) if line[at] != "&" else None
            if read is None:
                return None
            word, at = read
            found[-1].append(word)
            if at < len(line) and line[at] not in " &":
                return None
    return found if found[-1] else None


def _word(line: str, at: int) -> tuple[Word, int] | None:
    text, quoted, several, start = "", False, False, at
    while at < len(line) and line[at] not in " &":
        character = line[at]
        if here := _HERE.match(line, at):
            body = here["body"].removesuffix("\n")
            if at != start or not _all_plain(body, newlines=True) or _IN_DOUBLE & set(body):
                return None
            return Word(body, quoted=True), here.end()
        if character in "'\"":
            end = line.find(character, at + 1)
            inner = line[at + 1 : end]
            if end < 0 or not _all_plain(inner, newlines=True) or (character == '"' and _IN_DOUBLE & set(inner)):
                return None
            text, quoted, at = text + inner, True, end + 1
        elif braces := _REFLOG.match(line, at):
            text, at = text + braces[0], braces.end()
        elif _bare(character, before=line[at - 1] if at > start else ""):
            several = several or character in _GLOB
            text, at = text + character, at + 1
        else:
            return None
    return Word(text, quoted, several), at


def _bare(character: str, *, before: str) -> bool:
    """May it stand outside of quotes? At a word's beginning `=` is a program's path to some shells, `*` may turn into an option; `~` is
    a home folder there and behind `=` and `:`.
    """
    if character == "~":
        return before.isalnum() or before in tuple("^~}")
    if not before and (character == "=" or character in _GLOB):
        return False
    return (
        character in _BARE
        or character in _GLOB
        or (not character.isascii() and character.isalnum() and is_seen(character))
    )


def _all_plain(text: str, *, newlines: bool = False) -> bool:
    return all(is_seen(character) or (newlines and character == "\n") for character in text)
