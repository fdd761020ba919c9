"""The sandbox of a project: when it applies or is refused, and its documentation."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.effective import ProjectConfig, resolve_agent
from agent_orchestrator.errors import AoError, Missing, UsageError
from agent_orchestrator.plugins.runtimes import bubblewrap
from agent_orchestrator.protocols import AgentState, LaunchSpec
from agent_orchestrator.protocols.host import ProgramResult
from agent_orchestrator.sessions.isolation.sandbox import is_sandboxed, require_sandbox, sandboxed_launch
from agent_orchestrator.sessions.isolation.secret_files import SECRET_PATHS
from agent_orchestrator.sessions.permissions.permission_mode import permission_mode
from tests.parts import TrustsEverything


def project(folder: Path, sandbox: str) -> ProjectConfig:
    (folder / "app" / ".git").mkdir(parents=True)
    file = folder / "app" / "agent-orchestrator.yaml"
    file.write_text(f"projects: {{app: {{path: ., sandbox: {sandbox}, agentConfig: {{permissions: full}}}}}}\n")
    configs = ConfigSet(folder / "none.yaml", {"HOME": str(folder)}, trust=TrustsEverything())
    configs.add(file)
    app = configs.project("app")
    assert app is not None
    return app


class Machine(LocalHost):
    """A machine whose bwrap exits with the given code and error; None: not installed."""

    def __init__(self, code: int | None, error: bytes = b"") -> None:
        super().__init__()
        self.code, self.error = code, error

    def which(self, program: str, path: str | None = None) -> str | None:  # noqa: ARG002
        return None if self.code is None else f"/bin/{program}"

    async def run(self, *_: object, **__: object) -> ProgramResult:
        return ProgramResult(self.code or 0, b"", self.error)


def test_full_permissions_count_only_with_a_sandbox(tmp_path: Path) -> None:
    app = project(tmp_path, "bwrap")
    settings = resolve_agent(app, None)
    modes = {
        runtime: permission_mode(app, settings, runtime)[0] for runtime in ("tmux", "process", "docker", "ray", "mine")
    }
    assert modes == {"tmux": "full", "process": "full", "docker": "full", "ray": "auto-edit", "mine": "auto-edit"}
    assert [runtime for runtime in modes if is_sandboxed(app, runtime)] == ["tmux", "process"]


@pytest.mark.anyio
async def test_a_runtime_without_sandbox_support_is_refused(tmp_path: Path) -> None:
    app, machine = project(tmp_path, "bwrap"), Machine(0)
    for runtime in ("tmux", "process", "docker"):
        await require_sandbox(machine, app, runtime)
    with pytest.raises(UsageError, match="sandbox: bwrap is for the runtimes process and tmux, not for mine"):
        await require_sandbox(machine, app, "mine")


@pytest.mark.anyio
async def test_a_project_without_a_sandbox_needs_none(tmp_path: Path) -> None:
    await require_sandbox(Machine(None), project(tmp_path, "none"), "mine")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("machine", "system", "message"),
    [
        (Machine(None), "linux", "sandbox: bwrap needs bubblewrap, which is not installed: install it"),
        (Machine(1, b"bwrap: No permissions\n"), "linux", "cannot make a sandbox here: No permissions: allow user"),
        (Machine(0), "darwin", "sandbox: bwrap needs Linux: use runtime: docker"),
    ],
)
async def test_a_machine_without_sandbox_support_is_refused_with_a_remedy(
    machine: Machine, system: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(Missing) as refused:
        await bubblewrap.find_bwrap(machine)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, AoError)


def test_the_page_lists_all_hidden_files() -> None:
    page = (Path(__file__).parents[4] / "docs" / "sandbox.md").read_text()
    assert [name for name in SECRET_PATHS if f"`{name}`" not in page] == []


@pytest.mark.anyio
async def test_a_slow_agent_plugin_does_not_block_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("workspace/.git/objects/info", "private"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "workspace/.git/config").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    free = threading.Event()

    class Slow:
        def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
            del env, private
            assert free.wait(40)
            return AgentState((tmp_path / "kept",))

    spec = LaunchSpec(
        session="app-fix",
        generation=1,
        argv=("true",),
        cwd=tmp_path / "workspace",
        env={"AO_SPOOL": str(tmp_path / "private/spool"), "HOME": str(tmp_path)},
        private=tmp_path / "private",
        log=tmp_path / "private/terminal.log",
    )
    workspace = SimpleNamespace(git_dir=str(tmp_path / "workspace/.git"))
    facts = SimpleNamespace(workspace=workspace, spec=SimpleNamespace(path=str(spec.cwd), repo=str(spec.cwd)))
    args: tuple[Any, ...] = (Machine(0), Home(tmp_path / "ao"), facts, Slow(), {}, spec)
    launching = asyncio.create_task(sandboxed_launch(*args))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not launching.done()
    free.set()
    assert str(tmp_path / "kept") in (await launching).argv
