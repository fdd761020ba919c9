"""The targets of a Makefile and the commands of their recipes."""

from __future__ import annotations

import re

from agent_orchestrator.config.detection.files import Repository

MAX_LINES = 5000
MAX_LINE = 1000
NAMES = ("GNUmakefile", "Makefile", "makefile")


def text(repo: Repository) -> str:
    """Return the Makefile's text, or "" if there is none."""
    name = repo.has(*NAMES)
    return repo.text(name) if name else ""


def _lines(repo: Repository) -> list[str]:
    return [line[:MAX_LINE] for line in text(repo).replace("\\\n", " ").splitlines()[:MAX_LINES]]


def targets(repo: Repository) -> set[str]:
    """Return the targets of the Makefile."""
    names: set[str] = set()
    for line in _lines(repo):
        if match := re.match(r"([A-Za-z0-9_.][\w. /-]*?)\s*::?(?![=:])", line):
            names |= set(match[1].split())
    return names


def recipe(repo: Repository, target: str) -> list[str]:
    """Return the lines of a target's recipe without make's own prefixes, or none if there is no such target."""
    lines = _lines(repo)
    for position, line in enumerate(lines):
        match = re.match(r"([A-Za-z0-9_.][\w. /-]*?)\s*::?(?![=:])([^;#]*)", line)
        if match and target in match[1].split():
            commands = []
            for next_line in lines[position + 1 :]:
                if next_line.startswith("\t"):
                    commands.append(next_line.strip().lstrip("@-+ "))
                elif next_line.strip() and not next_line.lstrip().startswith("#"):
                    break
            return [command for command in commands if command and not command.startswith("#")]
    return []
