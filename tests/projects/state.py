"""The results so far, one file per project: a stage is not repeated while what it depends on is the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.projects.corpus import FOLDER, Project
from tests.projects.machine import CACHE, ROOT

_PRODUCT = ("src/agent_orchestrator", "tests/projects")

Result = dict[str, Any]


def stage(project: Project, name: str, key: str, run: Callable[[], Result]) -> Result:
    """The stored result of this stage if it has this key and was right, else what `run` returns, which is stored."""
    found = known(project).get(name)
    if found is not None and found["key"] == key and found["ok"]:
        return found
    result = {**run(), "key": key}
    place = _place(project)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.with_suffix(".new").write_text(json.dumps(known(project) | {name: result}, indent=1))
    place.with_suffix(".new").rename(place)
    return result


def known(project: Project) -> dict[str, Result]:
    """The stored results of a project, by stage."""
    place = _place(project)
    return json.loads(place.read_text()) if place.is_file() else {}


def _place(project: Project) -> Path:
    return CACHE / "state" / f"{project.name}.json"


def data_key(project: Project) -> str:
    """Changes with the project's description."""
    return _digest([FOLDER / f"{project.name}.toml"])


def product_key(project: Project) -> str:
    """Changes with the project's description, our product and this suite."""
    return f"{data_key(project)}-{_product()}"


@cache
def _product() -> str:
    files = [path for folder in _PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    return _digest(files)


def _digest(files: list[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]
