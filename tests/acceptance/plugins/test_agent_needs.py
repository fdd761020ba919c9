"""Requirements of an agent plugin: the kind of workspace, and how messages are typed."""

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
def careful_box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as box:
        repo = box.repository(config=CONFIG)
        (repo / "careful.py").write_text(PLUGIN)
        box.start()
        yield box


def created_workspace(box: Sandbox, *argv: str) -> str:
    session = box.json("new", "say hello", "--no-wait", *argv)["id"]
    created = next(event for event in box.events(session) if event["type"] == "session-created")
    return str(created["data"]["workspace"])


def test_an_agent_gets_its_required_workspace_unless_the_user_chooses_one(careful_box: Sandbox) -> None:
    assert created_workspace(careful_box) == "clone"
    assert created_workspace(careful_box, "--workspace", "worktree") == "worktree"
    assert created_workspace(careful_box, "--agent", "shared") == "worktree"
    assert created_workspace(careful_box, "--agent", "demo") == "worktree"
    (careful_box.repo / "agent-orchestrator.yaml").write_text(
        CONFIG.replace("process}", "process, workspace: worktree}")
    )
    assert careful_box.wait_until(lambda: created_workspace(careful_box) == "worktree", "the project's own setting")


def test_a_message_is_typed_as_the_plugin_converts_it(careful_box: Sandbox) -> None:
    careful_box.ao("create", "s")
    careful_box.ao("send", "s", "begin")
    careful_box.wait_until(lambda: careful_box.session("s")["activity"] == "idle", "the agent")
    careful_box.ao("send", "s", "[[edit: a.txt|x]] [[commit: say !now]]", "--wait")
    careful_box.wait_until(lambda: "say bang now" in careful_box.git("log", "--all", "--format=%s"), "what was typed")
