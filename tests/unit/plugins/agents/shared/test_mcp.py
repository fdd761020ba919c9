"""How agents get our MCP server, and that a coordinating one cannot edit: by files and flags of their own, and no token in them."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.protocols import Agent, AgentContext, AgentLaunch

URL = "http://127.0.0.1:3000/mcp"
TOKEN = "aos_app-x.1.secret"


def launched(agent: str, program: str, folder: Path, **more: Any) -> AgentLaunch:
    program_file = folder / "bin" / program
    program_file.parent.mkdir(exist_ok=True)
    program_file.write_text("#!/bin/sh\nexit 0\n")
    program_file.chmod(0o755)
    for name in ("home", "w", "private"):
        (folder / name).mkdir(exist_ok=True)
    env = {
        "HOME": str(folder / "home"),
        "PATH": f"{program_file.parent}{os.pathsep}{os.environ['PATH']}",
        "AO_TOKEN": TOKEN,
    }
    context = AgentContext(
        session="app-x",
        project="app",
        workspace=folder / "w",
        branch="b",
        base="main",
        prompt="do",
        task_file=folder / "private" / "task.md",
        private=folder / "private",
        repo=folder / "w",
        env=env,
        **more,
    )
    plugin = PluginRegistry().create("agent", agent, {}, LocalHost())
    assert isinstance(plugin, Agent)
    return asyncio.run(plugin.launch(context))


@pytest.mark.parametrize(
    ("agent", "program"), [("claude-code", "claude"), ("codex", "codex"), ("opencode", "opencode")]
)
@pytest.mark.parametrize("url", [URL, URL.replace("http:", "https:")])
def test_the_token_is_neither_on_a_command_line_nor_in_a_file(
    agent: str, program: str, url: str, tmp_path: Path
) -> None:
    plan = launched(agent, program, tmp_path, mcp=url)
    plan_text = json.dumps([plan.argv, dict(plan.env), dict(plan.plugin_data)])
    assert TOKEN not in plan_text
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if TOKEN in file.read_text()]
    everything = plan_text + "".join(file.read_text() for file in (tmp_path / "private").rglob("*") if file.is_file())
    assert "AO_TOKEN" in everything
    assert (url in everything) == url.startswith("http:")
    assert ("agent_orchestrator" in everything) == url.startswith("https:"), "it has our certificate from nowhere"


@pytest.mark.parametrize(
    ("agent", "program"), [("claude-code", "claude"), ("codex", "codex"), ("opencode", "opencode")]
)
def test_without_our_server_no_option_is_given(agent: str, program: str, tmp_path: Path) -> None:
    plan = launched(agent, program, tmp_path)
    assert "mcp" not in json.dumps([plan.argv, dict(plan.env)]).lower().replace("pytest", "")
    assert not list((tmp_path / "private").glob("*mcp*"))


def test_claude_code_is_denied_edits_and_needs_not_ask_for_our_tools(tmp_path: Path) -> None:
    plan = launched("claude-code", "claude", tmp_path, mcp=URL, edits=False, permissions="default")
    settings = json.loads((tmp_path / "private" / "claude-settings.json").read_text())["permissions"]
    assert settings["deny"] == ["Edit", "Write", "NotebookEdit"]
    assert "mcp__ao" in settings["allow"]
    file = Path(plan.argv[plan.argv.index("--mcp-config") + 1])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["mcpServers"]["ao"]["headers"] == {"Authorization": "Bearer ${AO_TOKEN}"}
    launched("claude-code", "claude", tmp_path, mcp=URL)
    assert "deny" not in json.loads((tmp_path / "private" / "claude-settings.json").read_text())["permissions"]


@pytest.mark.parametrize("permissions", ["default", "auto-edit", "full"])
def test_codex_stays_in_its_read_only_sandbox(permissions: str, tmp_path: Path) -> None:
    plan = launched("codex", "codex", tmp_path, mcp=URL, edits=False, permissions=permissions)
    assert 'sandbox_mode="read-only"' in plan.argv
    assert "--dangerously-bypass-approvals-and-sandbox" not in plan.argv
    assert not [word for word in plan.argv if "writable_roots" in word]


@pytest.mark.parametrize("permissions", ["default", "auto-edit", "full"])
def test_opencode_is_denied_edits(permissions: str, tmp_path: Path) -> None:
    plan = launched("opencode", "opencode", tmp_path, mcp=URL, edits=False, permissions=permissions)
    rules = json.loads(plan.env["OPENCODE_PERMISSION"])
    assert rules["edi?"] == {"*": "deny"}
    assert rules["ao_*"] == "allow"
