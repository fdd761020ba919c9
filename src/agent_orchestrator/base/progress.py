"""What the daemon is doing at the moment, for display: too short-lived to be recorded as events."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable


class Progress(UserDict[str, str]):
    """A plan or fix run → what is being done for it, in words. Calls the listeners in `on_news` when an entry changes."""

    def __init__(self) -> None:
        super().__init__()
        self.on_news: list[Callable[[], None]] = []

    def __setitem__(self, name: str, doing: str) -> None:
        if self.data.get(name) == doing:
            return
        self.data[name] = doing
        for listener in self.on_news:
            listener()
