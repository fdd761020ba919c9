"""A session's state, saved while it works, comes back on another machine byte for byte."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.clone import Clone
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.sessions.rescue import checkpoint, from_checkpoint
from tests.examples import examples
from tests.integration.rescue.drawing import STEPS, carry_out
from tests.integration.rescue.world import World, files_of, git, make_repository, state_of

pytestmark = pytest.mark.anyio
REF = "refs/ao/checkpoint/s"


class Two:
    """A session's workspace on one machine, and another machine with a repository of its own."""

    def __init__(self, folder: Path) -> None:
        self.host, self.folder = LocalHost(), folder
        self.first = self._world("first", make_repository(folder / "first" / "repo"))
        self.here = self.first.spec.repo

    def _world(self, name: str, repo: Path) -> World:
        spec = WorkspaceSpec("s", repo, self.folder / name / "w", None, self.folder / name / "p", "feature/s", "main")
        return World(self.host, Clone({}, self.host), spec)

    async def save(self) -> bool:
        return (await checkpoint(self.host, self.here, self.first.path, "s")).changed

    async def move(self, *, publish: bool = False) -> World:
        """Make the workspace elsewhere, from what the checkpoint and the branch say."""
        if publish:
            await Clone({}, self.host).publish(self.first.spec)
        repo = self.folder / "second" / "repo"
        git(self.folder, "init", "-q", "--bare", str(repo))
        git(repo, "fetch", "-q", str(self.here), "+refs/heads/*:refs/heads/*", f"+{REF}:{REF}")
        second = self._world("second", repo)
        second.spec = replace(second.spec, existing=True)
        await second.make()
        return second

    async def bring_back(self, second: World) -> str:
        return (await from_checkpoint(self.host, second.spec.repo, second.path, "s")).waiting


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


async def moved_and_back(folder: Path, steps: list[tuple[str, str, bytes]]) -> None:
    two = Two(folder)
    for name in ("checkout -q -b other", "commit -q --allow-empty -m other", "checkout -q main"):
        git(two.here, *name.split())
    await two.first.make()
    git(two.first.path, "branch", "other", "origin/other")
    for step in steps:
        carry_out(two.first.path, step)
    files, state = files_of(two.first.path), state_of(two.first.path)
    await two.save()
    assert files_of(two.first.path) == files and state_of(two.first.path) == state, "saving disturbs nothing"
    assert not await two.save(), "nothing changed"
    second = await two.move()
    assert await two.bring_back(second) == ""
    ignored = {name for name in files if name.startswith(b"out") or name.endswith(b".log")}
    assert files_of(second.path) == {name: what for name, what in files.items() if name not in ignored}
    now = state_of(second.path)
    for name in ("HEAD", "branch", "index", "stash"):
        assert now[name] == state[name], name


@settings(max_examples=examples(0.15))
@given(steps=st.lists(STEPS.filter(lambda step: step[1] not in ("out/o", "h.log")), min_size=2, max_size=8))
def test_any_workspace_moves(steps: list[tuple[str, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory(prefix="ao-move-") as folder:
        asyncio.run(moved_and_back(Path(folder), steps))


async def test_a_merge_in_progress_moves(two: Two) -> None:
    await two.first.make()
    work = two.first.path
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
    files, state = files_of(work), state_of(work)
    assert await two.save()
    second = await two.move()
    assert await two.bring_back(second) == ""
    assert files_of(second.path) == files
    now = state_of(second.path)
    assert {name: now.get(name) for name in state if name != "file ORIG_HEAD"} == {
        name: value for name, value in state.items() if name != "file ORIG_HEAD"
    }
    assert "file MERGE_HEAD" in now
    (second.path / "later.txt").write_text("the agent works on\n")
    assert await two.bring_back(second) == "", "once is enough"
    assert (second.path / "later.txt").exists()


async def test_nothing_uncommitted_is_a_state_too(two: Two) -> None:
    """What was changed and then undone must not come back."""
    await two.first.make()
    (two.first.path / "a.txt").write_text("a try\n")
    assert await two.save()
    git(two.first.path, "checkout", "a.txt")
    assert await two.save()
    second = await two.move()
    assert await two.bring_back(second) == ""
    assert (second.path / "a.txt").read_text() == "one\n"


async def test_commits_that_were_not_published_come_too(two: Two) -> None:
    await two.first.make()
    (two.first.path / "a.txt").write_text("committed\n")
    git(two.first.path, "commit", "-qam", "not published")
    (two.first.path / "b.txt").write_text("uncommitted\n")
    head = git(two.first.path, "rev-parse", "HEAD")
    await two.save()
    second = await two.move()
    assert git(second.path, "rev-parse", "HEAD") != head
    assert await two.bring_back(second) == ""
    assert git(second.path, "rev-parse", "HEAD") == head
    assert git(second.path, "status", "--porcelain") == " M b.txt"


async def test_a_branch_that_went_on_keeps_its_commits(two: Two) -> None:
    await two.first.make()
    (two.first.path / "a.txt").write_text("committed later\n")
    (two.first.path / "new.txt").write_text("never committed\n")
    await two.save()
    git(two.first.path, "commit", "-qam", "after the checkpoint")
    second = await two.move(publish=True)
    assert await two.bring_back(second) == ""
    assert git(second.path, "log", "--format=%s", "-1") == "after the checkpoint"
    assert git(second.path, "status", "--porcelain") == "?? new.txt"
    assert (second.path / "new.txt").read_text() == "never committed\n"


async def test_what_does_not_fit_waits(two: Two) -> None:
    await two.first.make()
    (two.first.path / "a.txt").write_text("one way\n")
    await two.save()
    (two.first.path / "a.txt").write_text("another way\n")
    git(two.first.path, "commit", "-qam", "another way")
    second = await two.move(publish=True)
    waiting = await two.bring_back(second)
    saved = git(second.spec.repo, "rev-parse", REF)[:12]
    assert waiting == f"branch feature/s has moved since the work was saved: git cherry-pick -n -m 1 {saved} applies it"
    assert git(second.path, "status", "--porcelain") == ""
    assert git(second.spec.repo, "show", f"{REF}:a.txt") == "one way"
