"""Agents written as Python classes, in sessions of a real daemon: one-shot agents and long-lived ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator import AgentConfig, AgentPlugin, AgentStatus, NotifierPlugin, Task
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import UsageError
from agent_orchestrator.protocols import Agent, Notification
from agent_orchestrator.testing.contracts.agent import AgentContract
from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {runtime: process, agent: one-shot}
plugins: [{path: ./one_shot.py}, {path: ./long_lived.py}]
agents:
  polite: {tool: one-shot, options: {greeting: hello}}
"""

ONE_SHOT = """
import asyncio
import subprocess
from pathlib import Path
from agent_orchestrator import AgentPlugin

class OneShot(AgentPlugin):
    name = "one-shot"

    async def execute_task(self, task, context):
        print("does", task.title)
        if "fail" in task.description:
            raise RuntimeError("cannot do that")
        while "slowly" in task.description and not Path(context.workspace_path, "..", "go on").exists():
            await asyncio.sleep(0.05)
        context.progress(1, 2, "writing")
        context.usage("m", 10, 20, 0.5)
        words = f"{self.config.get('greeting', 'hi')} {task.description} {context.branch}\\n"
        with Path("said.txt").open("a") as file:
            file.write(words)
        subprocess.run(["git", "add", "-A"], check=True)
        subprocess.run(["git", "commit", "-q", "-m", task.title], check=True)
        return f"said {len(words.split())} words"
"""

LONG_LIVED = """
import asyncio
from datetime import datetime
from pathlib import Path
from agent_orchestrator import AgentConfig, AgentPlugin, AgentStatus

class LongLived(AgentPlugin):
    name = "long-lived"

    def __init__(self):
        self.state, self.doing = "idle", None

    async def start(self, config: AgentConfig) -> None:
        self.log = Path(config.workspace_path).parent / "log.txt"
        self.write(f"start {config.session_id} {config.task.description!r} {config.resumed}")
        self.state, self.doing = "working", "Analyzing codebase"

    async def send_message(self, session_id: str, message: str) -> None:
        self.write(f"message {message}")
        if message == "slow":
            await asyncio.sleep(60)
        self.state, self.doing = message.split(" ", 1) if " " in message else (message, None)

    async def get_status(self, session_id: str) -> AgentStatus:
        return AgentStatus(state=self.state, current_task=self.doing, last_activity=datetime.now())

    async def stop(self, session_id: str) -> None:
        self.write("stop")

    def write(self, line):
        with self.log.open("a") as file:
            file.write(line + "\\n")

plugin = {"agent": LongLived()}
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("plugins")) as sandbox:
        repo = sandbox.repository(config=CONFIG)
        (repo / "one_shot.py").write_text(ONE_SHOT)
        (repo / "long_lived.py").write_text(LONG_LIVED)
        sandbox.start()
        yield sandbox


def test_a_one_shot_agent_does_its_task_and_ends(box: Sandbox) -> None:
    box.ao("new", "--name", "once", "--agent", "polite", "greet everybody")
    box.wait_until(lambda: box.session("once")["status"] == "review_pending", "its change to be ready")
    box.wait_until(lambda: box.session("once")["exitCode"] == 0, "its end")
    session = box.session("once")
    assert session["usage"]["output"] == 20 and session["progress"]["step"] == "writing"
    assert box.git("show", "feature/once:said.txt") == "hello greet everybody feature/once"
    (done,) = [event["data"] for event in box.events("once") if event["type"] == "agent-done"]
    assert done == {"summary": "said 4 words"}
    box.ao("send", "once", "and me")
    box.wait_until(lambda: "and me" in box.git("show", "feature/once:said.txt"), "the message to be done as a task")
    box.wait_until(lambda: box.request("GET", "/api/sessions/once/messages")["messages"][0]["state"] == "acknowledged")


def test_a_message_to_a_busy_one_shot_agent_is_its_next_task(box: Sandbox) -> None:
    box.ao("new", "--name", "busy", "slowly now")
    sent = box.json("send", "busy", "then this")
    path = f"/api/sessions/busy/messages/{sent['messageId']}"
    box.wait_until(lambda: box.request("GET", path)["state"] == "delivered", "it to be there")
    (box.home.worktrees / "app" / "go on").touch()
    box.wait_until(lambda: box.session("busy")["exitCode"] == 0, "its end")
    lines = box.git("show", "feature/busy:said.txt").splitlines()
    assert lines == ["hi slowly now feature/busy", "hi then this feature/busy"]
    (queued,) = box.request("GET", "/api/sessions/busy/messages")["messages"]
    assert queued["state"] == "acknowledged"
    assert [event["type"] for event in box.events("busy")].count("agent-launched") == 1


def test_a_failing_one_shot_agent_fails_its_session(box: Sandbox) -> None:
    box.ao("new", "--name", "failing", "--no-wait", "fail, please")
    box.wait_until(lambda: box.session("failing")["status"] == "failed", "its failure")
    assert box.session("failing")["exitCode"] == 1
    assert "RuntimeError: cannot do that" in box.ao("logs", "failing").stdout


def test_a_long_lived_agent_gets_messages_and_reports_its_status(box: Sandbox) -> None:
    box.ao("new", "--name", "living", "--agent", "long-lived", "look around")
    log = box.home.worktrees / "app" / "log.txt"

    def wait_for_status(state: str, task: str | None) -> None:
        box.wait_until(
            lambda: (
                (now := box.request("GET", "/api/sessions/living/status"))["state"] == state
                and (task is None or now["currentTask"] == task)
            ),
            f"{state}, {task}",
        )

    wait_for_status("working", "Analyzing codebase")
    box.ao("send", "living", "waiting Which database?")
    box.wait_until(lambda: box.session("living")["status"] == "needs_input", "its question")
    assert box.session("living")["waitingFor"] == "Which database?"
    box.ao("send", "living", "idle")
    wait_for_status("idle", None)
    box.ao("send", "living", "slow")
    wait_for_status("working", None)
    box.ao("send", "--interrupt", "living", "done All of it")
    box.wait_until(lambda: [item for item in box.events("living") if item["type"] == "agent-done"], "its end")
    box.ao("stop", "living")
    box.ao("restore", "living")
    box.wait_until(lambda: log.read_text().count("start") == 2, "its second start")
    box.ao("send", "living", "error Out of ideas")
    box.wait_until(lambda: box.session("living")["status"] == "failed", "its failure")
    assert "Out of ideas" in box.ao("logs", "living").stdout
    lines = log.read_text().splitlines()
    session = box.session("living")["id"]
    assert lines[0] == f"start {session} 'look around' False"
    messages = ["waiting Which database?", "idle", "slow", "done All of it", "error Out of ideas"]
    assert [line for line in lines if line.startswith("message")] == [f"message {item}" for item in messages]
    assert lines.count("stop") == 2 and lines[-1] == "stop"


class TestOneShotKeepsTheContract(AgentContract):
    @pytest.fixture
    def agent(self, tmp_path_factory: pytest.TempPathFactory) -> Agent:
        folder = tmp_path_factory.mktemp("plugin")
        (folder / "one_shot.py").write_text(ONE_SHOT)
        plugin = PluginRegistry([{"path": "one_shot.py"}], folder).create("agent", "one-shot", {}, LocalHost())
        assert isinstance(plugin, Agent)
        return plugin


@pytest.mark.parametrize(
    "expression", ["TelegramNotifier('token')", "{'notifier': TelegramNotifier('token')}", "TelegramNotifier"]
)
def test_a_notifier_plugin_is_loaded_in_every_form(tmp_path: Path, expression: str) -> None:
    (tmp_path / "telegram.py").write_text(
        "from agent_orchestrator import Notification, NotifierPlugin\n"
        "class TelegramNotifier(NotifierPlugin):\n"
        "    name = 'telegram'\n"
        "    def __init__(self, token): self.token, self.sent = token, []\n"
        "    async def notify(self, notification): self.sent.append(notification)\n"
        f"plugin = {expression}\n"
    )
    registry = PluginRegistry([{"path": "telegram.py"}], tmp_path)
    assert registry.problems() == [] and "telegram" in registry.names("notifier")
    plugin = registry.create("notifier", "telegram", {"channel": "x"}, LocalHost())
    assert plugin.token == ("token" if "(" in expression else {"channel": "x"})


def test_invalid_plugins_are_refused_with_the_problem() -> None:
    class Neither(AgentPlugin):
        pass

    class Both(AgentPlugin):
        async def start(self, config: AgentConfig) -> None: ...
        async def execute_task(self, task: Task, context: AgentConfig) -> None: ...

    for kind, problem in ((Neither, "neither execute_task nor start"), (Both, "both execute_task and start")):
        with pytest.raises(UsageError, match=problem):
            kind.is_one_shot()
    with pytest.raises(UsageError, match="no agent state 'busy'"):
        AgentStatus("busy")
    assert Notification("a", "b", "urgent", "s").session_id == "s" and NotifierPlugin.slot == "notifier"
