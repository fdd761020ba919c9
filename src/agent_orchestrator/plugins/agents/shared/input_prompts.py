"""Seeing by its terminal's log when a program reads a line from its user.

Line editors (prompt_toolkit, rustyline, readline) switch the terminal's bracketed paste on while they take a line and off when they have
it. These two sequences, in what the terminal showed, tell exactly when a program waits at a prompt, and where in the log that was.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols import AgentContext

_OPENS, _CLOSES = b"\x1b[?2004h", b"\x1b[?2004l"
_WIDTH = len(_OPENS)
_STEP = 64 * 1024
_SHOWN = 16 * 1024
"""So much of what is shown at a prompt, and before one, is looked at."""
LAG = 0.5
"""Seconds that a log may be behind what its program did."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A line that is being asked for."""

    start: int
    """Where in the log it begins; names this prompt for good."""
    end: int
    text: str
    """What was shown since, as text; more comes while its user types."""
    before: str
    """The last of what was shown before it, since the prompt before."""


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that began with a line given at the prompt `at`."""

    at: int
    until: float
    """Until then the log may not tell yet that this prompt is closed."""

    def over(self, prompt: Prompt, now: float) -> bool:
        """Does this open prompt end it?"""
        return prompt.start > self.at or now >= self.until

    def doubtful(self, prompt: Prompt | None, now: float) -> bool:
        """It cannot be told yet whether this prompt ends it."""
        return prompt is not None and not self.over(prompt, now)


class PromptLog:
    """Follows a terminal's log from the last prompt in it; nothing before `begin` counts."""

    def __init__(self, log: Path, begin: int) -> None:
        self._log = log
        self._position = _last_switch(log, begin)
        self._edge = b""  # a switch may be cut in two between readings
        self._shown = b""  # at the open prompt
        self._before = b""  # since the last one was closed
        self._open: int | None = None
        self.last = -1
        """Where the last prompt began, whether it is open or not."""
        self.began = False
        """There was a prompt."""

    @property
    def printed(self) -> int:
        """How much was read."""
        return self._position

    def look(self) -> Prompt | None:
        """Read on; the prompt that is open now."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._position)
                while chunk := file.read(1 << 20):
                    self._take(chunk)
        except OSError:
            return None
        if self._open is None:
            return None
        return Prompt(self._open, self._open + _WIDTH, _text(self._shown), self.tail())

    def tail(self) -> str:
        """The last of what was shown since a prompt was closed."""
        return _text(self._before)

    def turn(self, *, known: bool) -> OpenTurn:
        """A turn that was just seen to begin; `known`: not while reading what happened before."""
        return OpenTurn(self.last, monotonic() + LAG) if known else OpenTurn(-1, 0.0)

    def _take(self, chunk: bytes) -> None:
        data, offset = self._edge + chunk, self._position - len(self._edge)
        self._position += len(chunk)
        self._edge = data[1 - _WIDTH :]
        opened, closed = data.rfind(_OPENS), data.rfind(_CLOSES)
        self.began = self.began or opened >= 0 or closed >= 0
        if opened >= 0:
            self.last = offset + opened
        if opened > closed:
            told = self._before + chunk if closed < 0 else data[closed + _WIDTH :]
            self._before = told[: len(told) - (len(data) - opened)][-_SHOWN:]
            self._open, self._shown = self.last, data[opened + _WIDTH :][:_SHOWN]
        elif closed >= 0:
            self._open, self._shown, self._before = None, b"", data[closed + _WIDTH :][-_SHOWN:]
        elif self._open is not None:
            self._shown = (self._shown + chunk)[:_SHOWN]
        else:
            self._before = (self._before + chunk)[-_SHOWN:]


def _text(shown: bytes) -> str:
    return clean_text(shown.decode(errors="replace"))


def log_size(context: AgentContext) -> int:
    """How much the session's terminal has shown before this launch."""
    log = context.private / "terminal.log"
    return log.stat().st_size if log.exists() else 0


def _last_switch(log: Path, begin: int) -> int:
    """Where the last switch is, looked for from the end: a log may be long."""
    try:
        with log.open("rb") as file:
            position = file.seek(0, os.SEEK_END)
            later = b""
            while position > begin:
                start = max(begin, position - _STEP)
                file.seek(start)
                data = file.read(position - start) + later[: _WIDTH - 1]
                found = max(data.rfind(_OPENS), data.rfind(_CLOSES))
                if found >= 0:
                    return start + found
                position, later = start, data
    except OSError:
        pass
    return begin


def below(workspace: Path, path: str) -> str:
    """A file that an agent names: relative to the workspace if it is in it, wherever links lead; otherwise in full."""
    full = Path(os.path.realpath(workspace / path))
    top = Path(os.path.realpath(workspace))
    return str(full.relative_to(top)) if full.is_relative_to(top) else str(full)
