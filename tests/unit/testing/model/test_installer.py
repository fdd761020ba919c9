"""The installer of real agents, with a scripted `npm`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

INSTALLER = Path(__file__).parents[4] / "scripts" / "agents"

NPM = """#!/bin/sh
echo "$PWD" >> "$NPM_LOG"
[ -z "$NPM_FAILS" ] || { echo "npm error 404 not found" >&2; echo "npm error A complete log of this run" >&2; exit 1; }
mkdir -p node_modules/.bin
for name in claude codex opencode kimi; do
  printf '#!/bin/sh\\necho "agent version v9.8.7 (stub)"\\n' > node_modules/.bin/$name
  chmod +x node_modules/.bin/$name
done
"""


@pytest.fixture
def world(tmp_path: Path) -> dict[str, str]:
    """Return an environment with an empty cache and the scripted `npm` first on the PATH."""
    (tmp_path / "bin").mkdir()
    npm = tmp_path / "bin" / "npm"
    npm.write_text(NPM)
    npm.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    log = tmp_path / "npm.log"
    log.touch()
    return {**os.environ, "PATH": path, "AO_AGENT_CACHE": str(tmp_path / "cache"), "NPM_LOG": str(log)}


def installer(world: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(INSTALLER), *argv], env=world, capture_output=True, text=True, check=False, timeout=60
    )


def test_an_agent_is_installed_once_in_its_own_folder(world: dict[str, str]) -> None:
    completed = installer(world, "claude-code", "codex")
    assert sorted(completed.stdout.splitlines()) == ["claude-code: 9.8.7", "codex: 9.8.7"]
    cache = Path(world["AO_AGENT_CACHE"])
    assert (cache / "claude-code" / "package.json").read_text().count("@anthropic-ai/claude-code") == 1
    calls = Path(world["NPM_LOG"]).read_text()
    table = json.loads(installer(world, "--json", "claude-code", "codex").stdout)
    assert Path(world["NPM_LOG"]).read_text() == calls
    folder = cache / "codex" / "node_modules" / ".bin"
    assert table["codex"] == {"bin": str(folder / "codex"), "version": "9.8.7", "path": [str(folder)], "seeds": {}}


def test_another_version_is_reinstalled(world: dict[str, str]) -> None:
    installer(world, "codex")
    (Path(world["AO_AGENT_CACHE"]) / "codex" / "stamp").write_text("@openai/codex@0.0.1\n")
    installer(world, "codex")
    assert len(Path(world["NPM_LOG"]).read_text().splitlines()) == 2


def test_packages_fetched_at_an_agents_start_are_preinstalled(world: dict[str, str]) -> None:
    seeds = json.loads(installer(world, "--json", "opencode").stdout)["opencode"]["seeds"]
    assert "@opencode-ai/plugin" in (Path(seeds[".config/opencode"]) / "package.json").read_text()


def test_a_failed_installation_is_reported_and_stops_nothing(world: dict[str, str]) -> None:
    completed = installer({**world, "NPM_FAILS": "1"}, "codex")
    assert completed.returncode == 0
    assert completed.stdout == "codex: unavailable: npm install --no-audit failed (1): npm error 404 not found\n"
    assert installer({**world, "NPM_FAILS": "1"}, "--json", "--no-install", "codex").stdout == "{}\n"
    assert installer(world, "gemini").stdout.startswith("gemini: unavailable: ")
    assert installer(world, "claude").returncode == 2
