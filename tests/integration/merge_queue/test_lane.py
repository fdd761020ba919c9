"""A queue on a real repository: who lands, who is dropped and why, with how few checks; and others who push meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.changes import merge
from agent_orchestrator.changes.merge import Strategy
from agent_orchestrator.changes.merge_queue.lane import Refused, Withdrawn
from tests.integration.merge_queue.world import Change, World
from tests.integration.rescue.world import git

pytestmark = pytest.mark.anyio


def world(root: Path, changes: Iterable[Change], room: int = 4) -> World:
    return World(root, room).make(changes)


async def test_independent_changes_land_in_order_with_one_check_each(tmp_path: Path) -> None:
    box = world(tmp_path, [Change(name) for name in "abcde"])
    box.ask(*"abcde")
    await box.over()
    assert box.subjects() == ["start", *(f"Land {name}" for name in "abcde")]
    assert len(box.checked) == 5, "those behind were checked where they landed"
    assert max(len(names) for names in box.checked) == 7


async def test_those_behind_are_checked_while_those_ahead_still_are(tmp_path: Path) -> None:
    box = world(tmp_path, [Change(name) for name in "abcde"], room=3)
    box.hold = asyncio.Event()
    box.ask(*"abcde")
    await box.until(lambda: len(box.checked) == 3)
    assert [place.state for place in box.lane.plan.places] == ["checking"] * 3 + ["queued"] * 2
    assert [place.ahead for place in box.lane.plan.places[:3]] == [(), ("a",), ("a", "b")]
    box.hold.set()
    await box.over()
    assert box.wrong() == [] and len(box.landed()) == 5


@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
async def test_the_culprit_alone_is_dropped_and_the_rest_lands_without_him(tmp_path: Path, strategy: Strategy) -> None:
    kinds = {"a": "left", "b": "plain", "c": "right", "d": "plain", "e": "bad"}
    box = world(tmp_path, [Change(name, kind, strategy) for name, kind in kinds.items()])
    box.ask(*"abcde")
    await box.over()
    assert box.landed() == ["a", "b", "d"] and box.wrong() == []
    refused = box.outcomes["c"]
    assert isinstance(refused, Refused) and refused.failed.check == "test"
    assert set(refused.ahead) <= {"a", "b"}
    assert isinstance(box.outcomes["e"], Refused)


async def test_one_that_passes_when_tried_again_lands(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a"), Change("b", "flaky"), Change("c")])
    box.ask(*"abc")
    await box.over()
    assert box.landed() == ["a", "b", "c"] and box.wrong() == []


async def test_a_conflict_with_one_ahead_waits_and_is_told_and_lands_if_that_one_is_dropped(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a", "shared"), Change("b", "shared"), Change("c")])
    box.hold = asyncio.Event()
    box.ask(*"abc")
    await box.until(lambda: len(box.checked) == 2 and box.waits.get("b"))
    assert box.waits["b"] == ["a, with which it conflicts in shared.txt"]
    assert box.call_off("a")
    box.hold.set()
    await box.over()
    assert box.landed() == ["b", "c"] and box.outcomes["a"] == Withdrawn() and box.wrong() == []
    assert box.waits["b"][-1] == "", "it waits for nobody any more"


async def test_a_conflict_with_what_has_landed_is_dropped_with_its_files(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a", "shared"), Change("b", "shared")])
    box.ask(*"ab")
    await box.over()
    conflict = box.outcomes["b"]
    assert box.landed() == ["a"] and isinstance(conflict, merge.Conflicted) and conflict.files == ("shared.txt",)


async def test_priority_overtakes_and_force_needs_no_check(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a"), Change("b", priority=5), Change("c", "bad", priority=9, unchecked=True)])
    box.hold = asyncio.Event()
    box.ask("a")
    await box.until(lambda: box.checked)
    box.ask("b", "c")
    await box.until(lambda: "c" in box.outcomes)
    box.hold.set()
    await box.until(lambda: {"a", "b"} <= box.outcomes.keys())
    assert box.subjects()[:2] == ["start", "Land c"]


SPOILER = {"b": frozenset("cd"), "c": frozenset("b"), "d": frozenset("b")}


async def test_who_is_predicted_to_spoil_others_lets_them_go_first(tmp_path: Path) -> None:
    box = world(tmp_path, [Change(name) for name in "abcd"], room=1)
    box.hold, box.predicted = asyncio.Event(), SPOILER
    box.ask(*"abcd")
    await box.until(lambda: len(box.lane.plan.places) == 4 and box.checked)
    assert [place.entry.session for place in box.lane.plan.places] == ["a", "c", "d", "b"]
    box.hold.set()
    await box.over()
    assert box.subjects()[:3] == ["start", "Land a", "Land c"] and len(box.landed()) == 4
    assert len(box.checked) == 4


async def test_a_prediction_that_comes_later_throws_no_check_away(tmp_path: Path) -> None:
    box = world(tmp_path, [Change(name) for name in "abcde"], room=3)
    box.hold = asyncio.Event()
    box.ask(*"abcde")
    await box.until(lambda: len(box.checked) == 3)
    box.predicted = {"a": frozenset("bcde"), "b": frozenset("a"), "d": frozenset("ab")}
    box.lane.look()
    await box.until(lambda: [place.entry.session for place in box.lane.plan.places] == ["a", "b", "c", "e", "d"])
    assert [place.ahead for place in box.lane.plan.places[:3]] == [(), ("a",), ("a", "b")]
    box.hold.set()
    await box.over()
    assert box.subjects() == ["start", *(f"Land {name}" for name in "abced")] and len(box.checked) == 5


async def test_a_base_that_moves_is_built_upon_and_checked_again(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a"), Change("b")])
    box.hold = asyncio.Event()
    box.ask("a", "b")
    await box.until(lambda: len(box.checked) == 2)
    box.push({"theirs.txt": "x"}, "theirs")
    box.lane.look()
    await box.until(lambda: len(box.checked) == 4)
    assert all("theirs.txt" in names for names in box.checked[2:])
    await box.until(lambda: box.running == 2)
    box.hold.set()
    await box.over()
    assert box.subjects() == ["start", "theirs", "Land a", "Land b"]


async def test_a_base_that_never_rests_is_told(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a")])
    box.hold = asyncio.Event()
    box.ask("a")
    for number in range(6):
        await box.until(lambda many=number: len(box.checked) > many)  # type: ignore[misc]
        box.push({f"t{number}": "x"}, f"push {number}")
        box.lane.look()
    await box.until(lambda: box.waits.get("a"))
    assert box.waits["a"] == ["main to come to rest"]
    box.hold.set()
    await box.over()
    assert box.landed() == ["a"] and box.wrong() == []


async def test_after_a_landing_the_base_may_move_as_often_again_before_that_is_told(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a"), Change("b")], room=1)

    async def pushes(name: str) -> None:
        for number in range(3):
            await box.until(lambda: box.checked and f"{name}.txt" in box.checked[-1])
            many = len(box.checked)
            box.push({f"{name}{number}": "x"}, f"push {name}{number}")
            box.lane.look()
            await box.until(lambda many=many: len(box.checked) > many)  # type: ignore[misc]

    box.hold = first = asyncio.Event()
    box.ask("a", "b")
    await pushes("a")
    box.hold = second = asyncio.Event()
    first.set()
    await box.until(lambda: "a" in box.outcomes)
    await pushes("b")
    second.set()
    await box.over()
    assert box.landed() == ["a", "b"] and box.waits == {} and box.wrong() == []


class Slow:
    """Stands in for `landing.land`: counts, and waits before it moves anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attempts = 0
        self.go = asyncio.Event()
        self._land = merge.merge
        monkeypatch.setattr("agent_orchestrator.changes.merge_queue.lane.merge.merge", self.land)

    async def land(self, *args: Any, **more: Any) -> Any:
        self.attempts += 1
        await self.go.wait()
        return await self._land(*args, **more)


async def test_what_is_being_landed_is_neither_paused_nor_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, slow = world(tmp_path, [Change("a"), Change("b")]), Slow(monkeypatch)
    box.ask("a", "b")
    await box.until(lambda: slow.attempts)
    assert box.lane.lands("a") and not box.lane.lands("b")
    assert not box.lane.pause("a") and not box.call_off("a")
    assert box.call_off("b")
    slow.go.set()
    await box.over()
    assert box.landed() == ["a"] and box.wrong() == []


async def test_the_end_waits_for_what_is_being_landed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box, slow = world(tmp_path, [Change("a")]), Slow(monkeypatch)
    box.ask("a")
    await box.until(lambda: slow.attempts)
    closing = asyncio.ensure_future(box.lane.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    slow.go.set()
    await closing
    assert box.subjects() == ["start", "Land a"]


async def test_a_checkout_in_the_way_is_not_tried_at_every_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.changes.merge_queue.lane.RETRY_BLOCKED_AFTER", 600.0)
    box, slow = world(tmp_path, [Change("a"), Change("b")]), Slow(monkeypatch)
    slow.go.set()
    git(box.repo, "checkout", "-q", "main")
    (box.repo / "a.txt").write_text("mine\n")
    box.ask("a", "b")
    await box.until(lambda: box.waits.get("a") and len(box.checked) == 2 and not box.running)
    for _ in range(10):
        box.lane.look()
        await asyncio.sleep(0.02)
    assert slow.attempts == 1
    assert box.call_off("a")
    await box.until(lambda: "b" in box.outcomes)
    assert box.landed() == ["b"]


async def test_what_was_built_and_is_gone_from_the_repository_is_built_again(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a")])
    box.hold = asyncio.Event()
    box.ask("a")
    await box.until(lambda: box.checked)
    [place] = box.lane.plan.places
    assert isinstance(place.built, merge.Built)
    lost = place.built.commit
    (box.repo / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    box.hold.set()
    await box.over()
    assert box.landed() == ["a"] and box.wrong() == []


async def test_a_branch_that_is_forced_elsewhere_is_out_and_holds_nobody_up(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a"), Change("b"), Change("c")])
    box.hold = asyncio.Event()
    box.ask(*"abc")
    await box.until(lambda: len(box.checked) == 3)
    forced = box.force("a")
    box.lane.look()
    await box.until(lambda: "a" in box.outcomes)
    assert box.outcomes["a"] == merge.BranchMoved(forced)
    box.hold.set()
    await box.over()
    assert box.landed() == ["b", "c"] and box.wrong() == []


async def test_a_checkout_in_the_way_holds_the_front_while_those_behind_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.changes.merge_queue.lane.RETRY_BLOCKED_AFTER", 0.05)
    box = world(tmp_path, [Change("a"), Change("b")])
    git(box.repo, "checkout", "-q", "main")
    (box.repo / "a.txt").write_text("mine\n")
    box.ask("a", "b")
    await box.until(lambda: box.waits.get("a") and len(box.checked) == 2)
    assert "a.txt" in box.waits["a"][0]
    await asyncio.sleep(0.3)
    assert len(box.waits["a"]) == 1, "it is told once, however often it is looked at"
    assert box.subjects() == ["start"] and box.outcomes == {}
    (box.repo / "a.txt").unlink()
    await box.over()
    assert box.subjects() == ["start", "Land a", "Land b"] and (box.repo / "b.txt").exists()
    assert len(box.checked) == 2


async def test_what_is_paused_does_not_land_until_it_is_resumed(tmp_path: Path) -> None:
    box = world(tmp_path, [Change("a"), Change("b")])
    box.hold = asyncio.Event()
    box.ask("a", "b")
    await box.until(lambda: len(box.checked) == 2)
    assert box.lane.pause("a")
    box.hold.set()
    await box.until(lambda: "b" in box.outcomes)
    assert "a" not in box.outcomes
    box.lane.resume("a")
    await box.over()
    assert box.subjects() == ["start", "Land b", "Land a"]


async def test_a_crash_at_any_time_loses_and_doubles_nothing(tmp_path: Path) -> None:
    box = world(tmp_path, [Change(name, "bad" if name == "b" else "plain") for name in "abcd"])
    box.ask(*"abcd")
    for count in (1, 3, 5):
        await box.until(lambda many=count: len(box.checked) >= many or len(box.outcomes) == 4)  # type: ignore[misc]
        await box.crash()
    await box.over()
    assert box.landed() == ["a", "c", "d"] and box.wrong() == []
