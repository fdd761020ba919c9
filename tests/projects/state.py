"""The stored results, one file per project: a stage is not repeated while its inputs are the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.projects.corpus import FOLDER, CorpusProject
from tests.projects.machine import CACHE, ROOT

_PRODUCT = ("src/agent_orchestrator", "tests/projects")

Result = dict[str, Any]


def run_stage(project: CorpusProject, name: str, key: str, run: Callable[[], Result]) -> Result:
    """Return the stored result of this stage if it has this key and succeeded; otherwise run it and store the result."""
    stored = stored_results(project).get(name)
    if stored is not None and stored["key"] == key and stored["ok"]:
        return stored
    result = {**run(), "key": key}
    file = _state_file(project)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".new").write_text(json.dumps(stored_results(project) | {name: result}, indent=1))
    file.with_suffix(".new").rename(file)
    return result


def stored_results(project: CorpusProject) -> dict[str, Result]:
    """Return the stored results of a project, by stage."""
    file = _state_file(project)
    return json.loads(file.read_text()) if file.is_file() else {}


def _state_file(project: CorpusProject) -> Path:
    return CACHE / "state" / f"{project.name}.json"


def data_key(project: CorpusProject) -> str:
    """Return a key that changes with the project's description."""
    return _digest([FOLDER / f"{project.name}.toml"])


def product_key(project: CorpusProject) -> str:
    """Return a key that changes with the project's description, our product and this suite."""
    return f"{data_key(project)}-{_product()}"


@cache
def _product() -> str:
    files = [path for folder in _PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    return _digest(files)


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
