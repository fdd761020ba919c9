"""Without free file descriptors: what cannot be read raises a temporary error and counts neither as missing nor as ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_orchestrator.base.api_tokens import Tokens
from agent_orchestrator.base.git.refs import find_layout, read_head
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.pull_requests import branch_watch
from agent_orchestrator.config.load import load_file
from agent_orchestrator.core.events import BaseMoved, Event
from agent_orchestrator.core.listeners import Listeners
from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.agents.shared.spool import SpoolReader
from agent_orchestrator.plugins.runtimes.process import ProcessRuntime
from agent_orchestrator.plugins.workspaces.workspace_record import WorkspaceRecord, read_record, write_record
from agent_orchestrator.protocols import Handle, WorkspaceSpec
from agent_orchestrator.protocols.host import ProcessId
from agent_orchestrator.testing.contracts.workspace import git_in
from agent_orchestrator.testing.terminals import wait_until_true
from tests.parts import HandSetClock

pytestmark = pytest.mark.anyio


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    child = subprocess.Popen(["sleep", "60"])
    process = LocalHost().process(child.pid)
    assert process is not None
    yield process
    child.kill()
    child.wait()


def test_a_process_that_cannot_be_probed_has_not_ended(sleeper: ProcessId) -> None:
    host = LocalHost()
    with no_descriptors(), pytest.raises(Temporary, match="open files"):
        host.process(sleeper.pid)
    assert host.process(sleeper.pid) == sleeper


async def test_the_end_of_such_a_process_is_still_awaited(sleeper: ProcessId) -> None:
    host = LocalHost()
    with no_descriptors():
        waiting = asyncio.create_task(host.exited(sleeper))
        await asyncio.sleep(0.05)
        assert not waiting.done()
    os.kill(sleeper.pid, 9)
    await asyncio.wait_for(waiting, 60)


async def test_a_terminal_that_cannot_be_probed_is_not_gone(sleeper: ProcessId, tmp_path: Path) -> None:
    runtime = ProcessRuntime({"home": str(tmp_path)}, LocalHost())
    address = {name: str(tmp_path / name) for name in ("socket", "private", "log")}
    holder = {"holder": str(sleeper.pid), "holderStarted": sleeper.started}
    handle = Handle(
        "process", "app-1", 1, sleeper.pid, sleeper.started, LocalHost().boot_id(), address={**address, **holder}
    )
    with no_descriptors():
        with pytest.raises(Temporary):
            await runtime.probe([handle])
        with pytest.raises(Temporary):
            await runtime.deliver(handle, "m-1", "hello")
        with pytest.raises(Temporary):
            await runtime.watched(handle)


def test_a_repository_that_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    for argv in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *argv], cwd=tmp_path, check=True)
    layout = find_layout(tmp_path)
    assert layout is not None
    with no_descriptors(), pytest.raises(Temporary):
        read_head(layout.git_dir)
    assert read_head(layout.git_dir)


def test_a_spool_is_read_once_descriptors_are_free(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.write_text("{}\n")
    reader = SpoolReader(spool)
    with no_descriptors(), pytest.raises(Temporary):
        reader.read()
    assert reader.read() == [(0, b"{}")]


def test_our_files_that_cannot_be_opened_are_not_reported_as_broken(tmp_path: Path) -> None:
    spec = WorkspaceSpec("s", tmp_path, tmp_path / "w", None, tmp_path, "feature/s", "main")
    write_record(spec, WorkspaceRecord(str(spec.path), spec.branch, "main", "0" * 40, "0" * 40, made_branch=True))
    home = Home(tmp_path / "home")
    Tokens(home).create("phone", "viewer")
    tokens = Tokens(home)
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text("{}")
    with no_descriptors():
        with pytest.raises(Temporary, match="open files"):
            read_record(spec)
        with pytest.raises(Temporary, match="open files"):
            tokens.list()
        with pytest.raises(Temporary, match="open files"):
            load_file(file, {})
    assert read_record(spec) and tokens.list() and load_file(file, {})


async def test_a_base_branch_that_cannot_be_read_is_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git_in(tmp_path, "init", "-q", "-b", "main")
    git_in(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    monkeypatch.setattr(branch_watch, "RETRY_AFTER", 0.01)
    recorded: list[Event] = []

    async def append(*events: Event) -> None:
        recorded.extend(events)

    pull_request = SimpleNamespace(state="open", base="main")
    spec = SimpleNamespace(repo=str(tmp_path), scm="local")
    facts = SimpleNamespace(
        id="app-x",
        project="app",
        pr=pull_request,
        spec=spec,
        branch="feature/x",
        base_head="",
        live=True,
        workspace=None,
        head="",
        has_remote_forge=False,
    )
    flow = SimpleNamespace(sessions={"app-x": facts}, listeners=Listeners(), clock=HandSetClock(), append=append)
    watch = SimpleNamespace(watch_entry=lambda _path, _call: None)
    core: Any = SimpleNamespace(flow=flow, watch=watch, home=None, host=None)
    with no_descriptors():
        branch_watch.BranchWatch(core).start()
        await asyncio.sleep(0.03)
        assert not recorded
    await wait_until_true(lambda: bool(recorded))
    assert recorded[0].body == BaseMoved(git_in(tmp_path, "rev-parse", "main"))
