"""The slot Terminal: opens a session on a person's screen."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from agent_orchestrator.protocols.records import record


@record
class Window:
    """A session that a person wants to see."""

    session: str
    """Its id, which is a good title."""
    command: tuple[str, ...]
    """Shows its terminal, in whatever terminal it is run; it needs no environment and no folder of its own."""
    cwd: Path
    """Its workspace, or another folder that is there."""
    url: str = ""
    """Its page of the dashboard."""


@runtime_checkable
class Checked(Protocol):
    """A notifier that can tell, without sending anything, whether this machine has what it needs."""

    async def check(self) -> None:
        """Raises `Missing` where it has not."""
        ...


@runtime_checkable
class Terminal(Protocol):
    """Opens a session's terminal for a person, on his own screen.

    It is made and called by the person's own `ao open`: the environment of its process is that of the terminal he sits at.
    """

    async def open(self, window: Window) -> None:
        """Show it, and return once it is shown, not once it is closed; `Missing` where this screen has nothing to show it by."""
        ...
