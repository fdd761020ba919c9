"""The targets of a Makefile and the commands of their recipes."""

from __future__ import annotations

import re

from agent_orchestrator.config.detection.files import RepositoryFiles

MAX_LINES = 5000
MAX_LINE_LENGTH = 1000
MAKEFILE_NAMES = ("GNUmakefile", "Makefile", "makefile")


def read_makefile(repo: RepositoryFiles) -> str:
    """Return the Makefile's text, or "" if there is none."""
    name = repo.first_existing(*MAKEFILE_NAMES)
    return repo.text(name) if name else ""


def _lines(repo: RepositoryFiles) -> list[str]:
    return [line[:MAX_LINE_LENGTH] for line in read_makefile(repo).replace("\\\n", " ").splitlines()[:MAX_LINES]]


def targets(repo: RepositoryFiles) -> set[str]:
    """Return the targets of the Makefile."""
    names: set[str] = set()
    for line in _lines(repo):
        if match := re.match(r"([A-Za-z0-9_.][\w. /-]*?)\s*::?(?![=:])", line):
            names |= set(match[1].split())
    return names


def recipe(repo: RepositoryFiles, target: str) -> list[str]:
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
