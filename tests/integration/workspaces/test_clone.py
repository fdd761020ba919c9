"""Clones as workspaces: separate refs, configuration and objects, and commits that return to the main repository."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Conflict
from agent_orchestrator.plugins.workspaces.clone import CloneWorkspace
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.testing.contracts.workspace import git_in, ignore_line, spec_for
from tests.integration.rescue.world import make_repository

pytestmark = pytest.mark.anyio


@pytest.fixture
def clone() -> CloneWorkspace:
    return CloneWorkspace({}, LocalHost())


@pytest.fixture
def spec(tmp_path: Path) -> WorkspaceSpec:
    return spec_for(make_repository(tmp_path / "repo"), tmp_path, "task")


def commit(folder: Path, message: str) -> str:
    git_in(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git_in(folder, "rev-parse", "HEAD")


async def test_a_clone_borrows_objects_and_has_its_own_refs_and_configuration(
    clone: CloneWorkspace, spec: WorkspaceSpec
) -> None:
    git_in(spec.repo, "tag", "v1")
    git_in(spec.repo, "config", "filter.x.clean", 'sed "s/\\\\/y/"')
    await clone.create(spec, ignore_line)
    assert not list((spec.path / ".git" / "objects" / "pack").glob("*.pack"))
    assert git_in(spec.path, "config", "remote.origin.url") == str(spec.repo)
    assert git_in(spec.path, "rev-parse", "origin/main", "v1").split() == [git_in(spec.repo, "rev-parse", "main")] * 2
    assert git_in(spec.path, "config", "filter.x.clean") == git_in(spec.repo, "config", "filter.x.clean")
    git_in(spec.path, "config", "user.name", "Agent")
    git_in(spec.path, "branch", "scratch")
    assert git_in(spec.repo, "config", "user.name") == "Test" and git_in(spec.repo, "branch", "--list", "scratch") == ""


async def test_a_clone_pushes_to_the_real_origin(clone: CloneWorkspace, spec: WorkspaceSpec, tmp_path: Path) -> None:
    git_in(tmp_path, "clone", "-q", "--bare", str(spec.repo), "origin.git")
    git_in(spec.repo, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git_in(spec.repo, "fetch", "-q", "origin")
    await clone.create(spec, ignore_line)
    head = commit(spec.path, "work")
    git_in(spec.path, "push", "-q", "origin", "HEAD")
    assert git_in(tmp_path / "origin.git", "rev-parse", spec.branch) == head


async def test_commits_of_a_clone_are_published(clone: CloneWorkspace, spec: WorkspaceSpec) -> None:
    await clone.create(spec, ignore_line)
    first = commit(spec.path, "first")
    await clone.publish(spec)
    assert git_in(spec.repo, "rev-parse", spec.branch) == first
    git_in(spec.path, "commit", "-q", "--allow-empty", "--amend", "-m", "rewritten")
    second = git_in(spec.path, "rev-parse", "HEAD")
    await clone.publish(spec)
    assert git_in(spec.repo, "rev-parse", spec.branch) == second, "published commits may be rewritten"


async def test_large_files_of_a_clone_are_published(clone: CloneWorkspace, spec: WorkspaceSpec) -> None:
    """Git LFS stores files beside Git's objects; files whose content does not match their name are not copied."""
    await clone.create(spec, ignore_line)
    content, other = b"large", "0" * 64
    name = hashlib.sha256(content).hexdigest()
    for digest in (name, other):
        file = spec.path / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    await clone.remove(spec)
    stored_files = [file for file in (spec.repo / ".git" / "lfs").rglob("*") if file.is_file()]
    assert [(file.name, file.read_bytes()) for file in stored_files] == [(name, content)]
    assert stored_files[0].parent == spec.repo / ".git" / "lfs" / "objects" / name[:2] / name[2:4]


async def test_a_diverged_branch_is_not_overwritten(clone: CloneWorkspace, spec: WorkspaceSpec) -> None:
    await clone.create(spec, ignore_line)
    foreign_commit = git_in(spec.repo, "commit-tree", "-p", "main", "-m", "by hand", "main^{tree}")
    git_in(spec.repo, "update-ref", f"refs/heads/{spec.branch}", foreign_commit)
    own_commit = commit(spec.path, "mine")
    with pytest.raises(Conflict, match="does not have"):
        await clone.remove(spec)
    assert spec.path.is_dir() and git_in(spec.repo, "rev-parse", spec.branch) == foreign_commit
    assert git_in(spec.repo, "rev-parse", "refs/ao/clone/app-task") == own_commit


async def test_a_branch_checked_out_by_the_user_is_not_moved(clone: CloneWorkspace, spec: WorkspaceSpec) -> None:
    await clone.create(spec, ignore_line)
    git_in(spec.repo, "checkout", "-q", spec.branch)
    commit(spec.path, "mine")
    with pytest.raises(Conflict, match="is checked out in"):
        await clone.publish(spec)
    assert git_in(spec.repo, "status", "--porcelain") == ""


async def test_borrowed_objects_survive_garbage_collection(clone: CloneWorkspace, spec: WorkspaceSpec) -> None:
    tip = commit(spec.repo, "will be dropped")
    await clone.create(spec, ignore_line)
    git_in(spec.path, "checkout", "-q", "--detach")
    git_in(spec.path, "branch", "-f", spec.branch, "HEAD~1")
    await clone.publish(spec)
    git_in(spec.repo, "reset", "-q", "--hard", "HEAD~1")
    git_in(spec.repo, "branch", "-qD", spec.branch)
    git_in(spec.repo, "reflog", "expire", "--expire=now", "--all")
    git_in(spec.repo, "gc", "-q", "--prune=now")
    assert git_in(spec.path, "rev-parse", "HEAD") == tip
    git_in(spec.path, "fsck", "--connectivity-only")
    await clone.remove(spec)
    assert git_in(spec.repo, "for-each-ref", "refs/ao") == ""
    again = await clone.create(replace(spec, existing=True), ignore_line)
    assert again.head == git_in(spec.repo, "rev-parse", "main")
