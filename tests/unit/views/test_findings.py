"""What the doctor makes of facts: each that is bad has a remedy, and none that is good is complained of."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.core.store.database import Database
from agent_orchestrator.sessions.lifecycle.environment import AGENT_SECRETS
from agent_orchestrator.views import findings
from agent_orchestrator.views.findings import Descriptors, Watches

HOME = Path("/home/anna")


@pytest.mark.parametrize(
    ("facts", "state", "remedy"),
    [
        (None, "ok", None),
        (Watches(524_288, 512, 100), "ok", None),
        (Watches(8192, 512, 100), "warning", "max_user_watches"),
        (Watches(20_000, 512, 19_000), "warning", "max_user_watches"),
        (Watches(524_288, 16, 100), "warning", "max_user_instances"),
    ],
)
def test_file_watches(facts: Watches | None, state: str, remedy: str | None) -> None:
    found = findings.of_watches(facts)
    assert found["state"] == state and (remedy in found["remedy"] if remedy else found["remedy"] is None)


def test_open_files() -> None:
    assert findings.of_descriptors(Descriptors(20, 8192))["state"] == "ok"
    for facts in (Descriptors(20, 256), Descriptors(1000, 1024)):
        found = findings.of_descriptors(facts)
        assert found["state"] == "warning" and "ulimit" in found["remedy"]


@pytest.mark.parametrize(
    ("skews", "state", "text"),
    [
        ({}, "ok", "no forge was asked"),
        ({"GitHub": 2.0, "GitLab": -29.0}, "ok", "as GitLab has it"),
        ({"GitHub": 45.0}, "warning", "45 s behind GitHub"),
        ({"GitHub": -45.0, "GitLab": 1.0}, "warning", "45 s ahead of GitHub"),
        ({"GitHub": 3600.0}, "failed", "webhooks are refused"),
    ],
)
def test_the_clock(skews: Mapping[str, float], state: str, text: str) -> None:
    found = findings.of_clock(skews)
    assert found["state"] == state and text in found["detail"] and bool(found["remedy"]) == (state != "ok")


@pytest.mark.parametrize(
    ("tool", "env", "files", "login"),
    [
        ("claude-code", {"ANTHROPIC_API_KEY": "k"}, (), "ANTHROPIC_API_KEY"),
        ("claude-code", {"ANTHROPIC_API_KEY": ""}, (".claude/.credentials.json",), "~/.claude/.credentials.json"),
        ("codex", {"ANTHROPIC_API_KEY": "k"}, (), None),
        ("demo", {}, (), ""),
    ],
)
def test_how_an_agent_is_signed_in(tool: str, env: dict[str, str], files: tuple[str, ...], login: str | None) -> None:
    there = {HOME / name for name in files}
    assert findings.login_of(tool, env, HOME, there.__contains__, "linux") == login


def test_a_keychain_cannot_be_looked_into() -> None:
    assert findings.login_of("claude-code", {}, HOME, lambda _: False, "darwin") == ""
    assert findings.login_of("codex", {}, HOME, lambda _: False, "darwin") is None


def test_every_agent_with_secrets_has_a_place_to_sign_in() -> None:
    assert findings.LOGIN_FILES.keys() == AGENT_SECRETS.keys()


def agent(**changes: Any) -> dict[str, Any]:
    return {
        "name": "codex",
        "tool": "codex",
        "found": True,
        "path": "/b/codex",
        "version": "1",
        "problem": None,
    } | changes


def test_an_agent_that_nobody_uses_need_not_be_there() -> None:
    absent = agent(found=False, path=None, version=None)
    assert findings.of_agent(absent, None, used=False)["state"] == "ok"
    assert findings.of_agent(absent, None, used=True)["state"] == "warning"
    assert (
        findings.of_agent(agent(), "OPENAI_API_KEY", used=True)["detail"] == "1 /b/codex; signed in by OPENAI_API_KEY"
    )
    out = findings.of_agent(agent(), None, used=True)
    assert out["state"] == "warning" and "OPENAI_API_KEY" in out["remedy"]


def test_nodes() -> None:
    def node(state: str, reason: str = "") -> dict[str, Any]:
        return {"name": "n", "state": state, "reason": reason, "cpus": 8.0}

    states = {
        state: findings.of_nodes([node(state, "no route")])[0] for state in ("ready", "draining", "unreachable", "gone")
    }
    assert {state: one["state"] for state, one in states.items()} == {
        "ready": "ok",
        "draining": "ok",
        "unreachable": "warning",
        "gone": "ok",
    }
    assert "no route" in states["unreachable"]["detail"] and "ao nodes" in states["unreachable"]["remedy"]
    assert findings.of_nodes([]) == []


def test_where_it_listens() -> None:
    assert findings.of_address("http://127.0.0.1:3000", None)["state"] == "ok"
    moved = findings.of_address("http://127.0.0.1:3001", "port 3000 is taken, so this is port 3001")
    assert moved["state"] == "warning" and "port 3000 is taken" in moved["detail"] and moved["remedy"]


def test_this_machine_is_read() -> None:
    descriptors = findings.read_descriptors()
    assert descriptors is not None and 0 < descriptors.used < descriptors.most
    watches = findings.read_watches()
    assert watches is None or watches.most > 0


@pytest.mark.anyio
async def test_a_damaged_database_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "ao.db"
    store = Database.sqlite(file)
    await store.open()
    assert await store.damage() == ""
    await store.close()
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        found = database.execute("SELECT rootpage FROM sqlite_master WHERE type='index' AND tbl_name='outbox'")
        page, size = found.fetchone()[0], database.execute("PRAGMA page_size").fetchone()[0]
    with file.open("r+b") as damaged:
        damaged.seek((page - 1) * size)
        damaged.write(b"\xff" * size)
    store = Database.sqlite(file)
    await store.open()
    assert await store.damage() != ""
    await store.close()


def test_whose_commits_agents_make() -> None:
    assert findings.of_identity([])["state"] == "ok"
    assert "who you are: agents" in findings.of_identity([""])["detail"]
    found = findings.of_identity(["app", "web"])
    assert found["state"] == "warning" and "user.email" in found["remedy"]
    assert "in app and 1 more" in found["detail"]
