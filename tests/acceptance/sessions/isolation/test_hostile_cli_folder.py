"""`sandbox: bwrap`: files that an agent leaves in its CLI's folder, which it may write, do not harm the next launch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox, have_bwrap

pytestmark = pytest.mark.skipif(not have_bwrap(), reason="bubblewrap cannot make a sandbox here")

CONFIG = """\
defaults: {runtime: process, agent: claude}
agents:
  claude: {tool: claude-code, permissions: full}
  moved: {tool: claude-code, permissions: full, env: {CLAUDE_CONFIG_DIR: "@HOME@/.cw"}}
  codex: {tool: codex, permissions: full}
projects:
  app: {path: ., sandbox: bwrap}
"""

AGENT = r"""#!/bin/sh
case "$*" in
  *--version*|*app-server*|*models*) echo 1.0.0; exit ;;
  *first*) ;;
  *) exec sleep 600 ;;
esac
cd "${CLAUDE_CONFIG_DIR:-$HOME/.codex}" || exit 3
case "${CLAUDE_CONFIG_DIR-}" in
  */.claude) rm -f .claude.json; mkfifo .claude.json; mkdir -p .claude.json.lock/x ;;
  */.cw) rm -f .claude.json; ln -s "$HOME/other.json" .claude.json ;;
  *) touch state_1.sqlite; mkfifo models_cache.json ;;
esac
touch planted
exec sleep 600
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path / "box", "process") as box:
        programs = box.user_home / "bin"
        programs.mkdir(parents=True)
        for name in ("claude", "codex"):
            (programs / name).write_text(AGENT)
            (programs / name).chmod(0o755)
        box.env["PATH"] = f"{programs}:{box.env['PATH']}"
        box.repository(config=CONFIG.replace("@HOME@", str(box.user_home)))
        box.start()
        yield box


@pytest.mark.parametrize(("agent", "folder"), [("claude", ".claude"), ("codex", ".codex"), ("moved", ".cw")])
def test_pipes_and_symlinks_in_the_cli_folder_do_not_affect_the_next_launch(
    box: Sandbox, agent: str, folder: str
) -> None:
    other = box.user_home / "other.json"
    other.write_text('{"mine": 1}')
    box.ao("new", "first", "--agent", agent, "--name", "one")
    box.wait_until((box.user_home / folder / "planted").exists, "what the first leaves")
    box.ao("new", "second", "--agent", agent, "--name", "two")
    box.wait_until(lambda: box.session("app-two")["pid"], "the second's start")
    assert other.read_text() == '{"mine": 1}'
    copy = box.user_home / ".claude/.claude.json"
    assert agent != "claude" or json.loads(copy.read_text())["hasCompletedOnboarding"] is True
