"""What is next for a queue: told by what is known of it, and by playing it against a world that is any content."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_orchestrator.changes.merge import Built, Conflicted
from agent_orchestrator.changes.merge_queue.next_step import (
    REQUEST_SPAN,
    Entry,
    Ordering,
    Plan,
    Verdict,
    order,
    overtaken_by,
    plan,
)

A, B, C = (Entry(name, f"head-{name}", 0, float(number)) for number, name in enumerate("abc"))
ON_BASE = Built("base+a", "t1", "base")
ON_A = Built("base+a+b", "t2", "base+a")
ON_B = Built("base+a+b+c", "t3", "base+a+b")
CHAIN: dict[tuple[Entry, str], Built | Conflicted] = {(A, "base"): ON_BASE, (B, "base+a"): ON_A, (C, "base+a+b"): ON_B}


def states(found: Plan) -> dict[str, str]:
    return {place.entry.session: place.state for place in found.places}


def planned(verdicts: dict[str, Verdict], builds: dict[tuple[Entry, str], Built | Conflicted] = CHAIN) -> Plan:
    return plan([C, A, B], "base", builds, verdicts, 8)


def test_priority_goes_first_then_who_asked_first() -> None:
    urgent = Entry("z", "h", 5, 9.0)
    assert [entry.session for entry in order([C, B, urgent, A])] == ["z", "a", "b", "c"]


def named(entries: list[Entry]) -> str:
    return "".join(entry.session for entry in entries)


SPOILER = {"a": frozenset("bc"), "b": frozenset("a"), "c": frozenset("a")}


def test_who_collides_with_many_lets_those_go_first_that_collide_with_few() -> None:
    ordered = order([A, B, C], Ordering(SPOILER))
    assert named(ordered) == "bca"
    assert overtaken_by(A, ordered) == ["b", "c"] and overtaken_by(B, ordered) == []
    alone = {"a": frozenset({"elsewhere", "gone"}), "b": frozenset("c"), "c": frozenset("b")}
    assert named(order([A, B, C], Ordering(alone))) == "abc", "those that are not in the queue do not count"


def test_priority_is_stronger_than_any_prediction() -> None:
    urgent = Entry("z", "h", 5, 9.0)
    ordered = order([A, B, urgent], Ordering({"z": frozenset("ab"), "a": frozenset("z")}))
    assert named(ordered) == "zba" and overtaken_by(B, ordered) == [] and overtaken_by(A, ordered) == ["b"]


def test_what_is_under_way_keeps_its_place() -> None:
    assert named(order([A, B, C], Ordering(SPOILER, [A, B]))) == "abc"
    assert named(order([A, B, C], Ordering(SPOILER, [B, A]))) == "bac"
    moved = Entry("a", "another head", 0, 0.0)
    assert named(order([moved, B, C], Ordering(SPOILER, [A, B]))) == "bca", "another commit is another entry"


def test_nobody_is_passed_by_one_that_asked_much_later() -> None:
    late = Entry("z", "h", 0, REQUEST_SPAN)
    assert (
        named(order([A, late, B], Ordering({"a": frozenset("bz"), "z": frozenset("a"), "b": frozenset("a")}))) == "baz"
    )


def test_who_is_built_or_clashes_at_its_place_has_begun() -> None:
    clash = Conflicted(("f",), "base+a")
    assert planned({}).begun == [A, B, C]
    assert planned({}, {(A, "base"): ON_BASE}).begun == [A]
    assert planned({}, {(A, "base"): ON_BASE, (B, "base+a"): clash}).begun == [A, B]
    assert planned({"base+a": "bad"}).begun == [A], "those behind one that is out are built anew"


def test_each_is_built_on_the_one_ahead_and_one_at_a_time() -> None:
    assert planned({}, {}).build == (A, "base")
    assert planned({}, {(A, "base"): ON_BASE}).build == (B, "base+a")
    assert planned({}).build is None


def test_all_of_the_chain_is_checked_at_once_as_far_as_there_is_room() -> None:
    assert list(planned({}).checks) == ["base+a", "base+a+b", "base+a+b+c"]
    narrow = plan([A, B, C], "base", CHAIN, {}, 2)
    assert list(narrow.checks) == ["base+a", "base+a+b"] and states(narrow)["c"] == "queued"
    assert plan([A, B, C], "base", {(A, "base"): ON_BASE}, {}, 1).build is None, (
        "nothing is built that is not checked yet"
    )


def test_what_runs_goes_on_though_there_is_less_room_now() -> None:
    running: dict[str, Verdict] = dict.fromkeys(("base+a", "base+a+b", "base+a+b+c"), "running")
    assert list(plan([A, B, C], "base", CHAIN, running, 1).checks) == list(running)


def test_one_that_is_tried_again_takes_its_room() -> None:
    builds = {**CHAIN, (B, "base"): Built("base+b", "t4", "base")}
    found = plan([A, B], "base", builds, {"base+a": "doubtful"}, 1)
    assert list(found.checks) == ["base+a"] and states(found)["b"] == "queued"


def test_what_is_green_lands_from_the_front_and_needs_no_second_check() -> None:
    assert planned({"base+a+b": "good"}).land is None
    found = planned({"base+a": "good", "base+a+b": "good"})
    assert found.land is not None and found.land.entry == A
    later = plan([B, C], "base+a", CHAIN, {"base+a+b": "good"}, 8)
    assert later.land is not None and later.land.entry == B and list(later.checks) == ["base+a+b+c"]


def test_who_fails_on_a_chain_that_passes_is_the_culprit_and_the_rest_is_built_without_him() -> None:
    found = planned({"base+a": "good", "base+a+b": "bad", "base+a+b+c": "bad"})
    assert [(place.entry, place.state, place.ahead) for place in found.drops] == [(B, "culprit", ("a",))]
    assert found.build == (C, "base+a")


def test_who_fails_on_what_is_not_known_yet_is_not_blamed() -> None:
    found = planned({"base+a": "running", "base+a+b": "bad"})
    assert found.drops == () and states(found)["b"] == "failing" and found.build == (C, "base+a")


def test_nobody_lands_past_one_that_failed_once_but_the_others_are_checked_without_him() -> None:
    builds = {**CHAIN, (B, "base"): Built("base+b", "t4", "base")}
    found = planned({"base+a": "doubtful", "base+b": "good"}, builds)
    assert states(found)["a"] == "doubtful" and found.land is None and found.build == (C, "base+b")
    assert "base+a" in found.checks
    after = planned({"base+a": "bad", "base+b": "good"}, builds)
    assert [place.entry for place in after.drops] == [A] and after.land is not None and after.land.entry == B


def test_a_conflict_with_the_base_is_out_one_with_those_ahead_waits() -> None:
    clash: dict[tuple[Entry, str], Built | Conflicted] = {
        (A, "base"): ON_BASE,
        (B, "base+a"): Conflicted(("f",), "base+a"),
    }
    assert planned({}, clash).build == (B, "base")
    waits = planned({}, {**clash, (B, "base"): Built("base+b", "t4", "base")})
    assert states(waits)["b"] == "clashing" and waits.build == (C, "base+a") and waits.drops == ()
    out = planned({}, {**clash, (B, "base"): Conflicted(("f",), "base")})
    assert [(place.entry, place.state) for place in out.drops] == [(B, "conflict")]


def test_what_is_forced_or_changes_nothing_needs_no_check() -> None:
    forced = Entry("a", "head-a", 0, 0.0, unchecked=True)
    found = plan([forced], "base", {(forced, "base"): ON_BASE}, {}, 8)
    assert found.land is not None and not found.checks
    same = plan([A], "base", {(A, "base"): Built("base", "t0", "base", up_to_date=True)}, {}, 8)
    assert same.land is not None and not same.checks


# -- any queue -------------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Contents are sets of names: two that clash cannot be merged, one that is bad makes everything red that has it."""

    clashes: frozenset[frozenset[str]]
    bad: frozenset[str]
    flaky: frozenset[str]
    builds: dict[tuple[Entry, str], Built | Conflicted] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def merge(self, entry: Entry, on: str) -> Built | Conflicted:
        there = frozenset(filter(None, on.split("+")))
        if any(frozenset({entry.session, other}) in self.clashes for other in there):
            return Conflicted(("f",), on)
        commit = "+".join(sorted(there | {entry.session}))
        return Built(commit, commit, on)

    def check(self, commit: str) -> None:
        """One step of a check: a failure is doubtful first."""
        names = set(commit.split("+"))
        if self.verdicts.get(commit) == "doubtful":
            self.verdicts[commit] = "bad" if names & self.bad else "good"
        else:
            self.verdicts[commit] = "doubtful" if names & (self.bad | self.flaky) else "good"


NAMES = "abcdef"
PAIRS = [frozenset({one, other}) for one in NAMES for other in NAMES if one < other]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(NAMES), unique=True, min_size=1),
    st.frozensets(st.sampled_from(PAIRS), max_size=4),
    st.frozensets(st.sampled_from(NAMES), max_size=3),
    st.frozensets(st.sampled_from(NAMES), max_size=3),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_every_queue_comes_to_its_end_with_exactly_the_bad_ones_out(
    names: list[str],
    clashes: frozenset[frozenset[str]],
    bad: frozenset[str],
    flaky: frozenset[str],
    room: int,
    chance: Random,
    predicted: bool,
) -> None:
    world = World(clashes, bad, flaky)
    queue = {name: Entry(name, name, 0, 400.0 * number) for number, name in enumerate(names)}
    base = ""
    wishes = Ordering()
    landed: list[str] = []
    out: dict[str, str] = {}
    for _ in range(500):
        found = plan(queue.values(), base, world.builds, world.verdicts, room, wishes)
        if predicted:  # by whoever guesses anew at each step
            guesses = {name: frozenset(chance.sample(NAMES, 3)) for name in queue}
            wishes = Ordering(guesses, found.begun)
        if not queue:
            break
        assert len(found.checks) <= room + len(queue)
        for place in found.drops:
            del queue[place.entry.session]
            out[place.entry.session] = place.state
        steps = ["build"] * bool(found.build) + ["land"] * bool(found.land) + ["check"] * bool(found.checks)
        assert steps or found.drops, "a queue that does nothing is a queue that is stuck"
        match chance.choice(steps) if steps and not found.drops else "":
            case "build" if found.build:
                world.builds[found.build] = world.merge(*found.build)
            case "check":
                world.check(chance.choice(list(found.checks)))
            case "land" if found.land and isinstance(found.land.built, Built):
                assert found.land.built.base_before == base and world.verdicts[found.land.built.commit] == "good"
                base = found.land.built.commit
                landed.append(found.land.entry.session)
                del queue[found.land.entry.session]
    assert not queue
    assert sorted([*landed, *out]) == sorted(names), "nobody is lost, nobody lands twice"
    places = [names.index(name) for name in landed]
    for number, first in enumerate(places):
        assert all(first - other < 2 for other in places[number + 1 :]), "nobody is passed by one of a later span"
    assert predicted or places == sorted(places), "in the order in which they asked"
    assert not set(landed) & bad
    for name, state in out.items():
        ahead = [one for one in landed if predicted or names.index(one) < names.index(name)]
        clashing = any(frozenset({name, other}) in world.clashes for other in ahead)
        assert clashing if state == "conflict" else name in bad
