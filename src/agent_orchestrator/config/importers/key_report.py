"""What became of a configuration's keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """What became of one key."""

    key: str
    """As its file has it, with dots."""
    outcome: str
    """`taken`, `changed`, `dropped`, or `kept`: the file here says otherwise, and that stays."""
    to: str = ""
    """The key that it is here."""
    note: str = ""


@dataclass(slots=True)
class Brought:
    """A configuration in our form, and how it came to it."""

    kind: str
    """Whose it was."""
    config: dict[str, Any] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)

    def taken(self, key: str, to: str, value: Any, note: str = "") -> None:
        """Put a value where it belongs."""
        *parents, last = to.split(".")
        place = self.config
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
        self.entries.append(Entry(key, "changed" if note or to != key else "taken", to, note))

    def dropped(self, key: str, note: str) -> None:
        """Leave it behind, and say why."""
        self.entries.append(Entry(key, "dropped", note=note))
