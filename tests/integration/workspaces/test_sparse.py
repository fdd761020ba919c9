"""Sparse workspaces: for Git, for the agent, and when they are saved and restored."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import CloneWorkspace
from agent_orchestrator.plugins.workspaces.git_workspace import GitWorkspace
from agent_orchestrator.plugins.workspaces.worktree import WorktreeWorkspace
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.sessions.rescue import removal_obstacles, rescue, restore_work
from agent_orchestrator.testing.contracts.workspace import git_in, ignore_line, spec_for
from tests.integration.rescue.world import make_repository, read_files

pytestmark = pytest.mark.anyio

FILES = {
    "top.txt": "top\n",
    "apps/readme": "apps\n",
    "apps/web/a.txt": "a\n",
    "apps/web/deep/b.txt": "b\n",
    "apps/[id]/page.txt": "page\n",
    "apps/mobile/m.txt": "m\n",
    "libs/core/c.txt": "c\n",
}
INSIDE = ["apps/[id]/page.txt", "apps/readme", "apps/web/a.txt", "apps/web/deep/b.txt", "top.txt"]


@pytest.fixture(params=[WorktreeWorkspace, CloneWorkspace], ids=["worktree", "clone"])
def plugin(request: pytest.FixtureRequest) -> GitWorkspace:
    workspace_plugin: GitWorkspace = request.param({}, LocalHost())
    return workspace_plugin


@pytest.fixture
def spec(tmp_path: Path) -> WorkspaceSpec:
    repo = make_repository(tmp_path / "repo", FILES)
    return replace(spec_for(repo, tmp_path, "task"), sparse=("apps/web", "apps/[id]"))


def present_files(root: Path) -> list[str]:
    return sorted(name.decode() for name, state in read_files(root).items() if state[0] != "folder")


async def test_a_sparse_workspace_contains_only_the_configured_folders(
    plugin: GitWorkspace, spec: WorkspaceSpec
) -> None:
    config = (spec.repo / ".git" / "config").read_bytes()
    info = await plugin.create(spec, ignore_line)
    assert present_files(spec.path) == INSIDE
    assert info.notes == () and (spec.repo / ".git" / "config").read_bytes() == config
    for env in (info.git_env, {}):
        assert git_in(spec.path, "status", "--porcelain", env=env) == ""
    assert [name for name in present_files(spec.repo) if name in FILES] == sorted(FILES), "the main checkout is whole"
    assert git_in(spec.repo, "status", "--porcelain") == ""


async def test_the_agents_git_works_in_a_sparse_workspace(plugin: GitWorkspace, spec: WorkspaceSpec) -> None:
    config = (spec.repo / ".git" / "config").read_bytes()
    info = await plugin.create(spec, ignore_line)
    env = info.git_env
    (spec.path / "apps/web/a.txt").write_text("changed\n")
    git_in(spec.path, "commit", "-qam", "inside", env=env)
    git_in(spec.path, "sparse-checkout", "add", "libs/core", env=env)
    assert present_files(spec.path) == sorted([*INSIDE, "libs/core/c.txt"])
    (spec.path / "libs/core/c.txt").write_text("changed\n")
    git_in(spec.path, "commit", "-qam", "wider", env=env)
    assert git_in(spec.path, "diff", "--name-only", info.base_commit, env=env).split() == [
        "apps/web/a.txt",
        "libs/core/c.txt",
    ]
    git_in(spec.path, "reset", "-q", "--hard", "HEAD~2", env=env)
    assert "apps/mobile/m.txt" not in present_files(spec.path)
    assert (spec.repo / ".git" / "config").read_bytes() == config, "the user's configuration is not written"


async def test_work_outside_of_the_sparse_folders_is_seen_and_saved(plugin: GitWorkspace, spec: WorkspaceSpec) -> None:
    host = LocalHost()
    info = await plugin.create(spec, ignore_line)
    (spec.path / "apps/web/a.txt").write_text("inside\n")
    (spec.path / "apps/mobile").mkdir()
    (spec.path / "apps/mobile/m.txt").write_text("outside\n")
    (spec.path / "libs").mkdir()
    (spec.path / "libs/new.txt").write_text("new\n")
    before = read_files(spec.path)
    changed = {change.path for change in await Git(host, spec.path).status()}
    assert changed == {"apps/web/a.txt", "apps/mobile/m.txt", "libs/new.txt"}
    assert "+outside" in await Git(host, spec.path).diff(info.base_commit)
    saved = await rescue(host, spec.repo, spec.path, spec.session)
    assert saved.commit is not None and not await removal_obstacles(host, spec.repo, spec.path, spec.session)
    diff_files = git_in(spec.repo, "diff", "--name-only", "main", saved.commit).split()
    assert sorted(diff_files) == sorted(changed), "excluded files are not shown as deleted"
    await plugin.remove(spec)
    await plugin.create(replace(spec, existing=True), ignore_line)
    assert (await restore_work(host, spec.repo, spec.path, spec.session)).restored
    assert read_files(spec.path) == before
    assert {change.path for change in await Git(host, spec.path).status()} == changed


async def test_saved_work_is_restored_after_the_sparse_setting_was_removed(
    plugin: GitWorkspace, spec: WorkspaceSpec
) -> None:
    host = LocalHost()
    await plugin.create(spec, ignore_line)
    (spec.path / "apps/web/a.txt").write_text("inside\n")
    before = read_files(spec.path)
    await rescue(host, spec.repo, spec.path, spec.session)
    await plugin.remove(spec)
    info = await plugin.create(replace(spec, existing=True, sparse=()), ignore_line)
    assert len(present_files(spec.path)) == len(FILES)
    await restore_work(host, spec.repo, spec.path, spec.session)
    assert read_files(spec.path) == before
    assert git_in(spec.path, "status", "--porcelain", env=info.git_env).split() == ["M", "apps/web/a.txt"]


async def test_a_missing_sparse_folder_is_noted(plugin: GitWorkspace, spec: WorkspaceSpec) -> None:
    info = await plugin.create(replace(spec, sparse=("apps/web", "aps/web", "top.txt")), ignore_line)
    assert info.notes == (f"sparse: aps/web, top.txt is no folder of {spec.branch}",)
    assert "apps/web/a.txt" in present_files(spec.path)


async def test_an_excluded_submodule_is_not_initialized(
    plugin: GitWorkspace, spec: WorkspaceSpec, tmp_path: Path
) -> None:
    other = make_repository(tmp_path / "other")
    for path in ("libs/sub", "apps/web/sub"):
        command = ["git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), path]
        subprocess.run(command, cwd=spec.repo, check=True, capture_output=True)
    git_in(spec.repo, "commit", "-qm", "submodules")
    await plugin.create(spec, ignore_line)
    assert (spec.path / "apps/web/sub/a.txt").exists() and not (spec.path / "libs").exists()
