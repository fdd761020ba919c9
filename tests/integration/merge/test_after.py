"""After a landing: undo it by a new change, remove its branch; and before one: know what would conflict."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.changes.merge import (
    CleanupResult,
    Conflicted,
    Merged,
    MergedAtForge,
    MergeSpec,
    Prediction,
    Reverted,
    RevertSpec,
    Strategy,
    delete_branch,
    follow_remote_base,
    revert,
)
from agent_orchestrator.changes.merge import prediction as prediction_module
from agent_orchestrator.changes.merge.merge_tree import Merger, open_merger
from agent_orchestrator.changes.merge.repository import Repository
from agent_orchestrator.errors import Conflict
from tests.integration.merge.world import World, write
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio


def undo_of(spec: MergeSpec, landed: Merged) -> RevertSpec:
    return RevertSpec(spec.session, spec.repo, spec.base, landed.commit, landed.base_before, spec.work)


async def land_two(world: World, strategy: Strategy = "squash") -> Merged:
    world.commit({"x.txt": "x", "b.txt": "1\n"}, "one")
    world.commit({"b.txt": "2\n", "d/c.txt": None}, "two")
    world.commit({"z.txt": "z"}, where=world.repo)
    world.by(strategy)
    return await world.landed()


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_undo_takes_back_the_whole_landing(world: World, strategy: Strategy) -> None:
    landed = await land_two(world, strategy)
    world.commit({"later.txt": "later"}, where=world.repo)
    now = world.main()
    found = await revert(world.host, undo_of(world.spec, landed))
    assert isinstance(found, Reverted)
    assert (found.branch, found.base_before, world.main()) == ("revert/app-x", now, now)
    assert git(world.repo, "rev-parse", "revert/app-x") == found.commit
    assert git(world.repo, "diff", "--name-only", landed.base_before, found.commit) == "later.txt"
    subject, _, why = git(world.repo, "log", "-1", "--format=%B", found.commit).strip().split("\n")
    assert subject == ('Revert "two"' if strategy == "rebase" else 'Revert "Add x"')
    shown = f"commits {landed.base_before}..{landed.commit}" if strategy == "rebase" else f"commit {landed.commit}"
    assert why == f"This reverts {shown}."
    assert (world.status(), world.litter()) == ("", [])


async def test_undo_asked_again_is_the_same_branch_until_it_has_landed(world: World) -> None:
    landed = await land_two(world)
    first = await revert(world.host, undo_of(world.spec, landed))
    world.commit({"later.txt": "later"}, where=world.repo)
    assert await revert(world.host, undo_of(world.spec, landed)) == first
    assert isinstance(first, Reverted)
    world.spec = replace(world.spec, session="app-undo", branch=first.branch, head=first.commit)
    await world.landed()
    assert world.show("b.txt") == "b"
    with pytest.raises(Conflict, match="undone already"):
        await revert(world.host, replace(undo_of(world.spec, landed), session="app-other"))


async def test_undo_of_a_second_landing_gets_a_branch_of_its_own(world: World) -> None:
    first = await land_two(world)
    git(world.agent, "reset", "-q", "--hard", "main")
    world.commit({"y.txt": "y"})
    second = await world.landed()
    found = [await revert(world.host, undo_of(world.spec, landed)) for landed in (first, second)]
    assert [one.branch for one in found if isinstance(one, Reverted)] == ["revert/app-x", "revert/app-x-2"]


async def test_undo_that_conflicts_names_the_files(world: World) -> None:
    landed = await land_two(world)
    now = world.commit({"b.txt": "later\n"}, where=world.repo)
    assert await revert(world.host, undo_of(world.spec, landed)) == Conflicted(("b.txt",), now)
    assert git(world.repo, "branch", "--list", "revert/*") == ""


async def test_undo_of_what_is_not_there(world: World) -> None:
    landed = await land_two(world)
    git(world.repo, "reset", "-q", "--hard", "HEAD~")
    with pytest.raises(Conflict, match="not on main any more"):
        await revert(world.host, undo_of(world.spec, landed))
    with pytest.raises(Conflict, match="changed nothing"):
        await revert(world.host, replace(undo_of(world.spec, landed), landed=landed.base_before))


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_a_landed_branch_goes_and_its_commits_stay(world: World, strategy: Strategy) -> None:
    await land_two(world, strategy)
    world.commit({"b.txt": "later\n", "x.txt": "later"}, where=world.repo)
    found = await delete_branch(world.host, world.spec)
    assert (found.deleted, found.reason) == (False, f"feature/x is checked out in {world.agent}")
    git(world.agent, "checkout", "-q", "--detach")
    git(world.repo, "config", "branch.feature/x.remote", "origin")
    found = await delete_branch(world.host, world.spec)
    assert found == CleanupResult(True, "", f"refs/ao/landed/app-x/{world.spec.head}")
    assert git(world.repo, "branch", "--list", "feature/*") == ""
    assert "feature/x" not in (world.repo / ".git/config").read_text()
    git(world.repo, "merge-base", "--is-ancestor", world.spec.head, found.kept)
    assert (await delete_branch(world.host, world.spec)).deleted


async def test_a_branch_with_more_than_landed_stays(world: World) -> None:
    await land_two(world)
    git(world.agent, "commit", "-q", "--allow-empty", "-m", "empty")
    write(world.agent, {"more.txt": "more"})
    git(world.agent, "add", "-A")
    git(world.agent, "commit", "-qm", "more")
    git(world.agent, "checkout", "-q", "--detach")
    found = await delete_branch(world.host, world.spec)
    assert found == CleanupResult(False, "feature/x has commits that are not on main")
    assert git(world.repo, "branch", "--list", "feature/*") != ""
    git(world.agent, "checkout", "-q", "--orphan", "feature/alone")
    git(world.agent, "commit", "-qm", "alone")
    git(world.agent, "checkout", "-q", "--detach")
    assert not (await delete_branch(world.host, replace(world.spec, branch="feature/alone"))).deleted
    assert not (await delete_branch(world.host, replace(world.spec, branch="main"))).deleted


async def test_a_branch_whose_content_somebody_else_landed_goes(world: World) -> None:
    world.commit({"b.txt": "same\n"})
    world.commit({"b.txt": "same\n"}, where=world.repo)
    git(world.agent, "checkout", "-q", "--detach")
    found = await delete_branch(world.host, world.spec)
    assert found.deleted
    git(world.repo, "merge-base", "--is-ancestor", world.spec.head, found.kept)


async def test_a_branch_that_landed_at_a_forge_goes_by_its_word(world: World) -> None:
    world.commit({"b.txt": "1\n"}, "one")
    world.commit({"b.txt": "2\n"}, "two")
    git(world.agent, "checkout", "-q", "--detach")
    assert not (await delete_branch(world.host, world.spec)).deleted
    assert not (await delete_branch(world.host, world.spec, MergedAtForge(world.main(), None))).deleted
    assert not (await delete_branch(world.host, world.spec, MergedAtForge("0" * 40, None))).deleted
    found = await delete_branch(world.host, world.spec, MergedAtForge(world.spec.head, None))
    assert found.deleted
    git(world.repo, "merge-base", "--is-ancestor", world.spec.head, found.kept)


async def test_a_base_follows_where_it_can_and_nothing_is_touched_where_it_cannot(world: World, tmp_path: Path) -> None:
    before = world.main()
    there = world.commit({"b.txt": "there\n"})
    (world.repo / "b.txt").write_text("mine\n")
    assert "b.txt" in await follow_remote_base(world.host, world.repo, "main", there, tmp_path / "work")
    assert world.main() == before and (world.repo / "b.txt").read_text() == "mine\n"
    git(world.repo, "checkout", "-q", "HEAD", "--", "b.txt")
    assert await follow_remote_base(world.host, world.repo, "main", there, tmp_path / "work") == ""
    assert world.main() == there and (world.repo / "b.txt").read_text() == "there\n" and not world.status(world.repo)
    assert (
        await follow_remote_base(world.host, world.repo, "main", before, tmp_path / "work") == ""
        and world.main() == there
    )
    own = world.commit({"c.txt": "own\n"}, where=world.repo)
    further = world.commit({"b.txt": "further\n"})
    assert "of its own" in await follow_remote_base(world.host, world.repo, "main", further, tmp_path / "work")
    assert world.main() == own and world.litter() == []


async def test_a_branch_that_is_being_rebased_stays(world: World) -> None:
    world.commit({"b.txt": "agent\n"})
    world.commit({"b.txt": "main\n"}, where=world.repo)
    git(world.agent, "rebase", "main", check=False)
    found = await delete_branch(world.host, world.spec)
    assert (found.deleted, "checked out" in found.reason) == (False, True)


async def test_conflicts_are_predicted_and_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    prediction = Prediction(world.host, world.repo, world.spec.work)
    merged = 0

    def counting(repository: Repository, work: Path, base: str) -> AbstractAsyncContextManager[Merger]:
        nonlocal merged
        merged += 1
        return open_merger(repository, work, base)

    monkeypatch.setattr(prediction_module, "open_merger", counting)
    world.commit({"b.txt": "agent\n"})
    for _ in range(3):
        assert await prediction.conflicts_with(world.spec.head, "main") == ()
    assert merged == 1
    world.commit({"b.txt": "main\n"}, where=world.repo)
    for _ in range(3):
        assert await prediction.conflicts_with(world.spec.head, "main") == ("b.txt",)
    assert merged == 2
