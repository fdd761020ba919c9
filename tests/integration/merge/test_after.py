"""After a merge: reverts and branch removal; before one: predicted conflicts."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.changes.merge import (
    BaseConflicts,
    CleanupResult,
    CompletedMerge,
    Conflicted,
    MergedAtForge,
    MergeSpec,
    Reverted,
    RevertSpec,
    Strategy,
    delete_branch,
    follow_remote_base,
    revert,
)
from agent_orchestrator.changes.merge import base_conflicts as prediction_module
from agent_orchestrator.changes.merge.merge_tree import Merger, open_merger
from agent_orchestrator.changes.merge.repository import Repository
from agent_orchestrator.errors import Conflict
from tests.integration.merge.world import MergeWorld, write
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio


def revert_spec(spec: MergeSpec, merged: CompletedMerge) -> RevertSpec:
    return RevertSpec(spec.session, spec.repo, spec.base, merged.commit, merged.base_before, spec.work)


async def merge_two_commits(world: MergeWorld, strategy: Strategy = "squash") -> CompletedMerge:
    world.commit({"x.txt": "x", "b.txt": "1\n"}, "one")
    world.commit({"b.txt": "2\n", "d/c.txt": None}, "two")
    world.commit({"z.txt": "z"}, target=world.repo)
    world.use_strategy(strategy)
    return await world.merge_successfully()


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_a_revert_undoes_the_whole_merge(world: MergeWorld, strategy: Strategy) -> None:
    merged = await merge_two_commits(world, strategy)
    world.commit({"later.txt": "later"}, target=world.repo)
    now = world.main()
    result = await revert(world.host, revert_spec(world.spec, merged))
    assert isinstance(result, Reverted)
    assert (result.branch, result.base_before, world.main()) == ("revert/app-x", now, now)
    assert git(world.repo, "rev-parse", "revert/app-x") == result.commit
    assert git(world.repo, "diff", "--name-only", merged.base_before, result.commit) == "later.txt"
    subject, _, explanation = git(world.repo, "log", "-1", "--format=%B", result.commit).strip().split("\n")
    assert subject == ('Revert "two"' if strategy == "rebase" else 'Revert "Add x"')
    reverted_range = (
        f"commits {merged.base_before}..{merged.commit}" if strategy == "rebase" else f"commit {merged.commit}"
    )
    assert explanation == f"This reverts {reverted_range}."
    assert (world.status(), world.leftovers()) == ("", [])


async def test_a_repeated_revert_returns_the_same_branch_until_it_is_merged(world: MergeWorld) -> None:
    merged = await merge_two_commits(world)
    first = await revert(world.host, revert_spec(world.spec, merged))
    world.commit({"later.txt": "later"}, target=world.repo)
    assert await revert(world.host, revert_spec(world.spec, merged)) == first
    assert isinstance(first, Reverted)
    world.spec = replace(world.spec, session="app-undo", branch=first.branch, head=first.commit)
    await world.merge_successfully()
    assert world.show("b.txt") == "b"
    with pytest.raises(Conflict, match="undone already"):
        await revert(world.host, replace(revert_spec(world.spec, merged), session="app-other"))


async def test_the_revert_of_a_second_merge_gets_its_own_branch(world: MergeWorld) -> None:
    first = await merge_two_commits(world)
    git(world.agent, "reset", "-q", "--hard", "main")
    world.commit({"y.txt": "y"})
    second = await world.merge_successfully()
    reverts = [await revert(world.host, revert_spec(world.spec, merged)) for merged in (first, second)]
    assert [reverted.branch for reverted in reverts if isinstance(reverted, Reverted)] == [
        "revert/app-x",
        "revert/app-x-2",
    ]


async def test_a_conflicting_revert_names_the_files(world: MergeWorld) -> None:
    merged = await merge_two_commits(world)
    now = world.commit({"b.txt": "later\n"}, target=world.repo)
    assert await revert(world.host, revert_spec(world.spec, merged)) == Conflicted(("b.txt",), now)
    assert git(world.repo, "branch", "--list", "revert/*") == ""


async def test_a_revert_of_a_missing_merge_is_refused(world: MergeWorld) -> None:
    merged = await merge_two_commits(world)
    git(world.repo, "reset", "-q", "--hard", "HEAD~")
    with pytest.raises(Conflict, match="not on main any more"):
        await revert(world.host, revert_spec(world.spec, merged))
    with pytest.raises(Conflict, match="changed nothing"):
        await revert(world.host, replace(revert_spec(world.spec, merged), merged_commit=merged.base_before))


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_a_merged_branch_is_removed_and_its_commits_are_kept(world: MergeWorld, strategy: Strategy) -> None:
    await merge_two_commits(world, strategy)
    world.commit({"b.txt": "later\n", "x.txt": "later"}, target=world.repo)
    result = await delete_branch(world.host, world.spec)
    assert (result.deleted, result.reason) == (False, f"feature/x is checked out in {world.agent}")
    git(world.agent, "checkout", "-q", "--detach")
    git(world.repo, "config", "branch.feature/x.remote", "origin")
    result = await delete_branch(world.host, world.spec)
    assert result == CleanupResult(True, "", f"refs/ao/landed/app-x/{world.spec.head}")
    assert git(world.repo, "branch", "--list", "feature/*") == ""
    assert "feature/x" not in (world.repo / ".git/config").read_text()
    git(world.repo, "merge-base", "--is-ancestor", world.spec.head, result.record_ref)
    assert (await delete_branch(world.host, world.spec)).deleted


async def test_a_branch_with_unmerged_commits_is_kept(world: MergeWorld) -> None:
    await merge_two_commits(world)
    git(world.agent, "commit", "-q", "--allow-empty", "-m", "empty")
    write(world.agent, {"more.txt": "more"})
    git(world.agent, "add", "-A")
    git(world.agent, "commit", "-qm", "more")
    git(world.agent, "checkout", "-q", "--detach")
    result = await delete_branch(world.host, world.spec)
    assert result == CleanupResult(False, "feature/x has commits that are not on main")
    assert git(world.repo, "branch", "--list", "feature/*") != ""
    git(world.agent, "checkout", "-q", "--orphan", "feature/alone")
    git(world.agent, "commit", "-qm", "alone")
    git(world.agent, "checkout", "-q", "--detach")
    assert not (await delete_branch(world.host, replace(world.spec, branch="feature/alone"))).deleted
    assert not (await delete_branch(world.host, replace(world.spec, branch="main"))).deleted


async def test_a_branch_whose_content_is_already_on_the_base_is_removed(world: MergeWorld) -> None:
    world.commit({"b.txt": "same\n"})
    world.commit({"b.txt": "same\n"}, target=world.repo)
    git(world.agent, "checkout", "-q", "--detach")
    result = await delete_branch(world.host, world.spec)
    assert result.deleted
    git(world.repo, "merge-base", "--is-ancestor", world.spec.head, result.record_ref)


async def test_a_branch_merged_at_a_forge_is_removed_at_the_reported_commit(world: MergeWorld) -> None:
    world.commit({"b.txt": "1\n"}, "one")
    world.commit({"b.txt": "2\n"}, "two")
    git(world.agent, "checkout", "-q", "--detach")
    assert not (await delete_branch(world.host, world.spec)).deleted
    assert not (await delete_branch(world.host, world.spec, MergedAtForge(world.main(), None))).deleted
    assert not (await delete_branch(world.host, world.spec, MergedAtForge("0" * 40, None))).deleted
    result = await delete_branch(world.host, world.spec, MergedAtForge(world.spec.head, None))
    assert result.deleted
    git(world.repo, "merge-base", "--is-ancestor", world.spec.head, result.record_ref)


async def test_the_base_follows_its_remote_only_if_nothing_is_in_the_way(world: MergeWorld, tmp_path: Path) -> None:
    before = world.main()
    remote_head = world.commit({"b.txt": "there\n"})
    (world.repo / "b.txt").write_text("mine\n")
    assert "b.txt" in await follow_remote_base(world.host, world.repo, "main", remote_head, tmp_path / "work")
    assert world.main() == before and (world.repo / "b.txt").read_text() == "mine\n"
    git(world.repo, "checkout", "-q", "HEAD", "--", "b.txt")
    assert await follow_remote_base(world.host, world.repo, "main", remote_head, tmp_path / "work") == ""
    assert (
        world.main() == remote_head and (world.repo / "b.txt").read_text() == "there\n" and not world.status(world.repo)
    )
    assert (
        await follow_remote_base(world.host, world.repo, "main", before, tmp_path / "work") == ""
        and world.main() == remote_head
    )
    local_head = world.commit({"c.txt": "own\n"}, target=world.repo)
    further = world.commit({"b.txt": "further\n"})
    assert "of its own" in await follow_remote_base(world.host, world.repo, "main", further, tmp_path / "work")
    assert world.main() == local_head and world.leftovers() == []


async def test_a_branch_that_is_being_rebased_is_kept(world: MergeWorld) -> None:
    world.commit({"b.txt": "agent\n"})
    world.commit({"b.txt": "main\n"}, target=world.repo)
    git(world.agent, "rebase", "main", check=False)
    result = await delete_branch(world.host, world.spec)
    assert (result.deleted, "checked out" in result.reason) == (False, True)


async def test_predicted_conflicts_are_cached(world: MergeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    prediction = BaseConflicts(world.host, world.repo, world.spec.work)
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
    world.commit({"b.txt": "main\n"}, target=world.repo)
    for _ in range(3):
        assert await prediction.conflicts_with(world.spec.head, "main") == ("b.txt",)
    assert merged == 2
