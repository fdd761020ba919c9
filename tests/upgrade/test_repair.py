"""`ao doctor --repair` on damaged homes: afterwards the daemon starts and shows everything that was intact."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.core.store import salvage
from agent_orchestrator.daemon.repair.__main__ import hold_daemon_lock, run
from agent_orchestrator.errors import NotFound
from agent_orchestrator.testing.sandbox import Sandbox


def until(box: Sandbox, name: str, *statuses: str) -> None:
    box.wait_until(lambda: box.session(f"app-{name}")["status"] in statuses)


def _messages(box: Sandbox) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = box.request("GET", "/api/sessions/app-done/messages")["messages"]
    return messages


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A home with sessions; each test gets a fresh copy at the same path."""
    folder = tmp_path_factory.mktemp("whole")
    with Sandbox(folder / "box", "process") as box:
        box.repository()
        box.start()
        for name, task in (
            ("live", "[[write: live.txt|uncommitted]] [[say: here]]"),
            ("done", "[[edit: done.txt|x]] [[commit: Do it]] [[done: made]]"),
            ("saved", "[[write: saved.txt|precious]] [[say: here]]"),
        ):
            box.request("POST", "/api/sessions", {"prompt": task, "name": name})
            until(box, name, "idle", "review_pending", "mergeable")
        box.request("DELETE", "/api/sessions/app-saved")
        until(box, "saved", "stopped")
        box.request("POST", "/api/sessions/app-done/message", {"content": "thank you"})
        box.wait_until(lambda: _messages(box)[-1]["state"] == "acknowledged")
        box.request("POST", "/api/tokens", {"name": "phone", "role": "viewer"})
        box.clean_up()
        shutil.copytree(box.folder, folder / "kept", symlinks=True)
        yield box


@pytest.fixture
def box(whole: Sandbox) -> Iterator[Sandbox]:
    shutil.rmtree(whole.folder)
    shutil.copytree(whole.folder.with_name("kept"), whole.folder, symlinks=True)
    yield whole
    whole.clean_up()


def repaired(box: Sandbox, *, dry: bool = False) -> tuple[dict[str, list[dict[str, Any]]], Path | None]:
    """Repair the home; return the findings by name, and the folder with the originals of changed files."""
    with hold_daemon_lock(box.home):
        repair = asyncio.run(run(box.home, dry=dry))
    checks = [finding.json() for finding in repair.findings]
    findings: dict[str, list[dict[str, Any]]] = {}
    for check in checks:
        findings.setdefault(check["name"], []).append(check)
    return findings, repair.backup_folder


def states(findings: dict[str, list[dict[str, Any]]]) -> set[str]:
    return {check["state"] for checks in findings.values() for check in checks}


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file below a folder, with its mode and content."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
        if not path.is_socket() and path.name != "daemon.lock"
    }


def change(box: Sandbox, *statements: str) -> None:
    with closing(sqlite3.connect(box.home.database)) as database, database:
        for statement in statements:
            database.execute(statement)


def everything_is_shown(box: Sandbox) -> None:
    box.start()
    statuses = {each["id"]: each["status"] for each in box.sessions()}
    assert set(statuses) == {"app-live", "app-done", "app-saved"} and statuses["app-saved"] == "stopped"
    assert "thank you" in [each["content"] for each in _messages(box)]
    assert (box.home.worktrees / "app" / "live" / "live.txt").read_text() == "uncommitted\n"
    assert "Do it" in box.git("log", "--format=%s", "feature/done")


def test_an_intact_home_is_not_changed(box: Sandbox) -> None:
    before = tree(box.home.path)
    findings, kept = repaired(box)
    assert (states(findings), kept) == ({"ok"}, None), findings
    assert tree(box.home.path) == before


def test_many_damages_at_once_are_repaired(box: Sandbox) -> None:
    home = box.home.path
    box.home.token.write_bytes(b"\0" * 48)
    (home / "token.secret").write_text("")
    (home / "tokens.json").write_text('{"tokens": [{"id": "1", "na')
    box.home.config.write_bytes(b"\0" * 100)
    home.chmod(0o755)
    box.home.database.chmod(0o644)
    box.home.daemon_info.write_text('{"pid": 999999999, "socket": "x"')
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(box.home.socket("daemon.sock")))
    (home / "daemon.new").write_text("{")
    (home / "tokens.json~").write_text("{")
    shutil.rmtree(box.home.session("app-live"))
    shutil.rmtree(box.repo / ".git" / "worktrees" / "live")
    box.git("update-ref", "-d", "refs/heads/feature/done")
    lock = box.repo / ".git" / "worktrees" / "done" / "index.lock"
    lock.touch()
    os.utime(lock, (time.time() - 3600,) * 2)
    change(
        box,
        "UPDATE snapshots SET body = 'torn {' WHERE id = 'home'",
        "INSERT INTO outbox SELECT 'stuck', kind, session, generation, '{torn', 0, cause, sort, 0, 0, 'pending', '', 0"
        " FROM outbox LIMIT 1",
    )

    before = tree(box.folder)
    findings, kept = repaired(box, dry=True)
    assert kept is None and tree(box.folder) == before, "a dry run changes nothing"
    expected = {"token", "token.secret", "tokens.json", "configuration", "modes", "leftovers", "effects", "facts"}
    damaged = {name for name, checks in findings.items() if "damaged" in {check["state"] for check in checks}}
    assert damaged == expected | {"app-live", "app-done"}, findings

    findings, kept = repaired(box)
    assert (
        kept
        and {name for name in findings if "repaired" in {finding["state"] for finding in findings[name]}} == damaged
    )
    aside = kept
    assert aside.parent == home / "damaged" and aside.stat().st_mode & 0o777 == 0o700
    assert (aside / "token").read_bytes() == b"\0" * 48
    assert (aside / "tokens.json").read_text().startswith('{"tokens": [{')
    assert '"key": "stuck"' in (aside / "effects.jsonl").read_text()
    assert (aside / "ao.db").is_file() and not lock.exists()
    assert home.stat().st_mode & 0o777 == 0o700 and box.home.database.stat().st_mode & 0o777 == 0o600
    assert box.git("status", "--porcelain", cwd=box.home.worktrees / "app" / "live") == "?? live.txt"

    findings, again = repaired(box)
    assert again is None and states(findings) == {"ok"}, findings
    everything_is_shown(box)


def test_a_torn_database_is_repaired_with_its_sessions(box: Sandbox) -> None:
    content = bytearray(box.home.database.read_bytes())
    content[:4096] = bytes(4096)
    box.home.database.write_bytes(content)
    refused = box.ao("status", check=False)
    assert refused.returncode == 4 and "ao doctor --repair" in refused.stderr and "Traceback" not in refused.stderr
    assert refused.stderr.count("\n") == 1, refused.stderr
    findings, kept = repaired(box)
    assert kept and findings["database"][0]["state"] == "repaired", findings
    assert (kept / "ao.db").read_bytes() == bytes(content)
    everything_is_shown(box)


def test_without_a_database_workspaces_and_saved_work_are_found(box: Sandbox) -> None:
    for file in box.home.path.glob("ao.db*"):
        file.unlink()
    findings, _ = repaired(box)
    remedies = {check["detail"]: check["remedy"] for check in findings["found"]}
    live = box.home.worktrees / "app" / "live"
    assert f"a workspace that no session owns: {live} on branch feature/live" in remedies
    saved = f"saved work of app-saved in {box.repo}: refs/ao/rescue/app-saved"
    assert remedies[saved].startswith(f"git -C {box.repo} branch app-saved refs/ao/rescue/app-saved")
    command = remedies[f"a workspace that no session owns: {live} on branch feature/live"]
    assert "ao new --branch feature/live TASK" in command
    box.git("branch", "app-saved", "refs/ao/rescue/app-saved")
    assert box.git("show", "app-saved:saved.txt") == "precious"
    box.git("add", "-A", cwd=live)
    box.git("commit", "-m", "Found work", cwd=live)
    box.git("worktree", "remove", str(live))
    box.start()
    box.ao("new", "--branch", "feature/live", "--name", "again", "[[say: here]]")
    assert (box.home.worktrees / "app" / "again" / "live.txt").read_text() == "uncommitted\n"


def test_pipes_and_hostile_names_left_by_an_agent_are_harmless(box: Sandbox) -> None:
    """Pipes in place of files, a symlink in place of a worktree's `.git`, and a ref whose name is a shell command."""
    mine = box.folder / "mine"
    mine.write_text("precious")
    pointer = box.home.worktrees / "app" / "live" / ".git"
    pointer.unlink()
    pointer.symlink_to(mine)
    name = "x;touch${IFS}owned;$(touch${IFS}owned)"
    box.git("update-ref", f"refs/ao/rescue/{name}", "HEAD")
    for pipe in (
        box.home.token,
        box.home.config,
        box.home.path / "tokens.json",
        box.home.session("x") / "workspace.json",
    ):
        pipe.parent.mkdir(exist_ok=True)
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
    checks = json.loads(box.ao("doctor", "--repair", "--json", check=False).stdout)["checks"]
    assert mine.read_text() == "precious" and pointer.read_text().startswith("gitdir: ")
    [back] = [check["remedy"] for check in checks if check["name"] == "found" and name in check["detail"]]
    assert back.startswith(f"git -C {box.repo} branch '{name}' 'refs/ao/rescue/{name}'   # or look")
    everything_is_shown(box)


def test_huge_files_in_an_agents_git_folder_are_not_copied(box: Sandbox) -> None:
    """A sparse file of 300 GB, a pipe, and a symlink to a folder of the user."""
    entry = box.repo / ".git" / "worktrees" / "live"
    (box.home.worktrees / "app" / "live" / ".git").unlink()
    with (entry / "hole").open("wb") as file:
        file.truncate(300 << 30)
    os.mkfifo(entry / "pipe")
    (entry / "link").symlink_to(box.repo)
    findings, kept = repaired(box)
    assert kept is not None
    [copied] = kept.rglob("worktrees/live")
    assert (copied / "HEAD").read_text() == (entry / "HEAD").read_text() and (copied / "link").is_symlink()
    assert not (copied / "hole").exists() and not (copied / "pipe").exists()
    [warning] = findings["kept"]
    assert (
        warning["state"] == "warning" and f"{entry}/hole" in warning["detail"] and f"{entry}/pipe" in warning["detail"]
    )
    everything_is_shown(box)


def test_files_on_another_file_system_are_put_aside_there(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(source: Path, target: Path, rename: Any = os.rename) -> None:
        if Path(source).is_relative_to(box.home.path) != Path(target).is_relative_to(box.home.path):
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(source), None, str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename)
    lock = box.repo / ".git" / "worktrees" / "live" / "index.lock"
    lock.write_text("half an index")
    os.utime(lock, (0, 0))
    findings, _ = repaired(box)
    assert not lock.exists() and "failed" not in states(findings)
    [beside] = lock.parent.glob("damaged-*/index.lock")
    assert beside.read_text() == "half an index" and str(beside.parent) in findings["kept"][0]["detail"]


def test_an_endless_row_is_left_out(tmp_path: Path) -> None:
    """A page that continues in itself, with an impossible length."""
    size, here = 4096, 489  # bytes of a long row that stay on its page
    length = here + (size - 4) * (1 << 28)
    number = bytes(0x80 | length >> shift & 0x7F for shift in range(35, 0, -7)) + bytes([length & 0x7F])
    first = b"SQLite format 3\0" + size.to_bytes(2, "big") + bytes(size - 18)
    head = b"\x0d" + bytes(2) + (1).to_bytes(2, "big") + bytes(3) + (10).to_bytes(2, "big")
    leaf = head + number + b"\x01" + bytes(here) + (3).to_bytes(4, "big")
    loop = (3).to_bytes(4, "big") + bytes(size - 4)
    (tmp_path / "ao.db").write_bytes(first + leaf.ljust(size, b"\0") + loop)
    salvaged = salvage.salvage(tmp_path / "ao.db")
    assert not salvaged.events and not salvaged.outbox


def test_sessions_with_missing_workspaces_can_be_restored(box: Sandbox) -> None:
    shutil.rmtree(box.home.worktrees / "app" / "live")
    shutil.rmtree(box.home.worktrees / "app" / "done")
    findings, _ = repaired(box)
    assert "`ao restore app-live` makes it anew" in findings["app-live"][0]["remedy"]
    box.start()
    for name in ("live", "done"):
        box.ao("stop", f"app-{name}")
        until(box, name, "stopped")
    box.ao("restore", "app-done")
    assert (box.home.worktrees / "app" / "done" / "done.txt").exists()


def test_repair_refuses_while_a_daemon_runs(box: Sandbox) -> None:
    box.start()
    result = box.ao("doctor", "--repair", check=False)
    assert result.returncode == 1 and "a daemon runs" in result.stderr and "ao shutdown" in result.stderr
    assert result.stderr.count("\n") == 1 and result.stdout == ""


def test_a_damaged_configuration_file_is_not_changed(box: Sandbox) -> None:
    box.home.config.write_text("port: [3000\n")
    findings, kept = repaired(box)
    assert kept is None
    assert (
        findings["configuration"][0]["state"] == "warning" and "config.yaml" in findings["configuration"][0]["detail"]
    )
    assert box.home.config.read_text() == "port: [3000\n"
    assert box.ao("doctor", "--dry-run", check=False).returncode == 2
    result = box.ao("doctor", "--repair")
    assert "ok       database" in result.stdout and "warning  configuration" in result.stdout
    box.home.token.write_text("")
    dry_run = box.ao("doctor", "--repair", "--dry-run", "--json", check=False)
    assert dry_run.returncode == 1 and json.loads(dry_run.stdout)["kept"] is None
    assert {"name", "state", "detail", "remedy"} == set(json.loads(dry_run.stdout)["checks"][0])


def test_a_missing_home_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no"), hold_daemon_lock(Home(tmp_path / "none")):
        pass
    assert not (tmp_path / "none").exists()
