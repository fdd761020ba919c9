"""Findings of the doctor: every problem has a remedy."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.core.store.database import Database
from agent_orchestrator.sessions.lifecycle.environment import AGENT_SECRETS
from agent_orchestrator.views import machine_findings
from agent_orchestrator.views.machine_findings import FileWatchUsage, OpenFileUsage

HOME = Path("/home/anna")


@pytest.mark.parametrize(
    ("version", "state", "detail"),
    [
        (None, "failed", "not found"),
        ((2, 24, 9), "failed", "2.24.9"),
        ((2, 37, 1), "warning", "2.37.1: conflicts cannot be predicted"),
        ((2, 38), "ok", "2.38"),
    ],
)
def test_an_old_or_missing_git_is_reported(version: tuple[int, ...] | None, state: str, detail: str) -> None:
    finding = machine_findings.git_finding(version)
    assert (finding["state"], finding["detail"]) == (state, detail) and bool(finding["remedy"]) == (state != "ok")


@pytest.mark.parametrize(
    ("facts", "state", "remedy"),
    [
        (None, "ok", None),
        (FileWatchUsage(524_288, 512, 100), "ok", None),
        (FileWatchUsage(8192, 512, 100), "warning", "max_user_watches"),
        (FileWatchUsage(20_000, 512, 19_000), "warning", "max_user_watches"),
        (FileWatchUsage(524_288, 16, 100), "warning", "max_user_instances"),
    ],
)
def test_too_few_file_watches_are_a_warning(facts: FileWatchUsage | None, state: str, remedy: str | None) -> None:
    finding = machine_findings.file_watch_finding(facts)
    assert finding["state"] == state and (remedy in finding["remedy"] if remedy else finding["remedy"] is None)


def test_too_few_file_descriptors_are_a_warning() -> None:
    assert machine_findings.open_files_finding(OpenFileUsage(20, 8192))["state"] == "ok"
    for facts in (OpenFileUsage(20, 256), OpenFileUsage(1000, 1024)):
        finding = machine_findings.open_files_finding(facts)
        assert finding["state"] == "warning" and "ulimit" in finding["remedy"]


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
def test_clock_skew_is_reported_by_its_size(skews: Mapping[str, float], state: str, text: str) -> None:
    finding = machine_findings.clock_finding(skews)
    assert finding["state"] == state and text in finding["detail"] and bool(finding["remedy"]) == (state != "ok")


@pytest.mark.parametrize(
    ("tool", "env", "files", "login"),
    [
        ("claude-code", {"ANTHROPIC_API_KEY": "k"}, (), "ANTHROPIC_API_KEY"),
        ("claude-code", {"ANTHROPIC_API_KEY": ""}, (".claude/.credentials.json",), "~/.claude/.credentials.json"),
        ("codex", {"ANTHROPIC_API_KEY": "k"}, (), None),
        ("demo", {}, (), ""),
    ],
)
def test_an_agents_login_is_detected(tool: str, env: dict[str, str], files: tuple[str, ...], login: str | None) -> None:
    existing = {HOME / name for name in files}
    assert machine_findings.find_login(tool, env, HOME, existing.__contains__, "linux") == login


def test_the_macos_keychain_counts_as_a_possible_login() -> None:
    assert machine_findings.find_login("claude-code", {}, HOME, lambda _: False, "darwin") == ""
    assert machine_findings.find_login("codex", {}, HOME, lambda _: False, "darwin") is None


def test_every_agent_with_secrets_has_login_files() -> None:
    assert machine_findings.LOGIN_FILES.keys() == AGENT_SECRETS.keys()


def agent(**changes: Any) -> dict[str, Any]:
    return {
        "name": "codex",
        "tool": "codex",
        "found": True,
        "path": "/b/codex",
        "version": "1",
        "problem": None,
    } | changes


def test_an_unused_agent_may_be_missing() -> None:
    absent = agent(found=False, path=None, version=None)
    assert machine_findings.agent_finding(absent, None, used=False)["state"] == "ok"
    assert machine_findings.agent_finding(absent, None, used=True)["state"] == "warning"
    assert (
        machine_findings.agent_finding(agent(), "OPENAI_API_KEY", used=True)["detail"]
        == "1 /b/codex; signed in by OPENAI_API_KEY"
    )
    out = machine_findings.agent_finding(agent(), None, used=True)
    assert out["state"] == "warning" and "OPENAI_API_KEY" in out["remedy"]


def test_unreachable_nodes_are_warnings() -> None:
    def node(state: str, reason: str = "") -> dict[str, Any]:
        return {"name": "n", "state": state, "reason": reason, "cpus": 8.0}

    states = {
        state: machine_findings.node_findings([node(state, "no route")])[0]
        for state in ("ready", "draining", "unreachable", "gone")
    }
    assert {state: finding["state"] for state, finding in states.items()} == {
        "ready": "ok",
        "draining": "ok",
        "unreachable": "warning",
        "gone": "ok",
    }
    assert "no route" in states["unreachable"]["detail"] and "ao nodes" in states["unreachable"]["remedy"]
    assert machine_findings.node_findings([]) == []


def test_another_port_than_configured_is_a_warning() -> None:
    assert machine_findings.address_finding("http://127.0.0.1:3000", None)["state"] == "ok"
    moved = machine_findings.address_finding("http://127.0.0.1:3001", "port 3000 is taken, so this is port 3001")
    assert moved["state"] == "warning" and "port 3000 is taken" in moved["detail"] and moved["remedy"]


def test_limits_of_this_machine_can_be_read() -> None:
    descriptors = machine_findings.read_open_files()
    assert descriptors is not None and 0 < descriptors.used < descriptors.max_open
    watches = machine_findings.read_watches()
    assert watches is None or watches.max_watches > 0


@pytest.mark.anyio
async def test_a_damaged_database_is_detected(tmp_path: Path) -> None:
    file = tmp_path / "ao.db"
    store = Database.sqlite(file)
    await store.open()
    assert await store.damage() == ""
    await store.close()
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        rows = database.execute("SELECT rootpage FROM sqlite_master WHERE type='index' AND tbl_name='outbox'")
        page, size = rows.fetchone()[0], database.execute("PRAGMA page_size").fetchone()[0]
    with file.open("r+b") as damaged:
        damaged.seek((page - 1) * size)
        damaged.write(b"\xff" * size)
    store = Database.sqlite(file)
    await store.open()
    assert await store.damage() != ""
    await store.close()


def test_a_missing_git_identity_is_a_warning() -> None:
    assert machine_findings.identity_finding([])["state"] == "ok"
    assert "who you are: agents" in machine_findings.identity_finding([""])["detail"]
    finding = machine_findings.identity_finding(["app", "web"])
    assert finding["state"] == "warning" and "user.email" in finding["remedy"]
    assert "in app and 1 more" in finding["detail"]
