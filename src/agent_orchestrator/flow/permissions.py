"""May it, without asking a person? `permitted(…) -> why`. Pure.

An agent's own settings decide first; what still comes as a request is looked at here, the same for every agent. Only what is exactly
the same as something allowed counts: a command with anything added to it is another command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

GIT = (
    "add",
    "blame",
    "commit",
    "diff",
    "log",
    "ls-files",
    "mv",
    "restore",
    "rev-parse",
    "rm",
    "show",
    "stash",
    "status",
)
"""Git commands that stay on the session's own branch."""

_PLAIN_GIT = re.compile(rf"git (?:{'|'.join(GIT)})(?: [^;&|<>`$\\\n()]*)?")
_UP_TO_DATE = re.compile(
    r"(?:GIT_EDITOR=(?:true|:) )?git (?:rebase|merge)"
    r"(?: --(?:continue|abort|skip|no-edit|autostash))*(?: [A-Za-z0-9][\w./-]*)?"
)
"""The own branch brought up to date with one other: `git rebase A B` would move B."""
_NOT_PLAIN = re.compile(r"--(?:output|ext-diff|textconv|open-files-in-pager|exec)|(?:^| )-[cCO]")
"""Options by which a harmless Git command writes elsewhere or runs another program."""

_LOOKING = re.compile(
    r"ao (?:status|list|ls|why|logs|events|diff|path|queue|conflicts|issues|backlog|checks|usage|projects|agents)"
    r"(?: [^;&|<>`$\\\n()]*)?"
)
_NOT_LOOKING = re.compile(r"(?:^| )(?:-f|--follow|--watch|--run|--replay)\b")
"""Options by which such a command does something, or never ends."""

_INSIDE = re.compile(
    r"(?!/|~|[A-Za-z]:|\\)(?:(?!\.\.?(?:/|$)|(?i:\.git)(?:/|$))[^/\\\n]+/)*(?!\.\.?$|(?i:\.git)$)[^/\\\n]+"
)
"""A path below the workspace, by its letters alone, and none of Git's own files."""


def permitted(tool: str, command: str, mode: str, commands: Iterable[str], allowed: Iterable[tuple[str, str]]) -> str:
    """Why this may be done without asking; nothing: a person must be asked."""
    if (tool, command) in set(allowed):
        return "a person allowed it for good"
    if mode == "full":
        return "everything is allowed"
    if mode != "auto-edit" or not command:
        return ""
    if tool == "continue":
        return "it only goes on with its work"
    if tool in ("edit", "read") and _INSIDE.fullmatch(command):
        return "it is a file of its workspace"
    if command in set(commands):
        return "it is the project's own command"
    if plain_git(command):
        return "it is Git on its own branch"
    return ""


def only_looks(command: str) -> bool:
    """A single `ao` command that changes nothing."""
    return bool(_LOOKING.fullmatch(command)) and not _NOT_LOOKING.search(command)


def plain_git(command: str) -> bool:
    """A single Git command that changes nothing but the session's own branch and files."""
    if _UP_TO_DATE.fullmatch(command):
        return True
    return bool(_PLAIN_GIT.fullmatch(command)) and not _NOT_PLAIN.search(command)
