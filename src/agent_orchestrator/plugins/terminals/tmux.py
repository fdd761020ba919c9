"""A window in the person's own tmux."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from agent_orchestrator.errors import Missing
from agent_orchestrator.plugins.terminals.shared import choice, find_program, manual_remedy, request_window
from agent_orchestrator.protocols import (
    Terminal,
    Window,
)

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host


class TmuxWindow(Terminal):
    """Opens windows, or with `as: pane` panes."""

    permissions: ClassVar = ["processes"]

    def __init__(self, config: Mapping[str, Any], host: Host, environ: Mapping[str, str] = os.environ) -> None:
        self._host = host
        self._open_as = choice(config, "tmux", "as", ("window", "pane"))
        self._is_inside = bool(environ.get("TMUX"))

    async def open(self, window: Window) -> None:
        """Open it next to the person's current window. Raises `Missing` outside of tmux."""
        if not self._is_inside:
            raise Missing(
                "you are in no tmux", f"run this inside tmux, choose another `terminal`, or {manual_remedy(window)}"
            )
        folder_options = ["-c", _escape_format(str(window.cwd))]
        verb = ["split-window"] if self._open_as == "pane" else ["new-window", "-n", _escape_format(window.session)]
        argv = [find_program(self._host, "tmux", window), *verb, *folder_options, "--", *window.command]
        await request_window(self._host, argv, window, what="tmux")


def _escape_format(text: str) -> str:
    """Return the text escaped, so that tmux does not run what is in `#(…)`."""
    return text.replace("#", "##")
