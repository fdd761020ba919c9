"""The names that shells complete, in files of `$AO_HOME/names`, one a line: to read them no program has to be started.

They are kept while the daemon runs, and true afterwards, for without it nothing gets another name.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence

from agent_orchestrator.base.home import Home
from agent_orchestrator.core.engine import Change, Flow

TOGETHER = 0.3
"""Seconds in which changes are written as one: a fleet that starts has many."""
CHANGING = ("sessions", "any", "plans", "fixes", "nodes")
CONFIGURED = ("projects", "agents")

_PLAIN = re.compile(r"[\w.@/+][\w.@/+-]*").fullmatch
"""What a shell may be given as it is."""


class Names:
    """Writes a kind's file when its names have changed."""

    def __init__(self, flow: Flow, home: Home, of: Callable[[str, str], list[str]]) -> None:
        """`of` gives the names of a kind that begin so."""
        self.flow = flow
        self.folder = home.names
        self._of = of
        self._written: dict[str, str] = {}
        self._due: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Write all of them, and again what changes."""
        self._write(*CHANGING, *CONFIGURED)
        self.flow.on_change.append(self._on_change)

    def reload(self) -> None:
        """The configuration has changed."""
        if self._written:
            self._write(*CONFIGURED)

    def _on_change(self, changes: Sequence[Change]) -> None:
        if any(change.after is None or change.before is None or _moved(change) for change in changes):
            loop = asyncio.get_running_loop()
            self._due = self._due or loop.call_later(TOGETHER, self._write_changed)

    def _write_changed(self) -> None:
        self._due = None
        self._write(*CHANGING)

    def close(self) -> None:
        """Write what is still to be written."""
        if self._due is not None:
            self._due.cancel()
            self._write_changed()

    def _write(self, *kinds: str) -> None:
        for kind in kinds:
            text = "".join(f"{name}\n" for name in self._of(kind, "") if _PLAIN(name))
            if self._written.get(kind) != text:
                with contextlib.suppress(OSError):  # a full disk: the next change writes it
                    self.folder.mkdir(mode=0o700, exist_ok=True)
                    draft = self.folder / f".{kind}"
                    draft.write_text(text, encoding="utf-8")
                    draft.replace(self.folder / kind)
                    self._written[kind] = text


def _moved(change: Change) -> bool:
    """Whether a session was stopped, brought back or renamed."""
    before, after = change.before, change.after
    assert before is not None and after is not None
    return before.stopped != after.stopped or before.name != after.name
