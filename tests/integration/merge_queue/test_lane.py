"""A merge queue on a real repository: merged and rejected changes, number of checks, and simultaneous pushes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.changes import merge
from agent_orchestrator.changes.merge import Strategy
from agent_orchestrator.changes.merge_queue.base_queue import RejectedChange, WithdrawnChange
from tests.integration.merge_queue.world import BranchToMerge, MergeQueueWorld
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio


def make_world(root: Path, changes: Iterable[BranchToMerge], max_checks: int = 4) -> MergeQueueWorld:
    return MergeQueueWorld(root, max_checks).make(changes)


async def test_independent_changes_are_merged_in_order_with_one_check_each(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge(name) for name in "abcde"])
    box.request_merge(*"abcde")
    await box.finish()
    assert box.subjects() == ["start", *(f"Land {name}" for name in "abcde")]
    assert len(box.checked) == 5, "later changes were checked at the commit they were merged at"
    assert max(len(names) for names in box.checked) == 7


async def test_changes_behind_are_checked_in_parallel_with_those_ahead(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge(name) for name in "abcde"], max_checks=3)
    box.release = asyncio.Event()
    box.request_merge(*"abcde")
    await box.until(lambda: len(box.checked) == 3)
    assert [position.state for position in box.lane.plan.positions] == ["checking"] * 3 + ["queued"] * 2
    assert [position.ahead for position in box.lane.plan.positions[:3]] == [(), ("a",), ("a", "b")]
    box.release.set()
    await box.finish()
    assert box.problems() == [] and len(box.merged_names()) == 5


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_only_the_failing_change_is_rejected_and_the_others_are_merged(
    tmp_path: Path, strategy: Strategy
) -> None:
    kinds = {"a": "left", "b": "plain", "c": "right", "d": "plain", "e": "bad"}
    box = make_world(tmp_path, [BranchToMerge(name, kind, strategy) for name, kind in kinds.items()])
    box.request_merge(*"abcde")
    await box.finish()
    assert box.merged_names() == ["a", "b", "d"] and box.problems() == []
    refused = box.outcomes["c"]
    assert isinstance(refused, RejectedChange) and refused.failed.check == "test"
    assert set(refused.ahead) <= {"a", "b"}
    assert isinstance(box.outcomes["e"], RejectedChange)


async def test_a_change_that_passes_on_a_retry_is_merged(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge("a"), BranchToMerge("b", "flaky"), BranchToMerge("c")])
    box.request_merge(*"abc")
    await box.finish()
    assert box.merged_names() == ["a", "b", "c"] and box.problems() == []


async def test_a_change_in_conflict_with_one_ahead_waits_and_is_merged_if_that_is_withdrawn(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge("a", "shared"), BranchToMerge("b", "shared"), BranchToMerge("c")])
    box.release = asyncio.Event()
    box.request_merge(*"abc")
    await box.until(lambda: len(box.checked) == 2 and box.wait_reasons.get("b"))
    assert box.wait_reasons["b"] == ["a, with which it conflicts in shared.txt"]
    assert box.withdraw("a")
    box.release.set()
    await box.finish()
    assert box.merged_names() == ["b", "c"] and box.outcomes["a"] == WithdrawnChange() and box.problems() == []
    assert box.wait_reasons["b"][-1] == "", "it no longer waits"


async def test_a_change_in_conflict_with_the_base_is_rejected_with_its_files(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge("a", "shared"), BranchToMerge("b", "shared")])
    box.request_merge(*"ab")
    await box.finish()
    conflict = box.outcomes["b"]
    assert box.merged_names() == ["a"] and isinstance(conflict, merge.Conflicted) and conflict.files == ("shared.txt",)


async def test_a_higher_priority_is_merged_first_and_force_needs_no_check(tmp_path: Path) -> None:
    box = make_world(
        tmp_path,
        [BranchToMerge("a"), BranchToMerge("b", priority=5), BranchToMerge("c", "bad", priority=9, unchecked=True)],
    )
    box.release = asyncio.Event()
    box.request_merge("a")
    await box.until(lambda: box.checked)
    box.request_merge("b", "c")
    await box.until(lambda: "c" in box.outcomes)
    box.release.set()
    await box.until(lambda: {"a", "b"} <= box.outcomes.keys())
    assert box.subjects()[:2] == ["start", "Land c"]


PREDICTED = {"b": frozenset("cd"), "c": frozenset("b"), "d": frozenset("b")}


async def test_a_change_with_predicted_conflicts_is_queued_behind_the_others(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge(name) for name in "abcd"], max_checks=1)
    box.release, box.predicted = asyncio.Event(), PREDICTED
    box.request_merge(*"abcd")
    await box.until(lambda: len(box.lane.plan.positions) == 4 and box.checked)
    assert [position.entry.session for position in box.lane.plan.positions] == ["a", "c", "d", "b"]
    box.release.set()
    await box.finish()
    assert box.subjects()[:3] == ["start", "Land a", "Land c"] and len(box.merged_names()) == 4
    assert len(box.checked) == 4


async def test_a_later_prediction_discards_no_check(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge(name) for name in "abcde"], max_checks=3)
    box.release = asyncio.Event()
    box.request_merge(*"abcde")
    await box.until(lambda: len(box.checked) == 3)
    box.predicted = {"a": frozenset("bcde"), "b": frozenset("a"), "d": frozenset("ab")}
    box.lane.schedule_cycle()
    await box.until(
        lambda: [position.entry.session for position in box.lane.plan.positions] == ["a", "b", "c", "e", "d"]
    )
    assert [position.ahead for position in box.lane.plan.positions[:3]] == [(), ("a",), ("a", "b")]
    box.release.set()
    await box.finish()
    assert box.subjects() == ["start", *(f"Land {name}" for name in "abced")] and len(box.checked) == 5


async def test_changes_are_rebuilt_and_checked_again_if_the_base_moves(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge("a"), BranchToMerge("b")])
    box.release = asyncio.Event()
    box.request_merge("a", "b")
    await box.until(lambda: len(box.checked) == 2)
    box.push({"theirs.txt": "x"}, "theirs")
    box.lane.schedule_cycle()
    await box.until(lambda: len(box.checked) == 4)
    assert all("theirs.txt" in names for names in box.checked[2:])
    await box.until(lambda: box.running == 2)
    box.release.set()
    await box.finish()
    assert box.subjects() == ["start", "theirs", "Land a", "Land b"]


async def test_a_base_that_keeps_moving_is_reported(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge("a")])
    box.release = asyncio.Event()
    box.request_merge("a")
    for number in range(6):
        await box.until(lambda count=number: len(box.checked) > count)  # type: ignore[misc]
        box.push({f"t{number}": "x"}, f"push {number}")
        box.lane.schedule_cycle()
    await box.until(lambda: box.wait_reasons.get("a"))
    assert box.wait_reasons["a"] == ["main to come to rest"]
    box.release.set()
    await box.finish()
    assert box.merged_names() == ["a"] and box.problems() == []


async def test_the_count_of_base_moves_restarts_after_a_merge(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge("a"), BranchToMerge("b")], max_checks=1)

    async def pushes(name: str) -> None:
        for number in range(3):
            await box.until(lambda: box.checked and f"{name}.txt" in box.checked[-1])
            count = len(box.checked)
            box.push({f"{name}{number}": "x"}, f"push {name}{number}")
            box.lane.schedule_cycle()
            await box.until(lambda count=count: len(box.checked) > count)  # type: ignore[misc]

    box.release = first = asyncio.Event()
    box.request_merge("a", "b")
    await pushes("a")
    box.release = second = asyncio.Event()
    first.set()
    await box.until(lambda: "a" in box.outcomes)
    await pushes("b")
    second.set()
    await box.finish()
    assert box.merged_names() == ["a", "b"] and box.wait_reasons == {} and box.problems() == []


class SlowMerge:
    """Replaces `merge.merge`: counts the attempts and waits before each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attempts = 0
        self.go = asyncio.Event()
        self._merge = merge.merge
        monkeypatch.setattr("agent_orchestrator.changes.merge_queue.base_queue.merge.merge", self.merge)

    async def merge(self, *args: Any, **more: Any) -> Any:
        self.attempts += 1
        await self.go.wait()
        return await self._merge(*args, **more)


async def test_a_change_that_is_being_merged_cannot_be_withdrawn_and_is_paused_after_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, slow = make_world(tmp_path, [BranchToMerge("a"), BranchToMerge("b")]), SlowMerge(monkeypatch)
    box.request_merge("a", "b")
    await box.until(lambda: slow.attempts)
    assert box.lane.is_merging("a") and not box.lane.is_merging("b")
    pausing = asyncio.ensure_future(box.lane.pause("a"))
    assert not box.withdraw("a") and box.withdraw("b")
    await asyncio.sleep(0.05)
    assert not pausing.done()
    slow.go.set()
    await pausing
    await box.finish()
    assert box.merged_names() == ["a"] and box.problems() == []


async def test_closing_the_queue_waits_for_a_running_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box, slow = make_world(tmp_path, [BranchToMerge("a")]), SlowMerge(monkeypatch)
    box.request_merge("a")
    await box.until(lambda: slow.attempts)
    closing = asyncio.ensure_future(box.lane.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    slow.go.set()
    await closing
    assert box.subjects() == ["start", "Land a"]


async def test_a_blocked_merge_is_not_retried_at_every_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.changes.merge_queue.base_queue.RETRY_BLOCKED_AFTER", 600.0)
    box, slow = make_world(tmp_path, [BranchToMerge("a"), BranchToMerge("b")]), SlowMerge(monkeypatch)
    slow.go.set()
    git(box.repo, "checkout", "-q", "main")
    (box.repo / "a.txt").write_text("mine\n")
    box.request_merge("a", "b")
    await box.until(lambda: box.wait_reasons.get("a") and len(box.checked) == 2 and not box.running)
    for _ in range(10):
        box.lane.schedule_cycle()
        await asyncio.sleep(0.02)
    assert slow.attempts == 1
    assert box.withdraw("a")
    await box.until(lambda: "b" in box.outcomes)
    assert box.merged_names() == ["b"]


async def test_a_built_commit_missing_in_the_repository_is_built_again(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge("a")])
    box.release = asyncio.Event()
    box.request_merge("a")
    await box.until(lambda: box.checked)
    [position] = box.lane.plan.positions
    assert isinstance(position.built, merge.BuiltMerge)
    lost = position.built.commit
    (box.repo / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    box.release.set()
    await box.finish()
    assert box.merged_names() == ["a"] and box.problems() == []


async def test_a_force_pushed_branch_leaves_the_queue_without_blocking_others(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge("a"), BranchToMerge("b"), BranchToMerge("c")])
    box.release = asyncio.Event()
    box.request_merge(*"abc")
    await box.until(lambda: len(box.checked) == 3)
    forced = box.force("a")
    box.lane.schedule_cycle()
    await box.until(lambda: "a" in box.outcomes)
    assert box.outcomes["a"] == merge.MovedBranch(forced)
    box.release.set()
    await box.finish()
    assert box.merged_names() == ["b", "c"] and box.problems() == []


async def test_a_blocked_checkout_stops_the_first_change_while_others_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.changes.merge_queue.base_queue.RETRY_BLOCKED_AFTER", 0.05)
    box = make_world(tmp_path, [BranchToMerge("a"), BranchToMerge("b")])
    git(box.repo, "checkout", "-q", "main")
    (box.repo / "a.txt").write_text("mine\n")
    box.request_merge("a", "b")
    await box.until(lambda: box.wait_reasons.get("a") and len(box.checked) == 2)
    assert "a.txt" in box.wait_reasons["a"][0]
    await asyncio.sleep(0.3)
    assert len(box.wait_reasons["a"]) == 1, "the reason is reported once"
    assert box.subjects() == ["start"] and box.outcomes == {}
    (box.repo / "a.txt").unlink()
    await box.finish()
    assert box.subjects() == ["start", "Land a", "Land b"] and (box.repo / "b.txt").exists()
    assert len(box.checked) == 2


async def test_a_paused_change_is_not_merged_until_it_is_resumed(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge("a"), BranchToMerge("b")])
    box.release = asyncio.Event()
    box.request_merge("a", "b")
    await box.until(lambda: len(box.checked) == 2)
    await box.lane.pause("a")
    box.release.set()
    await box.until(lambda: "b" in box.outcomes)
    assert "a" not in box.outcomes
    box.lane.resume("a")
    await box.finish()
    assert box.subjects() == ["start", "Land b", "Land a"]


async def test_crashes_neither_lose_nor_duplicate_merges(tmp_path: Path) -> None:
    box = make_world(tmp_path, [BranchToMerge(name, "bad" if name == "b" else "plain") for name in "abcd"])
    box.request_merge(*"abcd")
    for limit in (1, 3, 5):
        await box.until(lambda limit=limit: len(box.checked) >= limit or len(box.outcomes) == 4)  # type: ignore[misc]
        await box.crash()
    await box.finish()
    assert box.merged_names() == ["a", "c", "d"] and box.problems() == []
