"""Any configured command: `terminal: {plugin: command, command: [foot, --title, '{{session}}', '{{command}}']}`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from agent_orchestrator.base.text import templates
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.terminals.shared import find_program, start_window
from agent_orchestrator.protocols import (
    Terminal,
    Window,
)
from agent_orchestrator.protocols.text import SHELL_CHARACTERS, one_line

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

VARIABLES = ("command", "cwd", "session", "url")
"""`command` as a separate word becomes the command's words; inside another word it is one text, quoted for a shell.

A shell may read that word: a folder whose name a shell could interpret is passed only as a separate word.
"""

_EXAMPLE = "for example command: [foot, --title, '{{session}}', '{{command}}']"


class CommandTerminal(Terminal):
    """Runs the configured command, once for each session."""

    permissions: ClassVar = ["processes"]

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._configured_words = _configured_words(config)

    async def open(self, window: Window) -> None:
        """Start the command; it may live as long as its window, or end at once."""
        variables = {
            "command": shlex.join(window.command),
            "cwd": str(window.cwd),
            "session": window.session,
            "url": window.url,
        }
        argv: list[str] = []
        for word in self._configured_words:
            _check_folder(word, variables["cwd"])
            argv += window.command if _is_variable(word, "command") else [templates.render(word, variables)]
        argv[0] = find_program(self._host, argv[0], window)
        await start_window(self._host, argv, window)


def _configured_words(config: Mapping[str, Any]) -> Sequence[str]:
    """Return the configured command's words. Raises `UsageError` if they are not valid."""
    for key in config:
        if key != "command":
            raise UsageError(f"terminal command knows no {key!r}", _EXAMPLE)
    configured = config.get("command")
    try:
        words = shlex.split(configured) if isinstance(configured, str) else configured
    except ValueError as error:
        raise UsageError(f"terminal command: {configured!r} cannot be split into words: {error}", _EXAMPLE) from None
    if not isinstance(words, list | tuple) or not words or not all(isinstance(word, str) and word for word in words):
        raise UsageError("terminal command needs a `command`, a list of words", _EXAMPLE)
    for word in words:
        templates.check(word, VARIABLES)
    used_variables = {name for word in words for name in templates.variables_of(word)} & {"command", "url"}
    return words if used_variables else [*words, "{{command}}"]


def _check_folder(word: str, cwd: str) -> None:
    """Raise `UsageError` if a shell could interpret the folder's name in this word."""
    if SHELL_CHARACTERS.search(cwd) and "cwd" in templates.variables_of(word) and not _is_variable(word, "cwd"):
        raise UsageError(
            f"terminal command: {one_line(word, 80)!r} would give {one_line(cwd, 200)!r} to what may be a shell",
            "give '{{cwd}}' as a word of its own",
        )


def _is_variable(word: str, variable: str) -> bool:
    """Return whether the word is exactly this variable."""
    return word.replace(" ", "") == f"{{{{{variable}}}}}"
