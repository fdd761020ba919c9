"""kitty: a tab of the person's kitty, if it accepts remote control, otherwise a new window."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from agent_orchestrator.plugins.terminals.shared import choice, find_program, request_window, start_window
from agent_orchestrator.protocols import (
    Terminal,
    Window,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host


class Kitty(Terminal):
    """Opens tabs, or with `as: os-window` windows."""

    permissions: ClassVar = ["processes"]

    def __init__(self, config: Mapping[str, Any], host: Host, environ: Mapping[str, str] = os.environ) -> None:
        self._host = host
        self._open_as = choice(config, "kitty", "as", ("tab", "window", "os-window"))
        self._control_address = environ.get("KITTY_LISTEN_ON", "")

    async def open(self, window: Window) -> None:
        """Ask the running kitty, if it listens (`listen_on` and `allow_remote_control` in its configuration); otherwise start one."""
        kitty, cwd = find_program(self._host, "kitty", window), str(window.cwd)
        if self._control_address:
            title = ["--title", window.session, *(["--tab-title", window.session] if self._open_as == "tab" else [])]
            request = [
                kitty,
                "@",
                "--to",
                self._control_address,
                "launch",
                f"--type={self._open_as}",
                *title,
                "--cwd",
                cwd,
            ]
            await request_window(self._host, [*request, *window.command], window, what="kitty")
        else:
            argv = [kitty, "--title", window.session, "--directory", cwd, *window.command]
            await start_window(self._host, argv, window)
