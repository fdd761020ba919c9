"""Which Python a project's environment is made with."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from agent_orchestrator.config.detection.files import Repository, table


def interpreter(repo: Repository) -> str:
    """Return `python3`, or a `python3.X` of this machine where `python3` is known to be one that the project excludes."""
    wanted = _requires_python(repo)
    here = shutil.which("python3")
    match = re.fullmatch(r"python3\.(\d+)", Path(here).resolve().name) if here else None
    if not wanted or match is None or _allowed(int(match[1]), wanted):
        return "python3"
    fitting = [minor for minor in range(30, 6, -1) if _allowed(minor, wanted) and shutil.which(f"python3.{minor}")]
    return f"python3.{fitting[0]}" if fitting else "python3"


def _requires_python(repo: Repository) -> str:
    declared = table(repo.pyproject, "project").get("requires-python") or repo.ini("setup.cfg").get("options", {}).get(
        "python_requires"
    )
    if not isinstance(declared, str):
        match = re.search(r"python_requires\s*=\s*[\"']([^\"'\n]{1,80})[\"']", repo.text("setup.py"))
        declared = match[1] if match else ""
    return declared[:200]


def _allowed(minor: int, specifier: str) -> bool:
    """Return whether Python 3.`minor` fits a specifier such as `>=3.9,<3.13`; what cannot be read excludes none."""
    for part in specifier.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|!=|~=|>|<)\s*3(?:\.(\d+))?(?:\.(?:\d+|\*))*\s*", part)
        if not match or match[2] is None:
            continue
        bound = int(match[2])
        holds = {
            ">=": minor >= bound,
            "~=": minor >= bound,
            "<=": minor <= bound,
            "==": minor == bound,
            "!=": minor != bound,
            ">": minor > bound or part.count(".") > 1,
            "<": minor < bound or (part.count(".") > 1 and not part.strip().endswith(".0") and minor == bound),
        }[match[1]]
        if not holds:
            return False
    return True
