"""Adapter files: their keys, and the placeholders such as `{name}` in their commands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMANDS = ("version", "start", "answers", "spawn", "list", "send")
_NAME = re.compile(r"\{([a-z]+)\}")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A peer and its commands. Cases that need a missing command are left out."""

    name: str
    program: str
    ready: str
    commands: Mapping[str, Sequence[str]]
    prepare: Sequence[Sequence[str]] = ()
    install: Sequence[Sequence[str]] = ()
    installed: str = ""
    needs: Sequence[str] = ()
    checkout: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    session: str = ""
    alive: str = ""


def load(path: Path) -> Adapter:
    """Return the adapter of a file; raise `ValueError` for unknown or missing keys."""
    document: dict[str, Any] = tomllib.loads(path.read_text())
    agent = document.pop("agent", {})
    commands = dict(document.pop("commands", {}))
    shown_patterns = document.pop("shown", {})
    prepare = commands.pop("prepare", [])
    unknown = [
        *(set(document) - {"name", "install", "installed", "needs", "checkout", "files", "env"}),
        *(set(commands) - set(COMMANDS)),
        *(set(agent) - {"program", "ready"}),
        *(set(shown_patterns) - {"session", "alive"}),
    ]
    if unknown:
        raise ValueError(f"{path}: {', '.join(sorted(unknown))} is not known; commands are {', '.join(COMMANDS)}")
    if missing := [key for key in ("program", "ready") if key not in agent] + ([] if "name" in document else ["name"]):
        raise ValueError(f"{path}: {', '.join(missing)} is missing")
    return Adapter(**document, **agent, **shown_patterns, commands=commands, prepare=prepare)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its `{placeholders}` filled in."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ValueError(f"{{{match[1]}}} is not known; there are {', '.join(sorted(values))}")
        return values[match[1]]

    return _NAME.sub(value, text)


def fill_all(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return a command with the placeholders filled in, word by word."""
    return [fill(word, values) for word in command]
