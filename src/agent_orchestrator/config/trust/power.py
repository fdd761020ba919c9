"""What a power is, the settings that it is compared with, and what the checks of values share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agent_orchestrator.config import model as m
from agent_orchestrator.config.load import expand_user
from agent_orchestrator.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TrustContext:
    """The settings that the powers of a file are compared with."""

    folder: Path = field(default_factory=Path)
    """The folder of the file."""
    own: m.Config = field(default_factory=m.Config)
    """The user's own file."""
    environ: Mapping[str, str] = field(default_factory=dict)
    defaults: m.Defaults = field(default_factory=m.Defaults)
    """The defaults of the file itself."""
    profiles: Mapping[str, m.Profile] = field(default_factory=dict)
    """The profiles of the file itself."""
    reactions: Mapping[str, m.Reaction] = field(default_factory=dict)
    """The reactions of the file itself, for all its projects."""
    project_reactions: Sequence[Mapping[str, m.Reaction]] = ()
    """The reactions of its projects; those of a profile are merged over them."""


SelectUntrusted = Callable[[Any, Any, TrustContext], Any]
"""Takes a value, its section and the surrounding settings; returns the part of the value that needs trust, or something falsy."""


@dataclass(frozen=True, slots=True)
class Power:
    """A key that needs trust."""

    why: str
    select: SelectUntrusted = lambda value, _section, _around: value
    affected_values: str = ""
    """Which of its values need it; "": all of them."""
    guarded: bool = False
    """It stays in force, and is refused where it would be used until it is trusted."""
    blocks_start: bool = True
    """Whether starting a session waits for trust in it; otherwise the session starts without it."""


def resolve_path(folder: Path, text: str, around: TrustContext) -> Path:
    try:
        return folder / expand_user(text, around.environ)
    except ConfigError:  # the home folder of an unknown user
        return Path("/") / text


def first_set(name: str, *sections: BaseModel) -> Any:
    """Return the value of the first section that sets a non-empty one, or None."""
    set_values = (getattr(section, name) for section in sections if name in section.model_fields_set)
    return next((value for value in set_values if value), None)


def drop_empty(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parts.items() if value}
