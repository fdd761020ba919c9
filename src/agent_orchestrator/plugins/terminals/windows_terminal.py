"""Windows Terminal, from Windows or from WSL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from agent_orchestrator.plugins.terminals.shared import choice, find_program, request_window
from agent_orchestrator.protocols import (
    Terminal,
    Window,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host


class WindowsTerminal(Terminal):
    """Opens tabs of the window used last, or with `as: window` windows."""

    permissions: ClassVar = ["processes"]

    def __init__(self, config: Mapping[str, Any], host: Host, environ: Mapping[str, str] = os.environ) -> None:
        self._host = host
        self._open_as = choice(config, "windows-terminal", "as", ("tab", "window"))
        self._wsl_distribution = environ.get("WSL_DISTRO_NAME", "")

    async def open(self, window: Window) -> None:
        """Pass the command to `wt.exe`, which ends at once."""
        options = ["-w", "new" if self._open_as == "window" else "0", "new-tab", "--title", window.session]
        if self._wsl_distribution:
            inner = ["wsl.exe", "-d", self._wsl_distribution, "--cd", str(window.cwd), "--", *window.command]
        else:
            options += ["-d", str(window.cwd)]
            inner = list(window.command)
        argv = [
            find_program(self._host, "wt.exe", window),
            *(_escape_semicolons(argument) for argument in (*options, *inner)),
        ]
        await request_window(self._host, argv, window, what="windows-terminal")


def _escape_semicolons(argument: str) -> str:
    """Return the argument with semicolons escaped: `wt` takes any semicolon for the beginning of another command."""
    return argument.replace(";", "\\;")
