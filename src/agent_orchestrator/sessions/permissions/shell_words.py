"""Parses a command line into plain words if every shell reads it the same way: `parse_commands(line)`. Pure.

Accepted are words, quotes around plain text, and `&&` between commands. Everything that a shell would replace (variables, substitutions,
home folders, braces), redirections and invisible characters are rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent_orchestrator.protocols.text import is_visible

MAX_LINE_LENGTH = 10_000
"""Maximum length of a command line."""
MAX_COMMANDS = 8
"""Maximum number of commands in a line."""

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=+:,@%^~")
_GLOB = frozenset("*?")
_REFLOG = re.compile(r"@\{(?:-?\d{1,6}|u|upstream|push)\}")
"""The only braces that every shell leaves alone."""
_IN_DOUBLE = frozenset('"$`\\')
_HERE = re.compile(r"\"\$\(cat <<'(EOF|MSG|END)'\n(?P<body>(?:(?!\1\n)[^\n]*\n)*?)\1\n *\)\"")
"""A message on several lines as agents write it: because the end mark is quoted, the shell expands nothing in it."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word; `quoted` if any of it was, `several` if it may stand for several names (`src/*.py`)."""

    text: str
    quoted: bool = False
    is_pattern: bool = False


def parse_commands(line: str) -> list[list[Word]] | None:
    """Return the commands of a line that are joined by `&&`, or None for anything else."""
    if len(line) > MAX_LINE_LENGTH or "⟦" in line:
        return None
    commands_so_far: list[list[Word]] = [[]]
    position = 0
    while position < len(line):
        if line[position] == " ":
            position += 1
        elif line.startswith("&&", position) and commands_so_far[-1] and len(commands_so_far) < MAX_COMMANDS:
            commands_so_far.append([])
            position += 2
        else:
            parsed = _parse_word(line, position) if line[position] != "&" else None
            if parsed is None:
                return None
            word, position = parsed
            commands_so_far[-1].append(word)
            if position < len(line) and line[position] not in " &":
                return None
    return commands_so_far if commands_so_far[-1] else None


def _parse_word(line: str, position: int) -> tuple[Word, int] | None:
    """Return the word that begins at a position and the position after it, or None if it is not plain."""
    text, quoted, several, start = "", False, False, position
    while position < len(line) and line[position] not in " &":
        character = line[position]
        if heredoc := _HERE.match(line, position):
            body = heredoc["body"].removesuffix("\n")
            if position != start or not _is_plain(body, newlines=True) or _IN_DOUBLE & set(body):
                return None
            return Word(body, quoted=True), heredoc.end()
        if character in "'\"":
            end = line.find(character, position + 1)
            inner = line[position + 1 : end]
            if end < 0 or not _is_plain(inner, newlines=True) or (character == '"' and _IN_DOUBLE & set(inner)):
                return None
            text, quoted, position = text + inner, True, end + 1
        elif braces := _REFLOG.match(line, position):
            text, position = text + braces[0], braces.end()
        elif _may_be_unquoted(character, before=line[position - 1] if position > start else ""):
            several = several or character in _GLOB
            text, position = text + character, position + 1
        else:
            return None
    return Word(text, quoted, several), position


def _may_be_unquoted(character: str, *, before: str) -> bool:
    """Return whether a character may stand outside of quotes.

    At a word's start `=` is a program's path to some shells, and `*` may expand to an option; `~` is a home folder there and after `=` and
    `:`.
    """
    if character == "~":
        return before.isalnum() or before in tuple("^~}")
    if not before and (character == "=" or character in _GLOB):
        return False
    return (
        character in _BARE
        or character in _GLOB
        or (not character.isascii() and character.isalnum() and is_visible(character))
    )


def _is_plain(text: str, *, newlines: bool = False) -> bool:
    """Return whether all characters are visible, apart from newlines if those are allowed."""
    return all(is_visible(character) or (newlines and character == "\n") for character in text)
