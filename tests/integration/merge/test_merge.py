"""Moving the base to a built merge: once, only from its previous commit, and only for the approved head."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from agent_orchestrator.changes.merge import (
    Blocked,
    BuiltMerge,
    CompletedMerge,
    MovedBase,
    MovedBranch,
    Strategy,
    find_merge,
    merge,
    repair_checkouts,
)
from tests.integration.merge.world import FILES, STEPS, DaemonKilled, MergeWorld, kill_after, snapshot, write
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_base_and_checkout_move_together(world: MergeWorld, strategy: Strategy) -> None:
    world.commit({"x.txt": "x", "b.txt": None, "d/c.txt": "new\n"})
    world.commit({"z.txt": "z"}, target=world.repo)
    world.use_strategy(strategy)
    before, tree = world.main(), world.tree_of_merge()
    built = await world.build()
    assert await find_merge(world.host, world.spec) is None
    assert await world.merge(built) == CompletedMerge(before, built.commit)
    assert git(world.repo, "rev-parse", "main^{tree}") == tree
    assert (world.status(), world.leftovers()) == ("", [])
    assert (world.repo / "x.txt").read_text() == "x"
    assert not (world.repo / "b.txt").exists()
    assert "ao: landed app-x" in git(world.repo, "reflog", "-1", "main")
    assert await find_merge(world.host, world.spec) == CompletedMerge(before, built.commit)


async def test_a_repeated_merge_is_recognized_as_done(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"})
    built = await world.build()
    first = await world.merge_successfully(built)
    world.commit({"x.txt": "other"}, target=world.repo)
    now = world.main()
    assert await world.merge_successfully(built) == first
    again = await world.build()
    assert (again.commit, await world.merge_successfully(again)) == (built.commit, first)
    assert world.main() == now


async def test_a_session_can_be_merged_again_with_more_commits(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"})
    await world.merge_successfully()
    git(world.agent, "merge", "-q", "main")
    world.commit({"x.txt": "more"})
    await world.merge_successfully()
    assert (world.show("x.txt"), git(world.repo, "rev-list", "--count", "main")) == ("more", "3")


async def test_a_base_that_moved_meanwhile_is_not_overwritten(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"})
    built = await world.build()
    now = world.commit({"z.txt": "z"}, target=world.repo)
    assert await world.merge(built) == MovedBase(now)
    assert (world.main(), world.status()) == (now, "")
    await world.merge_successfully()
    assert (world.show("x.txt"), world.show("z.txt")) == ("x", "z")


async def test_a_base_that_moves_during_the_merge_leaves_the_checkout_unchanged(world: MergeWorld) -> None:
    world.commit({"x.txt": "x", "b.txt": "x"})
    built = await world.build()
    other = git(world.repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "pushed")

    def push(step: str) -> None:
        if step == "index":
            git(world.repo, "update-ref", "refs/heads/main", other)

    assert await merge(world.host, world.spec, built, push) == MovedBase(other)
    assert (world.main(), world.status(), world.leftovers()) == (other, "", [])
    await world.merge_successfully()
    assert world.show("x.txt") == "x"


@pytest.mark.parametrize("moment", ["before", "index"])
async def test_a_branch_that_moved_is_not_merged(world: MergeWorld, moment: str) -> None:
    world.commit({"x.txt": "x"})
    built, before = await world.build(), world.main()
    git(world.agent, "commit", "-q", "--amend", "-m", "forced")
    forced = git(world.agent, "rev-parse", "HEAD")

    def force(step: str) -> None:
        if step == moment:
            git(world.agent, "update-ref", "refs/heads/feature/x", forced)

    git(world.agent, "update-ref", "refs/heads/feature/x", forced if moment == "before" else world.spec.head)
    assert await merge(world.host, world.spec, built, force) == MovedBranch(forced)
    assert (world.main(), world.status(), world.leftovers()) == (before, "", [])


async def test_a_missing_branch_or_base_is_reported(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"})
    built = await world.build()
    git(world.agent, "checkout", "-q", "--detach")
    git(world.repo, "branch", "-qD", "feature/x")
    assert await world.merge(built) == MovedBranch(None)
    git(world.repo, "branch", "feature/x", world.spec.head)
    git(world.repo, "checkout", "-q", "--detach")
    git(world.repo, "branch", "-qD", "main")
    assert await world.merge(built) == MovedBase(None)


async def test_a_branch_without_changes_is_merged_without_a_commit(world: MergeWorld) -> None:
    world.commit({"b.txt": "same\n"})
    before = world.commit({"b.txt": "same\n"}, target=world.repo)
    write(world.repo, {"b.txt": "dirty"})
    assert await world.merge() == CompletedMerge(before, before)
    assert world.main() == before


async def test_a_merge_in_a_bare_repository_works(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"})
    bare = world.root / "bare.git"
    git(world.root, "clone", "-q", "--bare", str(world.repo), str(bare))
    world.spec = replace(world.spec, repo=bare)
    built = await world.build()
    await world.merge_successfully(built)
    assert git(bare, "rev-parse", "main") == built.commit


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("strategy", ["squash", "rebase"])
@pytest.mark.parametrize("rebuild", [False, True], ids=["same", "rebuilt"])
async def test_a_merge_killed_after_any_step_is_completed_once(
    world: MergeWorld, step: str, strategy: Strategy, rebuild: bool
) -> None:
    (world.agent / "link").symlink_to("b.txt")
    world.commit({"x.txt": "x", "b.txt": None, "d/c.txt": "new\n"})
    world.commit({"z.txt": "z"}, target=world.repo)
    write(world.repo, {"a.txt": "user's\n", "mine.txt": "user's\n"})
    world.use_strategy(strategy)
    built, tree = await world.build(), world.tree_of_merge()
    with pytest.raises(DaemonKilled):
        await merge(world.host, world.spec, built, kill_after(step))
    await world.merge_successfully(await world.build() if rebuild else built)
    assert git(world.repo, "rev-list", "--count", "main") == "3"
    assert git(world.repo, "rev-parse", "main^{tree}") == tree
    assert (world.status(), world.leftovers()) == (" M a.txt\n?? mine.txt", [])
    assert (world.repo / "a.txt").read_text() == "user's\n"


@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_merge_is_repaired_to_before_or_after(world: MergeWorld, step: str) -> None:
    world.commit({"x.txt": "x", "b.txt": None, "d/c.txt": "new\n"})
    write(world.repo, {"a.txt": "user's\n"})
    git(world.repo, "add", "a.txt")
    built, before, files = await world.build(), world.main(), snapshot(world.repo)
    with pytest.raises(DaemonKilled):
        await merge(world.host, world.spec, built, kill_after(step))
    assert await repair_checkouts(world.host, world.repo) == (
        (world.repo,) if step in ("locked", "files", "index", "ref") else ()
    )
    assert (world.status(), world.leftovers()) == ("M  a.txt", [])
    if step in ("ref", "unlocked"):
        assert world.main() == built.commit
    else:
        assert (world.main(), snapshot(world.repo)) == (before, files)


@pytest.mark.parametrize("step", ["files", "index"])
async def test_edits_made_after_a_crash_are_kept(world: MergeWorld, step: str) -> None:
    world.commit({"x.txt": "x", "b.txt": None, "d/c.txt": "new\n", "a.txt": "new\n"})
    built = await world.build()
    with pytest.raises(DaemonKilled):
        await merge(world.host, world.spec, built, kill_after(step))
    write(world.repo, {"d/c.txt": "edited\n", "b.txt": "made anew\n", "x.txt": "edited too\n"})
    await repair_checkouts(world.host, world.repo)
    assert snapshot(world.repo)["a.txt"][1].decode() == FILES["a.txt"]
    contents = [(world.repo / name).read_text() for name in ("d/c.txt", "b.txt", "x.txt")]
    assert contents == ["edited\n", "made anew\n", "edited too\n"]
    assert world.status() == " M b.txt\n M d/c.txt\n?? x.txt"


@pytest.mark.parametrize("step", ["files", "index"])
async def test_a_base_that_moved_after_a_crash_is_not_overwritten(world: MergeWorld, step: str) -> None:
    world.commit({"x.txt": "x", "b.txt": "x"})
    built = await world.build()
    with pytest.raises(DaemonKilled):
        await merge(world.host, world.spec, built, kill_after(step))
    now = git(world.repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "pushed")
    git(world.repo, "update-ref", "refs/heads/main", now)
    assert await world.merge(built) == MovedBase(now)
    assert (world.status(), world.leftovers()) == ("", [])


async def test_a_merge_continues_after_its_lock_was_removed_by_hand(world: MergeWorld) -> None:
    for step in ("files", "index"):
        world.commit({"x.txt": step, "b.txt": step, "d/c.txt": step})
        built = await world.build()
        with pytest.raises(DaemonKilled):
            await merge(world.host, world.spec, built, kill_after(step))
        (world.repo / ".git/index.lock").unlink()
        await world.merge_successfully(built)
        assert (world.main(), world.status()) == (built.commit, "")
        git(world.agent, "reset", "-q", "--hard", "main")


async def test_half_written_files_are_reverted(world: MergeWorld) -> None:
    world.commit({"x.txt": "x", "b.txt": "x", "d/c.txt": "x", "a.txt": None})
    built, files = await world.build(), snapshot(world.repo)
    with pytest.raises(DaemonKilled):
        await merge(world.host, world.spec, built, kill_after("locked"))
    write(world.repo, {"x.txt": "x", "b.txt": "x", "d/c.txt": None, "a.txt": None})
    await repair_checkouts(world.host, world.repo)
    assert (snapshot(world.repo), world.status()) == (files, "")


async def test_simultaneous_merges_run_one_after_the_other(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"})
    first_spec = world.spec
    git(world.repo, "branch", "feature/y", "main")
    other = replace(first_spec, session="app-y", branch="feature/y", head=git(world.repo, "rev-parse", "feature/y"))
    built = await world.build()
    results = await asyncio.gather(*(merge(world.host, spec, built) for spec in (first_spec, first_spec, first_spec)))
    assert results == [CompletedMerge(built.base_before, built.commit)] * 3
    assert await merge(world.host, other, built) == MovedBase(world.main())
    assert git(world.repo, "rev-list", "--count", "main") == "2"


async def test_a_cancelled_merge_is_completed(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"})
    built = await world.build()

    def cancel(step: str) -> None:
        if step == "locked":
            merging.cancel()

    merging = asyncio.create_task(merge(world.host, world.spec, built, cancel))
    with pytest.raises(asyncio.CancelledError):
        await merging
    assert (world.main(), world.status(), world.leftovers()) == (built.commit, "", [])


async def test_a_failed_merge_is_rolled_back(world: MergeWorld) -> None:
    world.commit({"x.txt": "x", "b.txt": "x"})
    built, before = await world.build(), world.main()

    def fail(step: str) -> None:
        if step == "index":
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await merge(world.host, world.spec, built, fail)
    assert (world.main(), world.status(), world.leftovers()) == (before, "", [])


DAEMON = """
import asyncio, json, os, sys
from pathlib import Path
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.merge import BuiltMerge, MergeSpec, merge

spec, built, step = json.loads(sys.argv[1])
spec = MergeSpec(**{**spec, "repo": Path(spec["repo"]), "work": Path(spec["work"])})
asyncio.run(merge(LocalHost(), spec, BuiltMerge(**built), lambda done: os.kill(os.getpid(), 9) if done == step else None))
"""


def merge_in_another_process(world: MergeWorld, built: BuiltMerge, step: str) -> int:
    argument = json.dumps([asdict(world.spec), asdict(built), step], default=str)
    return subprocess.run([sys.executable, "-c", DAEMON, argument], check=False, timeout=60).returncode


@pytest.mark.parametrize("step", ["files", "ref"])
async def test_a_merge_of_a_killed_process_is_completed(world: MergeWorld, step: str) -> None:
    world.commit({"x.txt": "x", "b.txt": "x"})
    built = await world.build()
    assert merge_in_another_process(world, built, step) == -9
    assert (world.repo / ".git/index.lock").exists()
    await world.merge_successfully(built)
    assert (world.main(), world.status(), world.leftovers()) == (built.commit, "", [])


async def test_the_lock_of_a_running_daemon_is_left_alone(world: MergeWorld) -> None:
    world.commit({"x.txt": "x"})
    built = await world.build()
    with pytest.raises(DaemonKilled):
        await merge(world.host, world.spec, built, kill_after("locked"))
    lock = world.repo / ".git/index.lock"
    parent = world.host.process(os.getppid())
    assert parent is not None
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "pid": parent.pid, "started": parent.started}))
    assert isinstance(await world.merge(built), Blocked)
    assert lock.exists()
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "boot": "another"}))
    await world.merge_successfully(built)
    assert world.leftovers() == []
