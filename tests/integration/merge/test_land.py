"""The base moves to what was built: once, only from where it was, only for the commit that may land."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from agent_orchestrator.changes.merge import (
    BaseMoved,
    Blocked,
    BranchMoved,
    Built,
    Merged,
    Strategy,
    find_merge,
    merge,
    repair_checkouts,
)
from tests.integration.merge.world import FILES, STEPS, Killed, World, kill_after, snapshot, write
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_base_and_checkout_move_together(world: World, strategy: Strategy) -> None:
    world.commit({"x.txt": "x", "b.txt": None, "d/c.txt": "new\n"})
    world.commit({"z.txt": "z"}, where=world.repo)
    world.by(strategy)
    before, tree = world.main(), world.tree_of_merge()
    built = await world.built()
    assert await find_merge(world.host, world.spec) is None
    assert await world.land(built) == Merged(before, built.commit)
    assert git(world.repo, "rev-parse", "main^{tree}") == tree
    assert (world.status(), world.litter()) == ("", [])
    assert (world.repo / "x.txt").read_text() == "x"
    assert not (world.repo / "b.txt").exists()
    assert "ao: landed app-x" in git(world.repo, "reflog", "-1", "main")
    assert await find_merge(world.host, world.spec) == Merged(before, built.commit)


async def test_landing_again_finds_it_done(world: World) -> None:
    world.commit({"x.txt": "x"})
    built = await world.built()
    first = await world.landed(built)
    world.commit({"x.txt": "other"}, where=world.repo)
    now = world.main()
    assert await world.landed(built) == first
    again = await world.built()
    assert (again.commit, await world.landed(again)) == (built.commit, first)
    assert world.main() == now


async def test_a_session_may_land_more_later(world: World) -> None:
    world.commit({"x.txt": "x"})
    await world.landed()
    git(world.agent, "merge", "-q", "main")
    world.commit({"x.txt": "more"})
    await world.landed()
    assert (world.show("x.txt"), git(world.repo, "rev-list", "--count", "main")) == ("more", "3")


async def test_base_that_moved_is_not_moved(world: World) -> None:
    world.commit({"x.txt": "x"})
    built = await world.built()
    now = world.commit({"z.txt": "z"}, where=world.repo)
    assert await world.land(built) == BaseMoved(now)
    assert (world.main(), world.status()) == (now, "")
    await world.landed()
    assert (world.show("x.txt"), world.show("z.txt")) == ("x", "z")


async def test_base_that_moves_at_the_last_moment_leaves_the_checkout_as_it_was(world: World) -> None:
    world.commit({"x.txt": "x", "b.txt": "x"})
    built = await world.built()
    other = git(world.repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "pushed")

    def push(step: str) -> None:
        if step == "index":
            git(world.repo, "update-ref", "refs/heads/main", other)

    assert await merge(world.host, world.spec, built, push) == BaseMoved(other)
    assert (world.main(), world.status(), world.litter()) == (other, "", [])
    await world.landed()
    assert world.show("x.txt") == "x"


@pytest.mark.parametrize("moment", ["before", "index"])
async def test_branch_that_moved_does_not_land(world: World, moment: str) -> None:
    world.commit({"x.txt": "x"})
    built, before = await world.built(), world.main()
    git(world.agent, "commit", "-q", "--amend", "-m", "forced")
    forced = git(world.agent, "rev-parse", "HEAD")

    def force(step: str) -> None:
        if step == moment:
            git(world.agent, "update-ref", "refs/heads/feature/x", forced)

    git(world.agent, "update-ref", "refs/heads/feature/x", forced if moment == "before" else world.spec.head)
    assert await merge(world.host, world.spec, built, force) == BranchMoved(forced)
    assert (world.main(), world.status(), world.litter()) == (before, "", [])


async def test_branch_or_base_that_is_gone(world: World) -> None:
    world.commit({"x.txt": "x"})
    built = await world.built()
    git(world.agent, "checkout", "-q", "--detach")
    git(world.repo, "branch", "-qD", "feature/x")
    assert await world.land(built) == BranchMoved(None)
    git(world.repo, "branch", "feature/x", world.spec.head)
    git(world.repo, "checkout", "-q", "--detach")
    git(world.repo, "branch", "-qD", "main")
    assert await world.land(built) == BaseMoved(None)


async def test_nothing_to_land_lands_as_nothing(world: World) -> None:
    world.commit({"b.txt": "same\n"})
    before = world.commit({"b.txt": "same\n"}, where=world.repo)
    write(world.repo, {"b.txt": "dirty"})
    assert await world.land() == Merged(before, before)
    assert world.main() == before


async def test_a_bare_repository(world: World) -> None:
    world.commit({"x.txt": "x"})
    bare = world.root / "bare.git"
    git(world.root, "clone", "-q", "--bare", str(world.repo), str(bare))
    world.spec = replace(world.spec, repo=bare)
    built = await world.built()
    await world.landed(built)
    assert git(bare, "rev-parse", "main") == built.commit


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("strategy", ["squash", "rebase"])
@pytest.mark.parametrize("rebuild", [False, True], ids=["same", "rebuilt"])
async def test_killed_after_each_step_it_lands_once(world: World, step: str, strategy: Strategy, rebuild: bool) -> None:
    (world.agent / "link").symlink_to("b.txt")
    world.commit({"x.txt": "x", "b.txt": None, "d/c.txt": "new\n"})
    world.commit({"z.txt": "z"}, where=world.repo)
    write(world.repo, {"a.txt": "user's\n", "mine.txt": "user's\n"})
    world.by(strategy)
    built, tree = await world.built(), world.tree_of_merge()
    with pytest.raises(Killed):
        await merge(world.host, world.spec, built, kill_after(step))
    await world.landed(await world.built() if rebuild else built)
    assert git(world.repo, "rev-list", "--count", "main") == "3"
    assert git(world.repo, "rev-parse", "main^{tree}") == tree
    assert (world.status(), world.litter()) == (" M a.txt\n?? mine.txt", [])
    assert (world.repo / "a.txt").read_text() == "user's\n"


@pytest.mark.parametrize("step", STEPS)
async def test_killed_and_never_called_again_settles_to_one_of_both(world: World, step: str) -> None:
    world.commit({"x.txt": "x", "b.txt": None, "d/c.txt": "new\n"})
    write(world.repo, {"a.txt": "user's\n"})
    git(world.repo, "add", "a.txt")
    built, before, files = await world.built(), world.main(), snapshot(world.repo)
    with pytest.raises(Killed):
        await merge(world.host, world.spec, built, kill_after(step))
    assert await repair_checkouts(world.host, world.repo) == (
        (world.repo,) if step in ("locked", "files", "index", "ref") else ()
    )
    assert (world.status(), world.litter()) == ("M  a.txt", [])
    if step in ("ref", "unlocked"):
        assert world.main() == built.commit
    else:
        assert (world.main(), snapshot(world.repo)) == (before, files)


@pytest.mark.parametrize("step", ["files", "index"])
async def test_what_a_person_did_after_the_crash_stays_his(world: World, step: str) -> None:
    world.commit({"x.txt": "x", "b.txt": None, "d/c.txt": "new\n", "a.txt": "new\n"})
    built = await world.built()
    with pytest.raises(Killed):
        await merge(world.host, world.spec, built, kill_after(step))
    write(world.repo, {"d/c.txt": "edited\n", "b.txt": "made anew\n", "x.txt": "edited too\n"})
    await repair_checkouts(world.host, world.repo)
    assert snapshot(world.repo)["a.txt"][1].decode() == FILES["a.txt"]
    kept = [(world.repo / name).read_text() for name in ("d/c.txt", "b.txt", "x.txt")]
    assert kept == ["edited\n", "made anew\n", "edited too\n"]
    assert world.status() == " M b.txt\n M d/c.txt\n?? x.txt"


@pytest.mark.parametrize("step", ["files", "index"])
async def test_base_that_moved_after_the_crash(world: World, step: str) -> None:
    world.commit({"x.txt": "x", "b.txt": "x"})
    built = await world.built()
    with pytest.raises(Killed):
        await merge(world.host, world.spec, built, kill_after(step))
    now = git(world.repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "pushed")
    git(world.repo, "update-ref", "refs/heads/main", now)
    assert await world.land(built) == BaseMoved(now)
    assert (world.status(), world.litter()) == ("", [])


async def test_a_lock_removed_by_hand_does_no_harm(world: World) -> None:
    for step in ("files", "index"):
        world.commit({"x.txt": step, "b.txt": step, "d/c.txt": step})
        built = await world.built()
        with pytest.raises(Killed):
            await merge(world.host, world.spec, built, kill_after(step))
        (world.repo / ".git/index.lock").unlink()
        await world.landed(built)
        assert (world.main(), world.status()) == (built.commit, "")
        git(world.agent, "reset", "-q", "--hard", "main")


async def test_half_written_files_are_taken_back(world: World) -> None:
    world.commit({"x.txt": "x", "b.txt": "x", "d/c.txt": "x", "a.txt": None})
    built, files = await world.built(), snapshot(world.repo)
    with pytest.raises(Killed):
        await merge(world.host, world.spec, built, kill_after("locked"))
    write(world.repo, {"x.txt": "x", "b.txt": "x", "d/c.txt": None, "a.txt": None})
    await repair_checkouts(world.host, world.repo)
    assert (snapshot(world.repo), world.status()) == (files, "")


async def test_two_at_once_land_one_after_the_other(world: World) -> None:
    world.commit({"x.txt": "x"})
    one = world.spec
    git(world.repo, "branch", "feature/y", "main")
    other = replace(one, session="app-y", branch="feature/y", head=git(world.repo, "rev-parse", "feature/y"))
    built = await world.built()
    results = await asyncio.gather(*(merge(world.host, spec, built) for spec in (one, one, one)))
    assert results == [Merged(built.base_before, built.commit)] * 3
    assert await merge(world.host, other, built) == BaseMoved(world.main())
    assert git(world.repo, "rev-list", "--count", "main") == "2"


async def test_cancelled_in_the_middle_it_comes_to_its_end(world: World) -> None:
    world.commit({"x.txt": "x"})
    built = await world.built()

    def cancel(step: str) -> None:
        if step == "locked":
            landing.cancel()

    landing = asyncio.create_task(merge(world.host, world.spec, built, cancel))
    with pytest.raises(asyncio.CancelledError):
        await landing
    assert (world.main(), world.status(), world.litter()) == (built.commit, "", [])


async def test_a_failure_on_the_way_takes_everything_back(world: World) -> None:
    world.commit({"x.txt": "x", "b.txt": "x"})
    built, before = await world.built(), world.main()

    def fail(step: str) -> None:
        if step == "index":
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await merge(world.host, world.spec, built, fail)
    assert (world.main(), world.status(), world.litter()) == (before, "", [])


DAEMON = """
import asyncio, json, os, sys
from pathlib import Path
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.merge import Built, MergeSpec, merge

spec, built, step = json.loads(sys.argv[1])
spec = MergeSpec(**{**spec, "repo": Path(spec["repo"]), "work": Path(spec["work"])})
asyncio.run(merge(LocalHost(), spec, Built(**built), lambda done: os.kill(os.getpid(), 9) if done == step else None))
"""


def land_in_another_process(world: World, built: Built, step: str) -> int:
    argument = json.dumps([asdict(world.spec), asdict(built), step], default=str)
    return subprocess.run([sys.executable, "-c", DAEMON, argument], check=False, timeout=60).returncode


@pytest.mark.parametrize("step", ["files", "ref"])
async def test_a_daemon_that_was_really_killed(world: World, step: str) -> None:
    world.commit({"x.txt": "x", "b.txt": "x"})
    built = await world.built()
    assert land_in_another_process(world, built, step) == -9
    assert (world.repo / ".git/index.lock").exists()
    await world.landed(built)
    assert (world.main(), world.status(), world.litter()) == (built.commit, "", [])


async def test_the_lock_of_another_daemon_that_lives_is_left_alone(world: World) -> None:
    world.commit({"x.txt": "x"})
    built = await world.built()
    with pytest.raises(Killed):
        await merge(world.host, world.spec, built, kill_after("locked"))
    lock = world.repo / ".git/index.lock"
    parent = world.host.process(os.getppid())
    assert parent is not None
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "pid": parent.pid, "started": parent.started}))
    assert isinstance(await world.land(built), Blocked)
    assert lock.exists()
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "boot": "another"}))
    await world.landed(built)
    assert world.litter() == []
