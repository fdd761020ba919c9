"""The targets of Makefiles, justfiles and task files, and what their recipes run."""

from __future__ import annotations

import re

from agent_orchestrator.config.detection.files import Repository

MAX_LINES = 5000
MAX_LINE = 1000
NAMES = ("GNUmakefile", "Makefile", "makefile")


def text(repo: Repository) -> str:
    """Return the Makefile's text; an empty one if there is none."""
    name = repo.has(*NAMES)
    return repo.text(name) if name else ""


def _lines(repo: Repository) -> list[str]:
    return [line[:MAX_LINE] for line in text(repo).replace("\\\n", " ").splitlines()[:MAX_LINES]]


def targets(repo: Repository) -> set[str]:
    """Return the targets of the Makefile."""
    found: set[str] = set()
    for line in _lines(repo):
        if match := re.match(r"([A-Za-z0-9_.][\w. /-]*?)\s*::?(?![=:])", line):
            found |= set(match[1].split())
    return found


def recipe(repo: Repository, target: str) -> list[str]:
    """Return the lines of a target's recipe, without what make itself reads of them; none if there is no such target."""
    lines = _lines(repo)
    for at, line in enumerate(lines):
        match = re.match(r"([A-Za-z0-9_.][\w. /-]*?)\s*::?(?![=:])([^;#]*)", line)
        if match and target in match[1].split():
            found = []
            for below in lines[at + 1 :]:
                if below.startswith("\t"):
                    found.append(below.strip().lstrip("@-+ "))
                elif below.strip() and not below.lstrip().startswith("#"):
                    break
            return [one for one in found if one and not one.startswith("#")]
    return []
