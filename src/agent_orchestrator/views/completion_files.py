"""The names that shells complete, one per line in files of `$AO_HOME/names`, so that reading them starts no program.

The files are updated while the daemon runs and stay correct afterwards, because names change only through the daemon.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.signals import ConfigurationReloaded
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.sessions import Sessions

WRITE_DELAY_SECONDS = 0.3
"""Seconds in which changes are written together: a fleet that starts causes many."""
KINDS_FROM_EVENTS = ("sessions", "any", "plans", "fixes", "nodes")
KINDS_FROM_CONFIGURATION = ("projects", "agents")

_is_plain = re.compile(r"[\w.@/+][\w.@/+-]*").fullmatch
"""Matches names that need no quoting in a shell."""


class CompletionFiles(Part):
    """Writes a kind's file when its names have changed."""

    def __init__(self, core: Core, sessions: Sessions) -> None:
        super().__init__(core)
        self.folder = core.home.completion_folder
        self.sessions = sessions
        self._written: dict[str, str] = {}
        self._timer: Timer | None = None

    def start(self) -> None:
        """Write all files, and again those that change."""
        self._write(*KINDS_FROM_EVENTS, *KINDS_FROM_CONFIGURATION)
        self.on(self._check_changed)
        self.on_signal(ConfigurationReloaded, self._write_configured)

    def _write_configured(self, _signal: ConfigurationReloaded) -> None:
        """Write the names of projects and agents again, because the configuration changed."""
        self._write(*KINDS_FROM_CONFIGURATION)

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        if any(change.after is None or change.before is None or _changes_names(change) for change in changes):
            self._timer = self._timer or self.clock.call_later(WRITE_DELAY_SECONDS, self._write_changed)

    def _write_changed(self) -> None:
        self._timer = None
        self._write(*KINDS_FROM_EVENTS)

    async def close(self) -> None:
        """Write pending changes."""
        await super().close()
        if self._timer is not None:
            self._timer.cancel()
            self._write_changed()

    def _write(self, *kinds: str) -> None:
        for kind in kinds:
            text = "".join(f"{name}\n" for name in self.sessions.complete_names(kind, "") if _is_plain(name))
            if self._written.get(kind) != text:
                with contextlib.suppress(OSError):  # the disk may be full: the next change writes the file
                    self.folder.mkdir(mode=0o700, exist_ok=True)
                    draft = self.folder / f".{kind}"
                    draft.write_text(text, encoding="utf-8")
                    draft.replace(self.folder / kind)
                    self._written[kind] = text


def _changes_names(change: FactsChange) -> bool:
    """Return whether a session was stopped, restored or renamed."""
    before, after = change.before, change.after
    assert before is not None and after is not None
    return before.stopped != after.stopped or before.name != after.name
