"""iTerm2, by AppleScript. The command and the title are passed to the script as arguments, never as part of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from agent_orchestrator.plugins.terminals.shared import choice, find_program, request_window
from agent_orchestrator.protocols import (
    Terminal,
    Window,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

SCRIPT = (
    "on run argv",
    "set theCommand to item 1 of argv",
    'tell application "iTerm2"',
    "activate",
    'if (item 3 of argv) is "window" or (count of windows) is 0 then',
    "set shown to (create window with default profile command theCommand)",
    "set theSession to current session of shown",
    "else",
    "tell current window",
    "set shown to (create tab with default profile command theCommand)",
    "set theSession to current session of shown",
    "end tell",
    "end if",
    "tell theSession to set name to (item 2 of argv)",
    "end tell",
    "end run",
)


class ITerm2(Terminal):
    """Opens tabs, or with `as: window` windows."""

    permissions: ClassVar = ["processes"]

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._open_as = choice(config, "iterm2", "as", ("tab", "window"))

    async def open(self, window: Window) -> None:
        """Ask iTerm2 to open it; the first time macOS asks the person for permission."""
        script = [argument for line in SCRIPT for argument in ("-e", line)]
        arguments = [shlex.join(window.command), window.session, self._open_as]
        argv = [find_program(self._host, "osascript", window), *script, "--", *arguments]
        await request_window(self._host, argv, window, what="iterm2")
