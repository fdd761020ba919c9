"""The next steps of a merge queue: by its known state, and simulated with arbitrary content."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.changes.merge import BuiltMerge, Conflicted
from agent_orchestrator.changes.merge_queue.plan import (
    REQUEST_SPAN,
    BuildCheckState,
    Ordering,
    QueuedChange,
    QueuePlan,
    order_entries,
    overtaking_sessions,
    plan_queue,
)

A, B, C = (QueuedChange(name, f"head-{name}", 0, float(number)) for number, name in enumerate("abc"))
ON_BASE = BuiltMerge("base+a", "t1", "base")
ON_A = BuiltMerge("base+a+b", "t2", "base+a")
ON_B = BuiltMerge("base+a+b+c", "t3", "base+a+b")
CHAIN: dict[tuple[QueuedChange, str], BuiltMerge | Conflicted] = {
    (A, "base"): ON_BASE,
    (B, "base+a"): ON_A,
    (C, "base+a+b"): ON_B,
}


def states_by_session(plan_now: QueuePlan) -> dict[str, str]:
    return {place.entry.session: place.state for place in plan_now.positions}


def plan_chain(
    verdicts: dict[str, BuildCheckState], builds: dict[tuple[QueuedChange, str], BuiltMerge | Conflicted] = CHAIN
) -> QueuePlan:
    return plan_queue([C, A, B], "base", builds, verdicts, 8)


def test_priority_counts_first_then_the_time_of_the_request() -> None:
    urgent = QueuedChange("z", "h", 5, 9.0)
    assert [entry.session for entry in order_entries([C, B, urgent, A])] == ["z", "a", "b", "c"]


def names_of(entries: list[QueuedChange]) -> str:
    return "".join(entry.session for entry in entries)


SPOILER = {"a": frozenset("bc"), "b": frozenset("a"), "c": frozenset("a")}


def test_an_entry_with_many_conflicts_goes_after_those_with_few() -> None:
    ordered = order_entries([A, B, C], Ordering(SPOILER))
    assert names_of(ordered) == "bca"
    assert overtaking_sessions(A, ordered) == ["b", "c"] and overtaking_sessions(B, ordered) == []
    alone = {"a": frozenset({"elsewhere", "gone"}), "b": frozenset("c"), "c": frozenset("b")}
    assert names_of(order_entries([A, B, C], Ordering(alone))) == "abc", "those that are not in the queue do not count"


def test_priority_counts_more_than_predicted_conflicts() -> None:
    urgent = QueuedChange("z", "h", 5, 9.0)
    ordered = order_entries([A, B, urgent], Ordering({"z": frozenset("ab"), "a": frozenset("z")}))
    assert (
        names_of(ordered) == "zba"
        and overtaking_sessions(B, ordered) == []
        and overtaking_sessions(A, ordered) == ["b"]
    )


def test_entries_being_processed_keep_their_position() -> None:
    assert names_of(order_entries([A, B, C], Ordering(SPOILER, [A, B]))) == "abc"
    assert names_of(order_entries([A, B, C], Ordering(SPOILER, [B, A]))) == "bac"
    moved = QueuedChange("a", "another head", 0, 0.0)
    assert names_of(order_entries([moved, B, C], Ordering(SPOILER, [A, B]))) == "bca", "another commit is another entry"


def test_an_entry_is_not_overtaken_by_a_much_later_request() -> None:
    late = QueuedChange("z", "h", 0, REQUEST_SPAN)
    assert (
        names_of(
            order_entries([A, late, B], Ordering({"a": frozenset("bz"), "z": frozenset("a"), "b": frozenset("a")}))
        )
        == "baz"
    )


def test_a_built_or_conflicting_entry_has_begun() -> None:
    clash = Conflicted(("f",), "base+a")
    assert plan_chain({}).built_entries == [A, B, C]
    assert plan_chain({}, {(A, "base"): ON_BASE}).built_entries == [A]
    assert plan_chain({}, {(A, "base"): ON_BASE, (B, "base+a"): clash}).built_entries == [A, B]
    assert plan_chain({"base+a": "bad"}).built_entries == [A], "those behind a dropped entry are built again"


def test_each_entry_is_built_on_the_previous_one_one_at_a_time() -> None:
    assert plan_chain({}, {}).build == (A, "base")
    assert plan_chain({}, {(A, "base"): ON_BASE}).build == (B, "base+a")
    assert plan_chain({}).build is None


def test_the_whole_chain_is_checked_at_once_up_to_the_limit() -> None:
    assert list(plan_chain({}).positions_to_check) == ["base+a", "base+a+b", "base+a+b+c"]
    narrow = plan_queue([A, B, C], "base", CHAIN, {}, 2)
    assert list(narrow.positions_to_check) == ["base+a", "base+a+b"] and states_by_session(narrow)["c"] == "queued"
    assert plan_queue([A, B, C], "base", {(A, "base"): ON_BASE}, {}, 1).build is None, (
        "nothing is built that is not checked yet"
    )


def test_running_checks_continue_under_a_lower_limit() -> None:
    running: dict[str, BuildCheckState] = dict.fromkeys(("base+a", "base+a+b", "base+a+b+c"), "running")
    assert list(plan_queue([A, B, C], "base", CHAIN, running, 1).positions_to_check) == list(running)


def test_a_retried_check_counts_against_the_limit() -> None:
    builds = {**CHAIN, (B, "base"): BuiltMerge("base+b", "t4", "base")}
    plan_now = plan_queue([A, B], "base", builds, {"base+a": "doubtful"}, 1)
    assert list(plan_now.positions_to_check) == ["base+a"] and states_by_session(plan_now)["b"] == "queued"


def test_green_entries_are_merged_from_the_front_without_a_second_check() -> None:
    assert plan_chain({"base+a+b": "good"}).merge is None
    plan_now = plan_chain({"base+a": "good", "base+a+b": "good"})
    assert plan_now.merge is not None and plan_now.merge.entry == A
    later = plan_queue([B, C], "base+a", CHAIN, {"base+a+b": "good"}, 8)
    assert later.merge is not None and later.merge.entry == B and list(later.positions_to_check) == ["base+a+b+c"]


def test_an_entry_failing_on_a_green_chain_is_dropped() -> None:
    plan_now = plan_chain({"base+a": "good", "base+a+b": "bad", "base+a+b+c": "bad"})
    assert [(place.entry, place.state, place.ahead) for place in plan_now.dropped_positions] == [(B, "culprit", ("a",))]
    assert plan_now.build == (C, "base+a")


def test_an_entry_failing_on_an_unfinished_chain_is_not_blamed() -> None:
    plan_now = plan_chain({"base+a": "running", "base+a+b": "bad"})
    assert (
        plan_now.dropped_positions == ()
        and states_by_session(plan_now)["b"] == "failing"
        and plan_now.build == (C, "base+a")
    )


def test_one_failure_blocks_the_merge_while_the_others_are_checked_without_it() -> None:
    builds = {**CHAIN, (B, "base"): BuiltMerge("base+b", "t4", "base")}
    plan_now = plan_chain({"base+a": "doubtful", "base+b": "good"}, builds)
    assert states_by_session(plan_now)["a"] == "doubtful" and plan_now.merge is None and plan_now.build == (C, "base+b")
    assert "base+a" in plan_now.positions_to_check
    after = plan_chain({"base+a": "bad", "base+b": "good"}, builds)
    assert (
        [place.entry for place in after.dropped_positions] == [A] and after.merge is not None and after.merge.entry == B
    )


def test_a_conflict_with_the_base_is_dropped_and_one_with_earlier_entries_waits() -> None:
    clash: dict[tuple[QueuedChange, str], BuiltMerge | Conflicted] = {
        (A, "base"): ON_BASE,
        (B, "base+a"): Conflicted(("f",), "base+a"),
    }
    assert plan_chain({}, clash).build == (B, "base")
    waits = plan_chain({}, {**clash, (B, "base"): BuiltMerge("base+b", "t4", "base")})
    assert (
        states_by_session(waits)["b"] == "clashing" and waits.build == (C, "base+a") and waits.dropped_positions == ()
    )
    out = plan_chain({}, {**clash, (B, "base"): Conflicted(("f",), "base")})
    assert [(place.entry, place.state) for place in out.dropped_positions] == [(B, "conflict")]


def test_a_forced_or_empty_entry_needs_no_check() -> None:
    forced = QueuedChange("a", "head-a", 0, 0.0, unchecked=True)
    plan_now = plan_queue([forced], "base", {(forced, "base"): ON_BASE}, {}, 8)
    assert plan_now.merge is not None and not plan_now.positions_to_check
    same = plan_queue([A], "base", {(A, "base"): BuiltMerge("base", "t0", "base", up_to_date=True)}, {}, 8)
    assert same.merge is not None and not same.positions_to_check


# -- any queue -------------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Simulated content: a commit is a set of names; some pairs conflict, and bad names fail every check."""

    clashes: frozenset[frozenset[str]]
    bad: frozenset[str]
    flaky: frozenset[str]
    builds: dict[tuple[QueuedChange, str], BuiltMerge | Conflicted] = field(default_factory=dict)
    verdicts: dict[str, BuildCheckState] = field(default_factory=dict)

    def merge(self, entry: QueuedChange, on: str) -> BuiltMerge | Conflicted:
        merged = frozenset(filter(None, on.split("+")))
        if any(frozenset({entry.session, other}) in self.clashes for other in merged):
            return Conflicted(("f",), on)
        commit = "+".join(sorted(merged | {entry.session}))
        return BuiltMerge(commit, commit, on)

    def check(self, commit: str) -> None:
        """Advance a check by one step: a failure is doubtful first."""
        names = set(commit.split("+"))
        if self.verdicts.get(commit) == "doubtful":
            self.verdicts[commit] = "bad" if names & self.bad else "good"
        else:
            self.verdicts[commit] = "doubtful" if names & (self.bad | self.flaky) else "good"


NAMES = "abcdef"
PAIRS = [frozenset({first, second}) for first in NAMES for second in NAMES if first < second]


@given(
    st.lists(st.sampled_from(NAMES), unique=True, min_size=1),
    st.frozensets(st.sampled_from(PAIRS), max_size=4),
    st.frozensets(st.sampled_from(NAMES), max_size=3),
    st.frozensets(st.sampled_from(NAMES), max_size=3),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_any_queue_ends_with_exactly_the_bad_entries_dropped(
    names: list[str],
    clashes: frozenset[frozenset[str]],
    bad: frozenset[str],
    flaky: frozenset[str],
    max_checks: int,
    chance: Random,
    predicted: bool,
) -> None:
    world = World(clashes, bad, flaky)
    queue = {name: QueuedChange(name, name, 0, 400.0 * number) for number, name in enumerate(names)}
    base = ""
    wishes = Ordering()
    merged: list[str] = []
    dropped: dict[str, str] = {}
    for _ in range(500):
        plan_now = plan_queue(queue.values(), base, world.builds, world.verdicts, max_checks, wishes)
        if predicted:  # with new random predictions at each step
            guesses = {name: frozenset(chance.sample(NAMES, 3)) for name in queue}
            wishes = Ordering(guesses, plan_now.built_entries)
        if not queue:
            break
        assert len(plan_now.positions_to_check) <= max_checks + len(queue)
        for place in plan_now.dropped_positions:
            del queue[place.entry.session]
            dropped[place.entry.session] = place.state
        steps = (
            ["build"] * bool(plan_now.build)
            + ["land"] * bool(plan_now.merge)
            + ["check"] * bool(plan_now.positions_to_check)
        )
        assert steps or plan_now.dropped_positions, "a queue that does nothing is a queue that is stuck"
        match chance.choice(steps) if steps and not plan_now.dropped_positions else "":
            case "build" if plan_now.build:
                world.builds[plan_now.build] = world.merge(*plan_now.build)
            case "check":
                world.check(chance.choice(list(plan_now.positions_to_check)))
            case "land" if plan_now.merge and isinstance(plan_now.merge.built, BuiltMerge):
                assert (
                    plan_now.merge.built.base_before == base and world.verdicts[plan_now.merge.built.commit] == "good"
                )
                base = plan_now.merge.built.commit
                merged.append(plan_now.merge.entry.session)
                del queue[plan_now.merge.entry.session]
    assert not queue
    assert sorted([*merged, *dropped]) == sorted(names), "no entry is lost or merged twice"
    places = [names.index(name) for name in merged]
    for number, first in enumerate(places):
        assert all(first - other < 2 for other in places[number + 1 :]), "no entry is overtaken by one of a later span"
    assert predicted or places == sorted(places), "in the order in which they asked"
    assert not set(merged) & bad
    for name, state in dropped.items():
        ahead = [other for other in merged if predicted or names.index(other) < names.index(name)]
        clashing = any(frozenset({name, other}) in world.clashes for other in ahead)
        assert clashing if state == "conflict" else name in bad
