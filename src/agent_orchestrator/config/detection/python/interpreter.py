"""Choose the Python that a project's virtual environment is made with."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from agent_orchestrator.config.detection.files import RepositoryFiles, table


def choose_interpreter(repo: RepositoryFiles) -> str:
    """Return `python3`, or another `python3.X` of this machine if the project excludes the version of `python3`."""
    specifier = _requires_python(repo)
    python3_path = shutil.which("python3")
    match = re.fullmatch(r"python3\.(\d+)", Path(python3_path).resolve().name) if python3_path else None
    if not specifier or match is None or _is_allowed(int(match[1]), specifier):
        return "python3"
    allowed_minors = [
        minor for minor in range(30, 6, -1) if _is_allowed(minor, specifier) and shutil.which(f"python3.{minor}")
    ]
    return f"python3.{allowed_minors[0]}" if allowed_minors else "python3"


def _requires_python(repo: RepositoryFiles) -> str:
    declared = table(repo.pyproject, "project").get("requires-python") or repo.ini("setup.cfg").get("options", {}).get(
        "python_requires"
    )
    if not isinstance(declared, str):
        match = re.search(r"python_requires\s*=\s*[\"']([^\"'\n]{1,80})[\"']", repo.text("setup.py"))
        declared = match[1] if match else ""
    return declared[:200]


def _is_allowed(minor: int, specifier: str) -> bool:
    """Return whether Python 3.`minor` fits a specifier such as `>=3.9,<3.13`. Parts that cannot be parsed exclude nothing."""
    for part in specifier.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|!=|~=|>|<)\s*3(?:\.(\d+))?(?:\.(?:\d+|\*))*\s*", part)
        if not match or match[2] is None:
            continue
        bound = int(match[2])
        is_allowed = {
            ">=": minor >= bound,
            "~=": minor >= bound,
            "<=": minor <= bound,
            "==": minor == bound,
            "!=": minor != bound,
            ">": minor > bound or part.count(".") > 1,
            "<": minor < bound or (part.count(".") > 1 and not part.strip().endswith(".0") and minor == bound),
        }[match[1]]
        if not is_allowed:
            return False
    return True
