"""What is being done just now: too fleeting for an event, and shown to whoever looks."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable


class Progress(UserDict[str, str]):
    """A plan or run → what is done for it, in words; tells when that is another."""

    def __init__(self) -> None:
        super().__init__()
        self.on_news: list[Callable[[], None]] = []

    def __setitem__(self, name: str, doing: str) -> None:
        if self.data.get(name) == doing:
            return
        self.data[name] = doing
        for told in self.on_news:
            told()
