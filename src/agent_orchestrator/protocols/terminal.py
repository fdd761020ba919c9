"""The slot Terminal: opens a session on a person's screen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from agent_orchestrator.protocols.records import record


@record
class Window:
    """A session to be shown to a person."""

    session: str
    """Its id, which may serve as a title."""
    command: tuple[str, ...]
    """Shows its terminal, in whatever terminal it is run; it needs no particular environment or folder."""
    cwd: Path
    """Its workspace, or another folder that exists."""
    url: str = ""
    """Its page in the dashboard."""


class Terminal(ABC):
    """Opens a session's terminal for a person, on that person's own screen.

    It is constructed and called by the person's own `ao open`: the environment of its process is that of the
    person's terminal.
    """

    @abstractmethod
    async def open(self, window: Window) -> None:
        """Show it, and return once it is shown, not once it is closed. Raises `Missing` where nothing can show it on this screen."""
