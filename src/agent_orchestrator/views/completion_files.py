"""The names that shells complete, one per line in files of `$AO_HOME/names`, so that reading them starts no program.

The files are updated while the daemon runs and stay correct afterwards, because names change only through the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence

from agent_orchestrator.base.home import Home
from agent_orchestrator.core.engine import Change, Flow

TOGETHER = 0.3
"""Seconds in which changes are written together: a fleet that starts causes many."""
CHANGING = ("sessions", "any", "plans", "fixes", "nodes")
CONFIGURED = ("projects", "agents")

_is_plain = re.compile(r"[\w.@/+][\w.@/+-]*").fullmatch
"""Matches names that need no quoting in a shell."""


class Names:
    """Writes a kind's file when its names have changed."""

    def __init__(self, flow: Flow, home: Home, of: Callable[[str, str], list[str]]) -> None:
        """Set up the writer; `of` returns the names of a kind that begin with a prefix."""
        self.flow = flow
        self.folder = home.names
        self._of = of
        self._written: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Write all files, and again those that change."""
        self._write(*CHANGING, *CONFIGURED)
        self.flow.on_change.append(self._on_change)

    def reload(self) -> None:
        """Write the names of projects and agents again, because the configuration changed."""
        if self._written:
            self._write(*CONFIGURED)

    def _on_change(self, changes: Sequence[Change]) -> None:
        if any(change.after is None or change.before is None or _changes_names(change) for change in changes):
            loop = asyncio.get_running_loop()
            self._timer = self._timer or loop.call_later(TOGETHER, self._write_changed)

    def _write_changed(self) -> None:
        self._timer = None
        self._write(*CHANGING)

    def close(self) -> None:
        """Write pending changes."""
        if self._timer is not None:
            self._timer.cancel()
            self._write_changed()

    def _write(self, *kinds: str) -> None:
        for kind in kinds:
            text = "".join(f"{name}\n" for name in self._of(kind, "") if _is_plain(name))
            if self._written.get(kind) != text:
                with contextlib.suppress(OSError):  # the disk may be full: the next change writes the file
                    self.folder.mkdir(mode=0o700, exist_ok=True)
                    draft = self.folder / f".{kind}"
                    draft.write_text(text, encoding="utf-8")
                    draft.replace(self.folder / kind)
                    self._written[kind] = text


def _changes_names(change: Change) -> bool:
    """Return whether a session was stopped, restored or renamed."""
    before, after = change.before, change.after
    assert before is not None and after is not None
    return before.stopped != after.stopped or before.name != after.name
