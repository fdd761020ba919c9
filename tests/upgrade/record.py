"""Record a home of this version for tests of later ones: `python -m tests.upgrade.record FOLDER`.

It plays the demo with every trigger, plans, stops, fails and restores sessions, creates tokens, and stores the database, the home's
files and the API's answers, with `@BOX@` in place of the folder. Run it once, before a schema is changed.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from agent_orchestrator.core.store import schema
from agent_orchestrator.core.store.migrations import MIGRATIONS
from agent_orchestrator.testing import demo
from agent_orchestrator.testing.sandbox import Sandbox

RECORDED_PATHS = (
    "/api/sessions?all=1",
    "/api/projects",
    "/api/plans?all=1",
    "/api/issues?all=1&state=all",
    "/api/usage?all=1",
)
KEPT_FILES = (
    "tokens.json",
    *(f"sessions/shop-{name}/{file}" for name in ("stopped", "working") for file in ("task.md", "spool.1.jsonl")),
)
"""Files of the home that later versions read, without secrets."""
GOAL = '[[plan: {"tasks": [{"id": "a", "title": "Make a", "description": "[[say: a]]"}], "notes": ["one"]}]]'


def create_all_rows(box: Sandbox) -> None:
    """Do everything that creates a different kind of row."""
    stage = demo.DemoStage(box, lambda _line: None)
    demo.prepare(box, port=0)
    shop = box.repo
    demo.play_first_act(stage)
    demo.play_second_act(stage)
    box.repo = shop
    box.ao("plan", GOAL)
    box.ao("plan", GOAL.replace("Make a", "Make another"))
    box.ao("plan", "P2", "--discard")
    box.ao("new", "[[edit: kept.txt|x]] [[say: edited]]", "--name", "stopped")
    box.wait_until(lambda: box.session("shop-stopped")["status"] == "idle")
    box.ao("send", "shop-stopped", "one more thing [[say: yes]]")
    box.wait_until(lambda: box.session("shop-stopped")["status"] == "idle")
    box.ao("stop", "shop-stopped")
    box.ao("new", "[[say: hello]]", "--name", "restored")
    box.wait_until(lambda: box.session("shop-restored")["status"] == "idle")
    box.ao("stop", "shop-restored")
    box.ao("restore", "shop-restored")
    box.wait_until(lambda: box.session("shop-restored")["status"] == "idle")
    box.ao("new", "[[sleep: 600]]", "--name", "working")
    box.wait_until(lambda: box.session("shop-working")["status"] == "working")
    box.ao("send", "shop-working", "a message that waits")
    box.ao("new", "wait for it", "--name", "later", "--after", "shop-working", check=False)
    box.ao("new", "no such base", "--name", "failing", "--base", "no-such-branch", check=False)
    box.ao("token", "new", "phone", "--role", "viewer")
    box.ao("token", "new", "desk")


def record(folder: Path) -> None:
    """Play and store the results in a folder."""
    with Sandbox(Path(tempfile.mkdtemp(prefix="ao-record-")).resolve(), "process") as box:
        create_all_rows(box)
        answers: dict[str, Any] = {path: box.request("GET", path) for path in RECORDED_PATHS}
        for session in box.sessions():
            path = f"/api/sessions/{session['id']}"
            answers[path] = box.request("GET", path)
            answers[f"{path}/messages"] = box.request("GET", f"{path}/messages")
        box.stop()
        name = f"schema-{len(MIGRATIONS)}"
        with sqlite3.connect(box.home.database) as database:
            dump = "\n".join(database.iterdump())
        (folder / f"{name}.sql").write_text(without_local_paths(dump, box) + "\n")
        (folder / f"{name}.postgres.sql").write_text(on_postgres())
        (folder / f"{name}.json").write_text(
            without_local_paths(json.dumps(answers, indent=1, ensure_ascii=False), box) + "\n"
        )
        home = folder / f"{name}-home"
        shutil.rmtree(home, ignore_errors=True)
        for file in (box.home.path / name for name in KEPT_FILES):
            target = home / file.relative_to(box.home.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(without_local_paths(file.read_text(errors="replace"), box))
        for repo in ("shop", "garden"):
            if (box.folder / repo).is_dir():
                box.git("bundle", "create", "-q", str(folder / f"{name}-{repo}.bundle"), "--all", cwd=box.folder / repo)


def on_postgres() -> str:
    """Return the statements that create the same tables on PostgreSQL."""
    tables = schema.metadata.sorted_tables
    statements: list[DDLElement] = [CreateTable(table) for table in tables]
    statements += [
        CreateIndex(index) for table in tables for index in sorted(table.indexes, key=lambda item: item.name or "")
    ]
    dialect: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return "".join(f"{str(item.compile(dialect=dialect)).strip()};\n" for item in statements)


def without_local_paths(text: str, box: Sandbox) -> str:
    """Return a text with the paths of this machine replaced."""
    text = text.replace(str(box.folder), "@BOX@").replace(sys.executable, "python3")
    return re.sub(re.escape(sys.prefix) + r"[\w/.-]*", "python3", text)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
