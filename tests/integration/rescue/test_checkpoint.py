"""Checkpoints: a session's state, saved while it works, is restored on another machine byte for byte."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import CloneWorkspace
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.sessions.rescue import checkpoint, restore_checkpoint
from tests.examples import example_count
from tests.integration.rescue.random_steps import STEPS, run_step
from tests.integration.rescue.world import (
    FileState,
    RescueWorld,
    git,
    ignored_paths,
    make_repository,
    read_files,
    read_git_state,
    without_ignored_folders,
)

pytestmark = pytest.mark.anyio
REF = "refs/ao/checkpoint/s"


class TwoMachines:
    """A session's workspace on one machine, and a second machine with a separate repository."""

    def __init__(self, folder: Path) -> None:
        self.host, self.folder = LocalHost(), folder
        self.first = self._world("first", make_repository(folder / "first" / "repo"))
        self.first_repo = self.first.spec.repo

    def _world(self, name: str, repo: Path) -> RescueWorld:
        spec = WorkspaceSpec("s", repo, self.folder / name / "w", None, self.folder / name / "p", "feature/s", "main")
        return RescueWorld(self.host, CloneWorkspace({}, self.host), spec)

    async def save(self) -> bool:
        return (await checkpoint(self.host, self.first_repo, self.first.path, "s")).changed

    async def move(self, *, publish: bool = False) -> RescueWorld:
        """Create the workspace on the second machine from the checkpoint and the branch."""
        if publish:
            await CloneWorkspace({}, self.host).publish(self.first.spec)
        repo = self.folder / "second" / "repo"
        git(self.folder, "init", "-q", "--bare", str(repo))
        git(repo, "fetch", "-q", str(self.first_repo), "+refs/heads/*:refs/heads/*", f"+{REF}:{REF}")
        second = self._world("second", repo)
        second.spec = replace(second.spec, existing=True)
        await second.make()
        return second

    async def bring_back(self, second: RescueWorld) -> str:
        return (await restore_checkpoint(self.host, second.spec.repo, second.path, "s")).waiting


@pytest.fixture
def machines(tmp_path: Path) -> TwoMachines:
    return TwoMachines(tmp_path)


def without_ignored(root: Path, files: dict[bytes, FileState]) -> dict[bytes, FileState]:
    """Return the files without what Git ignores in a workspace, which is not moved."""
    ignored = tuple(os.fsencode(path) for path in ignored_paths(root))
    return {
        name: state
        for name, state in without_ignored_folders(root, files).items()
        if not any(name == path or name.startswith(path + b"/") for path in ignored)
    }


async def move_workspace(folder: Path, steps: list[tuple[str, str, bytes]]) -> None:
    machines = TwoMachines(folder)
    for name in ("checkout -q -b other", "commit -q --allow-empty -m other", "checkout -q main"):
        git(machines.first_repo, *name.split())
    await machines.first.make()
    git(machines.first.path, "branch", "other", "origin/other")
    for step in steps:
        run_step(machines.first.path, step)
    files, state = read_files(machines.first.path), read_git_state(machines.first.path)
    expected_files = without_ignored(machines.first.path, files)
    await machines.save()
    assert read_files(machines.first.path) == files and read_git_state(machines.first.path) == state, (
        "saving disturbs nothing"
    )
    assert not await machines.save(), "nothing changed"
    second = await machines.move()
    assert await machines.bring_back(second) == ""
    assert without_ignored(machines.first.path, read_files(second.path)) == expected_files
    now = read_git_state(second.path)
    for name in ("HEAD", "branch", "index", "stash"):
        assert now[name] == state[name], name


@settings(max_examples=example_count(0.15))
@given(steps=st.lists(STEPS.filter(lambda step: step[1] not in ("out/o", "h.log")), min_size=2, max_size=8))
@example([("amend", "", b""), ("write", "a.txt", b"")])
@example([("write", ".gitignore", b"*\n!*.txt\n"), ("folder", "lib/x", b"")])
def test_any_workspace_can_be_moved(steps: list[tuple[str, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory(prefix="ao-move-") as folder:
        asyncio.run(move_workspace(Path(folder), steps))


@pytest.mark.parametrize(
    "command", ["commit -q --amend -m amended", "reset -q --hard HEAD~1", "rebase -q --root --no-ff"]
)
async def test_a_commit_that_the_agent_replaced_is_not_brought_back_by_the_move(
    machines: TwoMachines, command: str
) -> None:
    await machines.first.make()
    work = machines.first.path
    (work / "a.txt").write_text("committed\n")
    git(work, "commit", "-qam", "published")
    await CloneWorkspace({}, LocalHost()).publish(machines.first.spec)
    git(work, *command.split())
    (work / "b.txt").write_text("changed\n")
    files, state = read_files(work), read_git_state(work)
    await machines.save()
    second = await machines.move()
    assert await machines.bring_back(second) == ""
    assert read_files(second.path) == files
    now = read_git_state(second.path)
    assert (now["HEAD"], now["branch"]) == (state["HEAD"], state["branch"])


async def test_a_merge_in_progress_is_moved(machines: TwoMachines) -> None:
    await machines.first.make()
    work = machines.first.path
    for branch, content in (("left", "left\n"), ("feature/s", "right\n")):
        git(work, "checkout", "-q", *(["-b"] if branch == "left" else []), branch)
        (work / "a.txt").write_text(content)
        git(work, "commit", "-qam", branch)
    git(work, "merge", "-q", "left", check=False)
    (work / "b.txt").write_text("staged\n")
    git(work, "add", "b.txt")
    (work / "b.txt").write_text("and changed again\n")
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("a.txt")
    files, state = read_files(work), read_git_state(work)
    assert await machines.save()
    second = await machines.move()
    assert await machines.bring_back(second) == ""
    assert read_files(second.path) == files
    now = read_git_state(second.path)
    assert {name: now.get(name) for name in state if name != "file ORIG_HEAD"} == {
        name: value for name, value in state.items() if name != "file ORIG_HEAD"
    }
    assert "file MERGE_HEAD" in now
    (second.path / "later.txt").write_text("the agent works on\n")
    assert await machines.bring_back(second) == "", "once is enough"
    assert (second.path / "later.txt").exists()


async def test_a_clean_workspace_replaces_an_earlier_checkpoint(machines: TwoMachines) -> None:
    """Changes that were undone must not be restored."""
    await machines.first.make()
    (machines.first.path / "a.txt").write_text("a try\n")
    assert await machines.save()
    git(machines.first.path, "checkout", "a.txt")
    assert await machines.save()
    second = await machines.move()
    assert await machines.bring_back(second) == ""
    assert (second.path / "a.txt").read_text() == "one\n"


async def test_unpublished_commits_are_restored(machines: TwoMachines) -> None:
    await machines.first.make()
    (machines.first.path / "a.txt").write_text("committed\n")
    git(machines.first.path, "commit", "-qam", "not published")
    (machines.first.path / "b.txt").write_text("uncommitted\n")
    head = git(machines.first.path, "rev-parse", "HEAD")
    await machines.save()
    second = await machines.move()
    assert git(second.path, "rev-parse", "HEAD") != head
    assert await machines.bring_back(second) == ""
    assert git(second.path, "rev-parse", "HEAD") == head
    assert git(second.path, "status", "--porcelain") == " M b.txt"


async def test_later_commits_of_the_branch_are_kept(machines: TwoMachines) -> None:
    await machines.first.make()
    (machines.first.path / "a.txt").write_text("committed later\n")
    (machines.first.path / "new.txt").write_text("never committed\n")
    await machines.save()
    git(machines.first.path, "commit", "-qam", "after the checkpoint")
    second = await machines.move(publish=True)
    assert await machines.bring_back(second) == ""
    assert git(second.path, "log", "--format=%s", "-1") == "after the checkpoint"
    assert git(second.path, "status", "--porcelain") == "?? new.txt"
    assert (second.path / "new.txt").read_text() == "never committed\n"


async def test_a_checkpoint_that_no_longer_applies_waits(machines: TwoMachines) -> None:
    await machines.first.make()
    (machines.first.path / "a.txt").write_text("one way\n")
    await machines.save()
    (machines.first.path / "a.txt").write_text("another way\n")
    git(machines.first.path, "commit", "-qam", "another way")
    second = await machines.move(publish=True)
    waiting = await machines.bring_back(second)
    saved = git(second.spec.repo, "rev-parse", REF)[:12]
    assert waiting == f"branch feature/s has moved since the work was saved: git cherry-pick -n -m 1 {saved} applies it"
    assert git(second.path, "status", "--porcelain") == ""
    assert git(second.spec.repo, "show", f"{REF}:a.txt") == "one way"
