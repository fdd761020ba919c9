"""The in-memory plugins: against the contracts of their slots where possible, otherwise in single tests."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Conflict, Temporary
from agent_orchestrator.protocols import (
    SCM,
    Agent,
    Alive,
    Delivered,
    Exit,
    Gone,
    LaunchSpec,
    Notifier,
    NotReady,
    Runtime,
    Terminal,
    Tracker,
    Undeliverable,
    Window,
    Workspace,
)
from agent_orchestrator.testing import plugins
from agent_orchestrator.testing.contracts.agent import AgentContract
from agent_orchestrator.testing.contracts.notifier import NotifierContract
from agent_orchestrator.testing.contracts.scm import SCMContract
from agent_orchestrator.testing.contracts.tracker import TrackerContract
from agent_orchestrator.testing.contracts.workspace import ignore_line, spec_for


class TestAgent(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return plugins.MemoryAgent({}, LocalHost())


class TestTracker(TrackerContract):
    @pytest.fixture
    def tracker(self) -> Tracker:
        return plugins.MemoryTracker({}, LocalHost())


class TestSCM(SCMContract):
    @pytest.fixture
    def scm(self, tmp_path: Path) -> SCM:
        first = tmp_path / "first"
        first.mkdir()
        (first / "a.txt").write_text("1\n2\n3\n")
        for argv in (["init", "-q", "-b", "main"], ["add", "a.txt"], ["commit", "-q", "-m", "first"]):
            subprocess.run(["git", "-C", str(first), *argv], check=True)
        subprocess.run(["git", "clone", "-q", "--bare", str(first), str(tmp_path / "app.git")], check=True)
        return plugins.MemorySCM({"repository": str(tmp_path / "app.git")}, LocalHost())


class TestNotifier(NotifierContract):
    @pytest.fixture
    def notifier(self) -> Notifier:
        return plugins.MemoryNotifier({}, LocalHost())

    @pytest.fixture
    def sent(self, notifier: plugins.MemoryNotifier) -> Callable[[], Sequence[str]]:
        return lambda: [
            f"{notification.title} {notification.message} {notification.session_id}" for notification in notifier.sent
        ]

    @pytest.fixture
    def unreachable(self) -> Notifier:
        notifier = plugins.MemoryNotifier()
        notifier.failing = Temporary("nobody is there", "try again")
        return notifier


def spec(tmp_path: Path, session: str = "app-fix", generation: int = 1) -> LaunchSpec:
    private = tmp_path / session
    return LaunchSpec(session, generation, ("agent",), tmp_path, {}, private, private / "log")


@pytest.mark.anyio
async def test_the_memory_runtime_needs_no_processes(tmp_path: Path) -> None:
    runtime = plugins.MemoryRuntime()
    assert isinstance(runtime, Runtime)
    handle = await runtime.launch(spec(tmp_path))
    assert await runtime.launch(spec(tmp_path)) == handle
    other = await runtime.launch(spec(tmp_path, "app-other"))
    assert await runtime.probe([handle, other]) == [Alive(), Alive()]
    assert await runtime.orphaned_terminals([other]) == [handle]
    assert await runtime.deliver(handle, "m1", "hello") == await runtime.deliver(handle, "m1", "again") == Delivered()
    mine = runtime.launched["app-fix"]
    assert mine.typed == {"m1": "hello\r"}
    mine.held, mine.screen_text = "somebody is typing", "> "
    assert await runtime.deliver(handle, "m2", "wait") == NotReady("somebody is typing")
    assert await runtime.screen(handle) == "> "
    await runtime.press(handle, ["y"], once="a")
    await runtime.press(handle, ["y"], once="a")
    await runtime.resize(handle, 100, 30)
    assert (mine.pressed, mine.size) == (["y"], (100, 30))
    ending = asyncio.create_task(runtime.ended(handle))
    runtime.end("app-fix", Exit(3))
    assert await ending == Gone(Exit(3))
    assert await runtime.stop(handle) == Gone(Exit(3))
    assert await runtime.stop(other) == Gone(Exit(signal=15))
    assert isinstance(await runtime.deliver(handle, "m3", "late"), Undeliverable)
    with pytest.raises(Conflict):
        await runtime.press(handle, ["y"])
    await runtime.discard(handle)
    assert await runtime.probe([handle, replace(other, boot_id="another")]) == [Gone(lost=True), Gone(lost=True)]


@pytest.mark.anyio
async def test_the_memory_workspace_needs_no_git(tmp_path: Path) -> None:
    workspace = plugins.MemoryWorkspace()
    assert isinstance(workspace, Workspace)
    spec = spec_for(tmp_path, tmp_path, "fix")
    assert await workspace.abandon(spec) is None
    created = await workspace.create(spec, ignore_line)
    assert (created.path, created.branch) == (spec.path, "feature/fix") and spec.path.is_dir()
    assert await workspace.create(spec, ignore_line) == await workspace.abandon(spec) == created
    await workspace.publish(spec)
    await workspace.remove(spec)
    await workspace.remove(spec)
    assert (workspace.published, workspace.specs, spec.path.exists()) == (["app-fix"], {}, False)


@pytest.mark.anyio
async def test_the_memory_terminal_records_windows(tmp_path: Path) -> None:
    terminal = plugins.MemoryTerminal()
    assert isinstance(terminal, Terminal)
    window = Window("app-fix", ("ao", "attach", "app-fix"), tmp_path)
    await terminal.open(window)
    assert terminal.opened == [window]


def test_each_slot_has_a_memory_plugin() -> None:
    kinds = {"Agent", "Runtime", "Workspace", "Tracker", "SCM", "Notifier", "Terminal"}
    assert {name.removeprefix("Memory") for name in vars(plugins) if name.startswith("Memory")} == kinds
