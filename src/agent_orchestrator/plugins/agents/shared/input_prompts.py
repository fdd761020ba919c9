"""Detects in the log of a terminal when a program reads a line from its user.

Line editors (prompt_toolkit, rustyline, readline) switch the terminal's bracketed paste on while they take a line and off
afterwards. These two sequences in the terminal's output show exactly when a program waits at a prompt, and where in the log
that was.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols import AgentContext

_PROMPT_OPENS, _PROMPT_CLOSES = b"\x1b[?2004h", b"\x1b[?2004l"
_SWITCH_LENGTH = len(_PROMPT_OPENS)
_READ_STEP = 64 * 1024
_MAX_SHOWN = 16 * 1024
"""The number of bytes at a prompt, and before one, that are examined."""
MAX_LOG_LAG_SECONDS = 0.5
"""Seconds that a log may be behind its program."""


@dataclass(frozen=True, slots=True)
class InputPrompt:
    """A prompt at which the program waits for a line."""

    start: int
    """Its offset in the log, which identifies this prompt."""
    end: int
    text: str
    """The text shown at it; grows while the user types."""
    before: str
    """The end of the text shown before it, since the previous prompt."""


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that began with a line entered at the prompt `at`."""

    prompt_start: int
    undecided_until: float
    """The time until which the log may not show yet that this prompt was closed."""

    def is_ended_by(self, prompt: InputPrompt, now: float) -> bool:
        """Return whether this open prompt ends the turn."""
        return prompt.start > self.prompt_start or now >= self.undecided_until

    def is_undecided(self, prompt: InputPrompt | None, now: float) -> bool:
        """Return whether it cannot be decided yet if this prompt ends the turn."""
        return prompt is not None and not self.is_ended_by(prompt, now)


class PromptLog:
    """A reader of a terminal's log from its last prompt; nothing before `begin` counts."""

    def __init__(self, log: Path, begin: int) -> None:
        self._log = log
        self._position = _last_switch(log, begin)
        self._last_bytes = b""  # a sequence may be split between two reads
        self._shown_output = b""  # output at the open prompt
        self._earlier_output = b""  # output since the last prompt was closed
        self._open_prompt: int | None = None
        self.last_prompt_start = -1
        """The offset of the last prompt, open or not."""
        self.has_prompted = False
        """Whether there was a prompt."""

    @property
    def bytes_read(self) -> int:
        """Return the number of bytes read."""
        return self._position

    def current(self) -> InputPrompt | None:
        """Read on and return the open prompt, or None."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._position)
                while chunk := file.read(1 << 20):
                    self._read_chunk(chunk)
        except OSError:
            return None
        if self._open_prompt is None:
            return None
        return InputPrompt(
            self._open_prompt, self._open_prompt + _SWITCH_LENGTH, _as_text(self._shown_output), self.tail()
        )

    def tail(self) -> str:
        """Return the end of the text shown since a prompt was closed."""
        return _as_text(self._earlier_output)

    def turn(self, *, has_caught_up: bool) -> OpenTurn:
        """Return a turn that begins now; `known` is False while reading what happened before."""
        return (
            OpenTurn(self.last_prompt_start, monotonic() + MAX_LOG_LAG_SECONDS) if has_caught_up else OpenTurn(-1, 0.0)
        )

    def _read_chunk(self, chunk: bytes) -> None:
        """Read a chunk of the log: find the last switch and keep the text shown after it."""
        data, offset = self._last_bytes + chunk, self._position - len(self._last_bytes)
        self._position += len(chunk)
        self._last_bytes = data[1 - _SWITCH_LENGTH :]
        opened, closed = data.rfind(_PROMPT_OPENS), data.rfind(_PROMPT_CLOSES)
        self.has_prompted = self.has_prompted or opened >= 0 or closed >= 0
        if opened >= 0:
            self.last_prompt_start = offset + opened
        if opened > closed:
            shown_before = self._earlier_output + chunk if closed < 0 else data[closed + _SWITCH_LENGTH :]
            self._earlier_output = shown_before[: len(shown_before) - (len(data) - opened)][-_MAX_SHOWN:]
            self._open_prompt, self._shown_output = self.last_prompt_start, data[opened + _SWITCH_LENGTH :][:_MAX_SHOWN]
        elif closed >= 0:
            self._open_prompt, self._shown_output, self._earlier_output = (
                None,
                b"",
                data[closed + _SWITCH_LENGTH :][-_MAX_SHOWN:],
            )
        elif self._open_prompt is not None:
            self._shown_output = (self._shown_output + chunk)[:_MAX_SHOWN]
        else:
            self._earlier_output = (self._earlier_output + chunk)[-_MAX_SHOWN:]


def _as_text(output: bytes) -> str:
    """Return output as text without control sequences."""
    return clean_text(output.decode(errors="replace"))


def log_size(context: AgentContext) -> int:
    """Return the size of the session's terminal log before this launch."""
    log = context.private / "terminal.log"
    return log.stat().st_size if log.exists() else 0


def _last_switch(log: Path, begin: int) -> int:
    """Return the offset of the last switch, searched from the end since a log may be long; `begin` if there is none."""
    try:
        with log.open("rb") as file:
            position = file.seek(0, os.SEEK_END)
            next_data = b""
            while position > begin:
                start = max(begin, position - _READ_STEP)
                file.seek(start)
                data = file.read(position - start) + next_data[: _SWITCH_LENGTH - 1]
                position_in_data = max(data.rfind(_PROMPT_OPENS), data.rfind(_PROMPT_CLOSES))
                if position_in_data >= 0:
                    return start + position_in_data
                position, next_data = start, data
    except OSError:
        pass
    return begin


def resolve_in_workspace(workspace: Path, path: str) -> str:
    """Return a file's path relative to the workspace if it is in it after symlinks, otherwise in full."""
    full = Path(os.path.realpath(workspace / path))
    top = Path(os.path.realpath(workspace))
    return str(full.relative_to(top)) if full.is_relative_to(top) else str(full)
