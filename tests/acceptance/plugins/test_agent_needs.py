"""What an agent's plugin may ask for: the workspace that its CLI can work in, and how a message is typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

PLUGIN = """\
from agent_orchestrator.plugins.agents.demo import Demo

class Careful(Demo):
    name = "careful"
    workspace = "clone"
    def escape_input(self, text): return text.replace("!", "bang ")

plugin = Careful
"""

CONFIG = """\
defaults: {agent: careful, runtime: process}
plugins: [{path: careful.py}]
agents:
  shared: {tool: careful, workspace: worktree}
"""


@pytest.fixture
def careful(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as box:
        repo = box.repository(config=CONFIG)
        (repo / "careful.py").write_text(PLUGIN)
        box.start()
        yield box


def workspace(box: Sandbox, *argv: str) -> str:
    session = box.json("new", "say hello", "--no-wait", *argv)["id"]
    made = next(one for one in box.events(session) if one["type"] == "session-created")
    return str(made["data"]["workspace"])


def test_an_agent_gets_the_workspace_it_needs_unless_the_user_names_one(careful: Sandbox) -> None:
    assert workspace(careful) == "clone"
    assert workspace(careful, "--workspace", "worktree") == "worktree"
    assert workspace(careful, "--agent", "shared") == "worktree"
    assert workspace(careful, "--agent", "demo") == "worktree"
    (careful.repo / "agent-orchestrator.yaml").write_text(CONFIG.replace("process}", "process, workspace: worktree}"))
    assert careful.until(lambda: workspace(careful) == "worktree", "the project's own word")


def test_a_message_is_typed_as_the_agent_needs_it(careful: Sandbox) -> None:
    careful.ao("create", "s")
    careful.ao("send", "s", "begin")
    careful.until(lambda: careful.session("s")["activity"] == "idle", "the agent")
    careful.ao("send", "s", "[[edit: a.txt|x]] [[commit: say !now]]", "--wait")
    careful.until(lambda: "say bang now" in careful.git("log", "--all", "--format=%s"), "what was typed")
