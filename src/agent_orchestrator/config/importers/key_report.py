"""The report of what became of each key of an imported configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class KeyReport:
    """What became of one key."""

    key: str
    """The key as its file has it, with dots."""
    outcome: str
    """`taken`, `changed`, `dropped`, or `kept`: the file here has another value, and keeps it."""
    to: str = ""
    """The key that it became."""
    note: str = ""


@dataclass(slots=True)
class ImportedConfig:
    """An imported configuration in our form, with the report of its keys."""

    kind: str
    """The name of the orchestrator that it is from."""
    config: dict[str, Any] = field(default_factory=dict)
    entries: list[KeyReport] = field(default_factory=list)

    def set_key(self, key: str, to: str, value: Any, note: str = "") -> None:
        """Set a value under its key here, and report it."""
        *parents, last = to.split(".")
        section = self.config
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
        self.entries.append(KeyReport(key, "changed" if note or to != key else "taken", to, note))

    def report_dropped(self, key: str, note: str) -> None:
        """Report a key as dropped, with the reason."""
        self.entries.append(KeyReport(key, "dropped", note=note))
