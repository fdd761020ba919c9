"""Admission of sessions: limits, dependencies, order, gates; and simulations of whole fleets."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent_orchestrator.config.config_set import ParallelLimit
from agent_orchestrator.core.dependencies import failure_text, is_done, is_over
from agent_orchestrator.core.facts import Failure, Launch, SessionFacts, SessionWorkspace
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.fleet.scheduling.issue_assignment import ProjectTeam, plan_assignments
from agent_orchestrator.fleet.scheduling.profile_match import IssueTaker
from agent_orchestrator.fleet.scheduling.start_decision import (
    MEMORY_BYTES_PER_START,
    MIN_FREE_DISK_BYTES,
    MIN_FREE_MEMORY_BYTES,
    SECONDS_PER_PRIORITY_POINT,
    FreeResources,
    StartDecision,
    decide_starts,
)
from tests.unit.call_counts import count_calls
from tests.unit.core.test_admission_and_views import PLENTY, waiting_session, working_session


def limit(count: int, *projects: str, **more: Any) -> ParallelLimit:
    return ParallelLimit(frozenset(projects or ("app",)), count, "file", **more)


def in_project(project: str, facts: SessionFacts) -> SessionFacts:
    return replace(facts, project=project)


def busy(name: str, **spec: Any) -> SessionFacts:
    facts = working_session(name)
    return replace(facts, spec=replace(facts.spec, **spec))


def on_node(node: str | None, facts: SessionFacts) -> SessionFacts:
    return replace(facts, spec=replace(facts.spec, runtime="ray"), node=node)


def started_sessions(verdicts: Sequence[StartDecision]) -> list[str]:
    return [verdict.session for verdict in verdicts if not verdict.reason]


def reasons_by_session(verdicts: Sequence[StartDecision]) -> dict[str, str]:
    return {verdict.session: verdict.reason for verdict in verdicts if verdict.reason}


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_profile_has_its_own_limit() -> None:
    sessions = [
        busy("a", profile="front"),
        waiting_session("b", 1.0, profile="front"),
        waiting_session("c", 2.0, profile="back"),
    ]
    decisions = decide_starts(sessions, [limit(1, profile="front")], PLENTY)
    assert started_sessions(decisions) == ["c"]
    assert reasons_by_session(decisions) == {"b": "a free place for front (1 of 1 agents at work)"}


def test_a_machine_has_its_own_limit() -> None:
    there = [
        on_node("n1", busy("b")),
        on_node("n1", waiting_session("d", 2.0)),
        on_node("n1", waiting_session("f", 4.0)),
    ]
    sessions = [busy("a"), *there, waiting_session("c", 1.0), waiting_session("e", 3.0)]
    decisions = decide_starts(sessions, [limit(2, machine=True)], PLENTY)
    assert started_sessions(decisions) == ["c", "d"]
    assert reasons_by_session(decisions) == {
        "e": "a free place on this machine (2 of 2 agents at work)",
        "f": "a free place on n1 (2 of 2 agents at work)",
    }


def test_a_session_for_a_node_needs_no_resources_of_this_machine() -> None:
    """It needs neither memory nor a slot here; the resources of nodes are considered when a node is chosen."""
    sessions = [
        on_node(None, waiting_session("a", 1.0)),
        on_node("n1", waiting_session("b", 2.0)),
        waiting_session("c", 3.0),
    ]
    decisions = decide_starts(
        sessions, [limit(1, machine=True)], FreeResources(0, 0), gates=[lambda facts, _: f"a node for {facts.id}"]
    )
    assert reasons_by_session(decisions)["a"] == "a node for a" and reasons_by_session(decisions)["b"] == "a node for b"
    assert reasons_by_session(decisions)["c"].startswith("memory")


def test_a_group_has_the_limit_of_its_members() -> None:
    group = {"group": "P1", "group_limit": 2}
    sessions = [
        busy("a", **group),
        waiting_session("b", 1.0, **group),
        waiting_session("c", 2.0, **group),
        waiting_session("d", 3.0, group="P2"),
    ]
    decisions = decide_starts(sessions, [], PLENTY)
    assert started_sessions(decisions) == ["b", "d"] and reasons_by_session(decisions) == {
        "c": "a free place in P1 (2 of 2 agents at work)"
    }


def test_every_limit_must_allow_a_start() -> None:
    limits = [limit(3, "app", "zoo"), limit(1, "zoo")]
    sessions = [
        in_project("zoo", waiting_session("a", 1.0)),
        in_project("zoo", waiting_session("b", 2.0)),
        waiting_session("c", 3.0),
        waiting_session("d", 4.0),
    ]
    assert started_sessions(decide_starts(sessions, limits, PLENTY)) == ["a", "c", "d"]


# -- who goes first ----------------------------------------------------------------------------------------------------


def test_the_project_with_the_fewest_agents_is_next() -> None:
    crowd = [waiting_session(f"a{number}", float(number)) for number in range(50)]
    late = [in_project("zoo", waiting_session(f"z{number}", 100.0 + number)) for number in range(3)]
    decisions = decide_starts([*crowd, *late], [limit(4, "app", "zoo")], PLENTY)
    assert started_sessions(decisions) == ["a0", "z0", "a1", "z1"]
    working = [in_project("app", working_session(f"w{number}")) for number in range(3)]
    decisions = decide_starts([*working, *crowd, *late], [limit(5, "app", "zoo")], PLENTY)
    assert started_sessions(decisions) == ["z0", "z1"], "those at work count"


def test_a_higher_priority_counts_before_fairness() -> None:
    sessions = [
        in_project("zoo", working_session("w")),
        waiting_session("a"),
        in_project("zoo", waiting_session("z", 5.0, priority=1)),
    ]
    assert started_sessions(decide_starts(sessions, [limit(2, "app", "zoo")], PLENTY)) == ["z"]


def test_a_long_wait_overtakes_higher_priorities() -> None:
    old = replace(waiting_session("old", 1.0), slot_wait_since=1000.0)
    urgent = [replace(waiting_session(f"u{number}", 2.0, priority=3), slot_wait_since=1000.0) for number in range(9)]
    sessions = [*urgent, old]
    for waited, first in (
        (0.0, "u0"),
        (2.9 * SECONDS_PER_PRIORITY_POINT, "u0"),
        (3 * SECONDS_PER_PRIORITY_POINT, "old"),
        (1e9, "old"),
    ):
        assert started_sessions(decide_starts(sessions, [limit(1)], PLENTY, now=1000.0 + waited)) == [first]
    assert started_sessions(decide_starts(sessions, [limit(1)], PLENTY, now=0.0)) == ["u0"], "a clock that went back"


def test_waiting_time_does_not_override_fairness() -> None:
    crowd = [replace(waiting_session(f"a{number}", float(number)), slot_wait_since=1.0) for number in range(9)]
    late = in_project("zoo", replace(waiting_session("z", 50.0), slot_wait_since=1e6))
    assert started_sessions(decide_starts([*crowd, late], [limit(2, "app", "zoo")], PLENTY, now=1e6)) == ["a0", "z"]


def test_a_decision_says_whether_only_a_slot_is_missing() -> None:
    sessions = [working_session("w"), waiting_session("a", 1.0), waiting_session("b", 2.0, after=("w",))]
    assert {decision.session: decision.waits_for_turn for decision in decide_starts(sessions, [limit(1)], PLENTY)} == {
        "a": True,
        "b": False,
    }


# -- memory, disk, gates -----------------------------------------------------------------------------------------------


def test_memory_is_reserved_for_sessions_about_to_start() -> None:
    sessions = [waiting_session(f"s{number}", float(number)) for number in range(50)]
    free = FreeResources(MIN_FREE_MEMORY_BYTES + 3 * MEMORY_BYTES_PER_START, 1 << 40)
    decisions = decide_starts(sessions, [], free)
    assert started_sessions(decisions) == ["s0", "s1", "s2", "s3"]
    assert decisions[4].reason == "memory (2048 MB free, 4 about to start)"
    starting = replace(waiting_session("x"), admitted=True)
    assert len(started_sessions(decide_starts([starting, *sessions], [], free))) == 3, (
        "one that was let in before has not taken its own"
    )
    assert len(started_sessions(decide_starts([working_session("y"), *sessions], [], free))) == 4, "one that runs has"
    scarce = decide_starts(sessions, [], FreeResources(1 << 40, MIN_FREE_DISK_BYTES))
    assert len(started_sessions(scarce)) == 1 and "disk space" in scarce[1].reason


def test_a_deferred_session_without_a_task_needs_no_resources() -> None:
    sessions = [working_session("a"), waiting_session("named", 1.0, defer=True, prompt="")]
    assert started_sessions(decide_starts(sessions, [limit(1)], FreeResources(0, 0))) == ["named"]


def test_a_gate_sees_the_admitted_sessions_and_may_hold_others() -> None:
    gate_calls: list[tuple[str, list[str]]] = []

    def gate(facts: SessionFacts, working: Sequence[SessionFacts]) -> str:
        gate_calls.append((facts.id, [other.id for other in working]))
        return "the limit of work to end" if facts.spec.account == "work" else ""

    sessions = [
        working_session("a"),
        waiting_session("b", 1.0),
        waiting_session("c", 2.0, account="work"),
        waiting_session("d", 3.0),
        waiting_session("e", 4.0),
    ]
    decisions = decide_starts(sessions, [limit(3)], PLENTY, gates=[gate])
    assert started_sessions(decisions) == ["b", "d"], "one that is held takes no place"
    assert reasons_by_session(decisions)["c"] == "the limit of work to end"
    assert gate_calls == [("b", ["a"]), ("c", ["a", "b"]), ("d", ["a", "b"])]


# -- what comes after what ---------------------------------------------------------------------------------------------

CHANGED: dict[str, Any] = {"workspace": SessionWorkspace("/w", "base", "/w/.git"), "head": "mine"}
BADLY = Launch(1, {}, 1.0, ended=True, code=1)


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({}, ""),
        ({"stopped": True}, "first was stopped without landing"),
        ({"stopped": True, **CHANGED}, "first was stopped without landing"),
        ({"stopped": True, **CHANGED, "pr": PullRequest(1, "x", "main")}, "first was stopped without landing"),
        ({**CHANGED, "pr": PullRequest(1, "x", "main", state="closed")}, "the pull request of first was closed"),
        ({"stopped": True, **CHANGED, "pr": PullRequest(1, "x", "main", state="merged")}, ""),
        ({"launch": BADLY}, "first failed"),
        ({"launch": replace(BADLY, code=None, signal=9)}, "first failed"),
        ({"launch": replace(BADLY, code=0)}, ""),
        ({"launch": replace(BADLY, code=None, loss_reason="the machine was restarted")}, ""),
        ({"launch": replace(BADLY, stopped=True)}, ""),
        ({"failure": Failure("preparing", "no space", "", 1.0)}, "first failed at preparing"),
        ({"launch": BADLY, "run": 2, "launched_run": 1}, ""),
        ({"requested_state": "stop"}, ""),
        ({"done_summary": "all", "stopped": True}, ""),
    ],
)
def test_a_dependency_without_a_merge_keeps_others_waiting(changes: dict[str, Any], failure: str) -> None:
    first, last = replace(working_session("first"), **changes), waiting_session("last", after=("first",))
    assert failure_text(first) == failure
    assert not (failure and is_done(first))
    [verdict] = decide_starts([first, last], [], PLENTY)
    if failure:
        assert verdict.reason == f"your word: {failure}"
        assert decide_starts([first, replace(last, waived_dependencies=("first",))], [], PLENTY) == [
            StartDecision("last")
        ], "a person's word"
    else:
        assert verdict.reason == ("" if is_done(first) else "first to be done")


def test_a_review_is_done_when_it_is_stopped() -> None:
    review = busy("r", kind="reviewer")
    assert not is_done(review) and is_done(replace(review, stopped=True))
    assert is_over(replace(working_session("a"), stopped=True)) and not is_over(working_session("a"))


def test_a_stacked_session_starts_on_a_stopped_but_not_on_a_closed_change() -> None:
    last = waiting_session("last", after=("first",), stack="first", base="b")
    last = replace(last, base="b")
    first = replace(working_session("first"), stopped=True, **CHANGED, pr=PullRequest(1, "x", "main", draft=False))
    assert last.stacked and decide_starts([first, last], [], PLENTY) == [StartDecision("last")]
    closed = replace(first, pr=PullRequest(1, "x", "main", state="closed"))
    assert decide_starts([closed, last], [], PLENTY) == [
        StartDecision("last", "your word: the pull request of first was closed")
    ]
    empty = replace(working_session("first"), stopped=True)
    assert reasons_by_session(decide_starts([empty, last], [], PLENTY)) == {
        "last": "your word: first was stopped without landing"
    }


# -- the whole ---------------------------------------------------------------------------------------------------------

SLOTS = 8


class World:
    """A simulation of thirty tasks with random dependencies and durations; the clock jumps from end to end."""

    def __init__(self, seed: int, tasks: int = 30) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.ends: dict[str, float] = {}
        self.most = 0
        names = [f"t{number:02}" for number in range(tasks)]
        self.sessions = {}
        for number, name in enumerate(names):
            before = self.random.sample(names[:number], self.random.randint(0, min(number, 3)))
            facts = waiting_session(
                name, float(number), after=tuple(before), priority=self.random.choice((0, 0, 0, 1, 5))
            )
            self.sessions[name] = in_project(self.random.choice(("app", "zoo")), facts)
        self.files = {name: frozenset(self.random.sample("abcdefgh", self.random.randint(0, 2))) for name in names}

    def eligible(self) -> list[str]:
        return [
            name
            for name, facts in self.sessions.items()
            if not facts.admitted and all(is_done(self.sessions[other]) for other in facts.spec.after)
        ]

    def play(self) -> None:
        while not all(is_done(facts) for facts in self.sessions.values()):
            verdicts = decide_starts(
                [*self.sessions.values()], [limit(SLOTS, "app", "zoo")], PLENTY, expected=self.files
            )
            for name in started_sessions(verdicts):
                facts = self.sessions[name]
                assert all(is_done(self.sessions[other]) for other in facts.spec.after), f"{name} was let in too early"
                launch = Launch(1, {}, self.now)
                activity = replace(facts.activity, state="active")
                self.sessions[name] = replace(facts, admitted=True, launch=launch, launched_run=1, activity=activity)
                self.ends[name] = self.now + self.random.expovariate(1.0)
            self.most = max(self.most, len(self.ends))
            assert len(self.ends) <= SLOTS
            assert len(self.ends) == SLOTS or not self.eligible(), "a slot is free although a session is eligible"
            assert self.ends, "no agent is working although tasks remain"
            name = min(self.ends, key=lambda session: self.ends[session])
            self.now = self.ends.pop(name)
            facts = self.sessions[name]
            assert facts.launch is not None
            ended = replace(facts.launch, ended=True, code=0)
            self.sessions[name] = replace(facts, launch=ended, activity=replace(facts.activity, state="exited"))


@pytest.mark.parametrize("part", range(5))
def test_no_slot_is_idle_and_no_session_starts_too_early(part: int) -> None:
    most = []
    for seed in range(100):
        world = World(part * 100 + seed)
        world.play()
        most.append(world.most)
    assert max(most) == SLOTS


def crowd(count: int) -> list[SessionFacts]:
    queued = [
        in_project(
            f"p{number % 7}",
            waiting_session(f"s{number}", float(number), after=(f"s{number - 1}",) if number % 3 else ()),
        )
        for number in range(count)
    ]
    return [in_project("p0", working_session("w")), *queued]


def test_a_decision_takes_time_proportional_to_the_waiting_sessions() -> None:
    limits = [limit(4, *(f"p{number}" for number in range(7))), limit(2, "p1"), limit(3, "p2", profile="x")]

    def decision(count: int) -> int:
        sessions = crowd(count)
        files = {facts.id: frozenset({f"f{index % 50}"}) for index, facts in enumerate(sessions)}
        return count_calls(lambda: decide_starts(sessions, limits, PLENTY, expected=files))

    small, large = decision(200), decision(1000)
    assert large < 6 * small


def test_reading_the_backlog_takes_time_proportional_to_its_issues() -> None:
    def calls_for(count: int) -> int:
        issues = {f"app#{number}": Issue(number, "app", f"i{number}", 1.0, 1.0) for number in range(1, count + 1)}
        sessions = [waiting_session(f"s{number}", issue=str(number)) for number in range(1, count, 2)]
        team = ProjectTeam("app", (IssueTaker("a", labels=("x",)), IssueTaker("b")), is_automatic=True)
        return count_calls(lambda: plan_assignments(issues, sessions, [team], [limit(8)]))

    small, large = calls_for(200), calls_for(1000)
    assert large < 6 * small


def test_slots_are_shared_evenly_over_time() -> None:
    """Of three projects one has ten times the work; while all have work, each gets a third of the slots."""
    starts: Counter[str] = Counter()
    queues = {"a": 100, "b": 10, "c": 10}
    sessions = [
        in_project(name, waiting_session(f"{name}{number}", float(number)))
        for name, count in queues.items()
        for number in range(count)
    ]
    for _ in range(10):
        for name in started_sessions(decide_starts(sessions, [limit(3, "a", "b", "c")], PLENTY)):
            starts[name[0]] += 1
            sessions = [facts for facts in sessions if facts.id != name]
    assert starts == {"a": 10, "b": 10, "c": 10}
