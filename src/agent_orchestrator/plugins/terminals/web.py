"""The session's page of the dashboard, in the browser: its terminal, diff and messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from agent_orchestrator.errors import Missing
from agent_orchestrator.plugins.terminals.shared import refuse_options, request_window, start_window
from agent_orchestrator.protocols import (
    Terminal,
    Window,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

_OPENERS = ("xdg-open", "wslview", "open", "explorer.exe")


class Web(Terminal):
    """Opens pages of the dashboard."""

    permissions: ClassVar = ["processes"]

    def __init__(
        self,
        config: Mapping[str, Any],
        host: Host,
        platform: str = sys.platform,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        refuse_options(config, "web")
        self._host = host
        self._platform = platform
        self._browser = environ.get("BROWSER", "")

    async def open(self, window: Window) -> None:
        """Open the session's page; a browser that is not signed in shows how to sign in."""
        if not window.url:
            raise Missing(f"{window.session} has no page: the daemon has no dashboard", "see ao doctor")
        if self._platform == "win32":
            await request_window(
                self._host, ["rundll32", "url.dll,FileProtocolHandler", window.url], window, what="web"
            )
            return
        if self._browser and (browser := self._host.which(self._browser)):
            await start_window(self._host, [browser, window.url], window)
            return
        programs = ("open",) if self._platform == "darwin" else _OPENERS
        opener = next((path for name in programs if (path := self._host.which(name))), None)
        if opener is None:
            raise Missing("no program that opens a browser was found", f"open {window.url} yourself")
        await start_window(self._host, [opener, window.url], window)
