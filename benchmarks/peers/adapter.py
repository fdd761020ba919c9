"""An adapter file: what it may hold, and the names that are filled in where it says `{name}`."""

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
    """A peer, by its commands. Those that it does not have are left out of the duels."""

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
    """The adapter of a file; a key that means nothing is refused."""
    given: dict[str, Any] = tomllib.loads(path.read_text())
    agent = given.pop("agent", {})
    commands = dict(given.pop("commands", {}))
    shown = given.pop("shown", {})
    prepare = commands.pop("prepare", [])
    unknown = [
        *(set(given) - {"name", "install", "installed", "needs", "checkout", "files", "env"}),
        *(set(commands) - set(COMMANDS)),
        *(set(agent) - {"program", "ready"}),
        *(set(shown) - {"session", "alive"}),
    ]
    if unknown:
        raise ValueError(f"{path}: {', '.join(sorted(unknown))} is not known; commands are {', '.join(COMMANDS)}")
    if lacking := [key for key in ("program", "ready") if key not in agent] + ([] if "name" in given else ["name"]):
        raise ValueError(f"{path}: {', '.join(lacking)} is missing")
    return Adapter(**given, **agent, **shown, commands=commands, prepare=prepare)


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with its `{names}` filled in."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ValueError(f"{{{match[1]}}} is not known; there are {', '.join(sorted(values))}")
        return values[match[1]]

    return _NAME.sub(value, text)


def words(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A command with its names filled in, word by word."""
    return [filled(word, values) for word in command]
