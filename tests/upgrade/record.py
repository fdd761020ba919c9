"""Records a home of this program's version for later ones to be tried on: `python -m tests.upgrade.record FOLDER`.

Plays the demo with every trigger, plans, stops, fails and restores sessions, makes tokens, and keeps what the database and the
home hold then, with `@BOX@` for the folder it was played in, and what the API told of it. Run once, before a schema is changed.
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

SHOWN = ("/api/sessions?all=1", "/api/projects", "/api/plans?all=1", "/api/issues?all=1&state=all", "/api/usage?all=1")
KEPT = (
    "tokens.json",
    *(f"sessions/shop-{name}/{file}" for name in ("stopped", "working") for file in ("task.md", "spool.1.jsonl")),
)
"""Files of the home that later versions read; no secrets."""
GOAL = '[[plan: {"tasks": [{"id": "a", "title": "Make a", "description": "[[say: a]]"}], "notes": ["one"]}]]'


def play(box: Sandbox) -> None:
    """Everything that leaves another kind of row."""
    stage = demo.Stage(box, lambda _line: None)
    demo.prepare(box, port=0)
    shop = box.repo
    demo.play(stage)
    demo.play_on(stage)
    box.repo = shop
    box.ao("plan", GOAL)
    box.ao("plan", GOAL.replace("Make a", "Make another"))
    box.ao("plan", "P2", "--discard")
    box.ao("new", "[[edit: kept.txt|x]] [[say: edited]]", "--name", "stopped")
    box.until(lambda: box.session("shop-stopped")["status"] == "idle")
    box.ao("send", "shop-stopped", "one more thing [[say: yes]]")
    box.until(lambda: box.session("shop-stopped")["status"] == "idle")
    box.ao("stop", "shop-stopped")
    box.ao("new", "[[say: hello]]", "--name", "restored")
    box.until(lambda: box.session("shop-restored")["status"] == "idle")
    box.ao("stop", "shop-restored")
    box.ao("restore", "shop-restored")
    box.until(lambda: box.session("shop-restored")["status"] == "idle")
    box.ao("new", "[[sleep: 600]]", "--name", "working")
    box.until(lambda: box.session("shop-working")["status"] == "working")
    box.ao("send", "shop-working", "a message that waits")
    box.ao("new", "wait for it", "--name", "later", "--after", "shop-working", check=False)
    box.ao("new", "no such base", "--name", "failing", "--base", "no-such-branch", check=False)
    box.ao("token", "new", "phone", "--role", "viewer")
    box.ao("token", "new", "desk")


def record(folder: Path) -> None:
    """Play, and keep what is left."""
    with Sandbox(Path(tempfile.mkdtemp(prefix="ao-record-")).resolve(), "process") as box:
        play(box)
        told: dict[str, Any] = {path: box.request("GET", path) for path in SHOWN}
        for one in box.sessions():
            path = f"/api/sessions/{one['id']}"
            told[path] = box.request("GET", path)
            told[f"{path}/messages"] = box.request("GET", f"{path}/messages")
        box.stop()
        name = f"schema-{len(MIGRATIONS)}"
        with sqlite3.connect(box.home.database) as database:
            dump = "\n".join(database.iterdump())
        (folder / f"{name}.sql").write_text(told_anywhere(dump, box) + "\n")
        (folder / f"{name}.postgres.sql").write_text(on_postgres())
        (folder / f"{name}.json").write_text(told_anywhere(json.dumps(told, indent=1, ensure_ascii=False), box) + "\n")
        home = folder / f"{name}-home"
        shutil.rmtree(home, ignore_errors=True)
        for file in (box.home.path / name for name in KEPT):
            kept = home / file.relative_to(box.home.path)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(told_anywhere(file.read_text(errors="replace"), box))
        for repo in ("shop", "garden"):
            if (box.folder / repo).is_dir():
                box.git("bundle", "create", "-q", str(folder / f"{name}-{repo}.bundle"), "--all", cwd=box.folder / repo)


def on_postgres() -> str:
    """The same tables there."""
    tables = schema.metadata.sorted_tables
    made: list[DDLElement] = [CreateTable(table) for table in tables]
    made += [CreateIndex(index) for table in tables for index in sorted(table.indexes, key=lambda one: one.name or "")]
    dialect: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return "".join(f"{str(one.compile(dialect=dialect)).strip()};\n" for one in made)


def told_anywhere(text: str, box: Sandbox) -> str:
    """Without the names of the machine and of its user."""
    text = text.replace(str(box.folder), "@BOX@").replace(sys.executable, "python3")
    return re.sub(re.escape(sys.prefix) + r"[\w/.-]*", "python3", text)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
