"""WezTerm: a tab of the person's WezTerm, otherwise a new window."""

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


class WezTerm(Terminal):
    """Opens tabs, or with `as: window` windows."""

    permissions: ClassVar = ["processes"]

    def __init__(self, config: Mapping[str, Any], host: Host, environ: Mapping[str, str] = os.environ) -> None:
        self._host = host
        self._open_as = choice(config, "wezterm", "as", ("tab", "window"))
        self._is_inside = bool(environ.get("WEZTERM_PANE"))

    async def open(self, window: Window) -> None:
        """Ask the running WezTerm, if this runs in one of its panes; otherwise start one."""
        wezterm, cwd = find_program(self._host, "wezterm", window), str(window.cwd)
        if not self._is_inside:
            await start_window(self._host, [wezterm, "start", "--cwd", cwd, "--", *window.command], window)
            return
        window_option = ["--new-window"] if self._open_as == "window" else []
        argv = [wezterm, "cli", "spawn", *window_option, "--cwd", cwd, "--", *window.command]
        pane = (await request_window(self._host, argv, window, what="wezterm")).text.strip()
        if pane.isdigit():
            title_command = [wezterm, "cli", "set-tab-title", "--pane-id", pane, window.session]
            await self._host.run(title_command, timeout=10)
