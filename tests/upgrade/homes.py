"""Homes of every released schema, as the program of that version left them (recorded by `record.py`)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.sandbox import Sandbox

FOLDER = Path(__file__).parent
RELEASED_VERSIONS = sorted(int(file.stem.removeprefix("schema-")) for file in FOLDER.glob("schema-?.sql"))
"""The versions of all released schemas."""


def recorded_answers(version: int, box: Path) -> dict[str, Any]:
    """Return the recorded answers of that version's API, path → answer."""
    answers: dict[str, Any] = json.loads(_read_for_folder(FOLDER / f"schema-{version}.json", box))
    return answers


def old_database(version: int, path: Path, box: Path) -> None:
    """Create the database of that version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(_read_for_folder(FOLDER / f"schema-{version}.sql", box))


def old_home(version: int, box: Sandbox) -> None:
    """Create the home of that version and its repositories."""
    for file in sorted((FOLDER / f"schema-{version}-home").rglob("*")):
        if file.is_file():
            target = box.home.path / file.relative_to(FOLDER / f"schema-{version}-home")
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_text(_read_for_folder(file, box.folder))
    old_database(version, box.home.database, box.folder)
    for bundle in FOLDER.glob(f"schema-{version}-*.bundle"):
        repo = box.folder / bundle.stem.removeprefix(f"schema-{version}-")
        shutil.rmtree(repo, ignore_errors=True)
        repo.mkdir()
        box.git("init", "-q", "-b", "main", cwd=repo)
        box.git("fetch", "-q", "--update-head-ok", str(bundle), "+refs/*:refs/*", cwd=repo)
        box.git("reset", "-q", "--hard", cwd=repo)
        box.repo = repo


def _read_for_folder(file: Path, box: Path) -> str:
    return file.read_text().replace("@BOX@", str(box))
