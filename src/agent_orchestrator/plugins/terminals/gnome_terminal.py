"""GNOME Terminal: its server opens the tab or the window, so the command ends at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from agent_orchestrator.plugins.terminals.shared import choice, find_program, request_window
from agent_orchestrator.protocols import (
    Terminal,
    Window,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host


class GnomeTerminal(Terminal):
    """Opens tabs, or with `as: window` windows."""

    permissions: ClassVar = ["processes"]

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._open_as = choice(config, "gnome-terminal", "as", ("tab", "window"))

    async def open(self, window: Window) -> None:
        """Ask GNOME Terminal's server to open the window."""
        options = [f"--{self._open_as}", f"--title={window.session}", f"--working-directory={window.cwd}"]
        argv = [find_program(self._host, "gnome-terminal", window), *options, "--", *window.command]
        await request_window(self._host, argv, window, what="gnome-terminal")
