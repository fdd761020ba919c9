"""What the daemon is doing at the moment, for display: too short-lived to be recorded as events."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable


class ProgressTexts(UserDict[str, str]):
    """A plan or fix → what is being done for it, in words."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """Create it empty; `on_change` is called when an entry changes."""
        super().__init__()
        self._on_change = on_change

    def __setitem__(self, name: str, doing: str) -> None:
        if self.data.get(name) != doing:
            self.data[name] = doing
            self._on_change()
