"""Dialogs of Claude Code that are answered in advance in its state file, and the lock of that file."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode
from agent_orchestrator.plugins.agents.claude_code.startup_dialogs import trusted_root
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.plugins.agents.shared.user_files import lock_folder
from agent_orchestrator.protocols import AgentContext
from tests.unit.plugins.agents.claude_code.launch_files import KEY

pytestmark = pytest.mark.anyio


def own_file(context: AgentContext) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(context.env["HOME"]) / ".claude.json").read_text())
    return content


async def test_its_own_file_keeps_its_other_content(agent: ClaudeCode, context: AgentContext, tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", Path(context.env["HOME"]) / ".claude.json"
    real.write_text(json.dumps({"mcpServers": {"a": 1}, "projects": {"/else": {"x": 1}}, "theme": "light"}))
    real.chmod(0o640)
    link.symlink_to(real)
    await agent.launch(context)
    data = own_file(context)
    assert data["mcpServers"] == {"a": 1} and data["theme"] == "light" and data["hasCompletedOnboarding"] is True
    assert data["projects"]["/else"] == {"x": 1}
    assert data["projects"][str(context.workspace)]["hasTrustDialogAccepted"] is True
    assert data["customApiKeyResponses"]["approved"] == [KEY[-20:]]
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o640
    before = real.stat().st_mtime_ns
    await agent.launch(context)
    assert real.stat().st_mtime_ns == before, "nothing was missing"


async def test_its_own_file_is_written_under_its_lock(
    agent: ClaudeCode, context: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    lock, merge = Path(context.env["HOME"]) / ".claude.json.lock", agent_cli.merge_json

    def watched(path: Path, change: Callable[[dict[str, Any]], bool], agents: Path) -> None:
        held.append(lock.is_dir())
        merge(path, change, agents)

    monkeypatch.setattr(agent_cli, "merge_json", watched)
    await agent.launch(context)
    assert held == [True] and not lock.exists()


async def test_a_rejected_key_and_a_broken_file_stay_unchanged(agent: ClaudeCode, context: AgentContext) -> None:
    file = Path(context.env["HOME"]) / ".claude.json"
    file.write_text(json.dumps({"customApiKeyResponses": {"approved": [], "rejected": [KEY[-20:]]}}))
    await agent.launch(context)
    assert own_file(context)["customApiKeyResponses"]["approved"] == []
    file.write_text("{broken")
    await agent.launch(context)
    assert file.read_text() == "{broken"


async def test_a_moved_configuration_folder_is_used(agent: ClaudeCode, context: AgentContext, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    launch = await agent.launch(replace(context, env={**context.env, "CLAUDE_CONFIG_DIR": str(moved)}))
    assert json.loads((moved / ".claude.json").read_text())["hasCompletedOnboarding"] is True
    assert launch.plugin_data["folder"] == str(moved)
    assert not (Path(context.env["HOME"]) / ".claude.json").exists()


def test_trust_is_stored_for_the_main_checkout_or_the_clone(tmp_path: Path) -> None:
    def git(*argv: str, cwd: Path = tmp_path) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *argv], cwd=cwd, check=True)

    git("init", "-q", "repo")
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=tmp_path / "repo")
    git("worktree", "add", "-q", str(tmp_path / "tree"), cwd=tmp_path / "repo")
    git("clone", "-q", "repo", "copy")
    assert trusted_root(tmp_path / "tree") == tmp_path / "repo"
    assert trusted_root(tmp_path / "copy") == tmp_path / "copy"


def test_its_lock_is_awaited_and_a_stale_lock_is_replaced(tmp_path: Path) -> None:
    file, lock = tmp_path / "f.json", tmp_path / "f.json.lock"
    with lock_folder(file) as held:
        assert held and lock.is_dir()
        with lock_folder(file, patience=0.05) as again:
            assert not again
    assert not lock.exists()
    lock.mkdir()
    old = (datetime.now(UTC) - timedelta(minutes=1)).timestamp()
    os.utime(lock, (old, old))
    with lock_folder(file, patience=0.05) as acquired:
        assert acquired
