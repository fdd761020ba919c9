"""the-name: show a session in a new xterm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from agent_orchestrator.errors import Missing
from agent_orchestrator.protocols import (
    Host,
    Terminal,
    Window,
)


class TheClass(Terminal):
    """Starts a program that opens a window; replace `xterm` with your own terminal."""

    name = "the-name"
    permissions: ClassVar = ["processes"]

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._program = str(config.get("program", "xterm"))
        self._host = host

    async def open(self, window: Window) -> None:
        """Open the window; it stays when `ao open` has ended."""
        path = self._host.which(self._program)
        if path is None:
            raise Missing(f"{self._program} is not installed", f"install it, or run `ao attach {window.session}`")
        argv = (path, "-T", window.session, "-e", *window.command)
        await self._host.spawn(argv, cwd=window.cwd)
