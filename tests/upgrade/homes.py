"""Homes of every released schema, as they were left by the program of that time (`record.py` made them)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.sandbox import Sandbox

HERE = Path(__file__).parent
RELEASED = sorted(int(file.stem.removeprefix("schema-")) for file in HERE.glob("schema-?.sql"))
"""Every schema that a released program has written."""


def told(version: int, box: Path) -> dict[str, Any]:
    """What the API of that time said, path → answer."""
    found: dict[str, Any] = json.loads(_placed(HERE / f"schema-{version}.json", box))
    return found


def old_database(version: int, path: Path, box: Path) -> None:
    """The database of that time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(_placed(HERE / f"schema-{version}.sql", box))


def old_home(version: int, box: Sandbox) -> None:
    """The whole home of that time, and the repositories that it speaks of."""
    for file in sorted((HERE / f"schema-{version}-home").rglob("*")):
        if file.is_file():
            kept = box.home.path / file.relative_to(HERE / f"schema-{version}-home")
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept.write_text(_placed(file, box.folder))
    old_database(version, box.home.database, box.folder)
    for bundle in HERE.glob(f"schema-{version}-*.bundle"):
        repo = box.folder / bundle.stem.removeprefix(f"schema-{version}-")
        shutil.rmtree(repo, ignore_errors=True)
        repo.mkdir()
        box.git("init", "-q", "-b", "main", cwd=repo)
        box.git("fetch", "-q", "--update-head-ok", str(bundle), "+refs/*:refs/*", cwd=repo)
        box.git("reset", "-q", "--hard", cwd=repo)
        box.repo = repo


def _placed(file: Path, box: Path) -> str:
    return file.read_text().replace("@BOX@", str(box))
