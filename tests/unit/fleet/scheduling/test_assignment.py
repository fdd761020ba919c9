"""Assignment of issues: order, profile, and reasons for waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_orchestrator.config.config_set import ParallelLimit
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Failure, SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.issues import Issue, PlanEntry
from agent_orchestrator.fleet.scheduling.issue_assignment import (
    AssignmentEntry,
    CoordinatorDemand,
    ProjectTeam,
    plan_assignments,
)
from agent_orchestrator.fleet.scheduling.profile_match import IssueTaker
from tests.unit.core.world import created

FRONT = IssueTaker("front", labels=("ui", "css"), excluded_labels=("api",))
BACK = IssueTaker("back", labels=("api", "db"))
ANY = IssueTaker("any")
TEAM = ProjectTeam("app", (FRONT, BACK, ANY), is_automatic=True)


def issue(number: int, *labels: str, project: str = "app", **more: object) -> Issue:
    base = Issue(number, project, f"issue {number}", 1000.0, 1000.0, labels=labels)
    return replace(base, **more)  # type: ignore[arg-type]


def session(name: str, number: int = 0, profile: str | None = None, project: str = "app") -> SessionFacts:
    event = created(f"{project}-{name}", issue=str(number) if number else None, profile=profile)
    facts = reduce(None, replace(event, project=project))
    assert facts is not None
    return facts


def planned(
    *issues: Issue,
    sessions: tuple[SessionFacts, ...] = (),
    team: ProjectTeam = TEAM,
    limits: tuple[ParallelLimit, ...] = (),
) -> list[tuple[int, str | None, tuple[str, ...]]]:
    entries = plan_assignments({f"{item.project}#{item.number}": item for item in issues}, sessions, [team], limits)
    return [(entry.issue.number, entry.taker, entry.reasons) for entry in entries]


def test_ready_issues_come_first_with_their_profile() -> None:
    assert planned(
        issue(1, "ui", after=(3,)), issue(2, "api"), issue(3), issue(4, "ui", state="closed"), issue(5, project="other")
    ) == [(2, "back", ()), (3, "any", ()), (1, "front", ("issue 3 is open",))]


def test_every_reason_for_waiting_is_named() -> None:
    stopped = reduce(session("old", 2), Event(e.SessionStopped(), 1001.0, "daemon", "s", "app", "app-old"))
    assert stopped is not None
    rows = planned(
        issue(1),
        issue(2, assignee="app-old"),
        issue(3, assignee="bob"),
        issue(4, author="eve", write_access="no"),
        issue(5, after=(1, 3), assignee="bob"),
        sessions=(session("one", 1, "back"), stopped),
    )
    assert rows == [
        (1, "back", ("app-one works on it",)),
        (2, "any", ("app-old has attempted it: try again by ao new 2",)),
        (3, "any", ("it is assigned to bob",)),
        (4, "any", ("it needs your word (words of eve, who may not write to the repository): ao new 4",)),
        (5, "any", ("issues 1 and 3 are open", "it is assigned to bob")),
    ]
    team = replace(TEAM, takers=(FRONT,), trusted_authors=("eve",))
    assert planned(issue(1), issue(2, "ui", "api"), issue(3, "ui", write_access="no", author="Eve"), team=team) == [
        (3, "front", ()),
        (1, None, ("no profile takes work without labels",)),
        (2, None, ("no profile takes its labels (ui, api)",)),
    ]


def test_without_auto_assign_issues_are_ready_on_request() -> None:
    entries = plan_assignments(
        {"app#1": issue(1), "app#2": issue(2, after=(1,))}, [], [replace(TEAM, is_automatic=False)]
    )
    assert [(entry.is_ready, entry.reasons) for entry in entries] == [
        (True, ("autoAssign is off: take it by ao new 1",)),
        (False, ("issue 1 is open",)),
    ]


def test_slots_are_assigned_in_order_and_waiting_sessions_count() -> None:
    limits = (ParallelLimit(frozenset({"app"}), 2, "file"),)
    queued = session("first", profile="any")
    rows = planned(issue(1), issue(2), issue(3), sessions=(queued,), limits=limits)
    assert rows == [
        (1, "any", ()),
        (2, "any", ("no place is free (2 of 2 taken)",)),
        (3, "any", ("no place is free (2 of 2 taken)",)),
    ]
    of_profile = (ParallelLimit(frozenset({"app"}), 1, "file", "front"),)
    team = replace(TEAM, takers=(FRONT, ANY))
    assert planned(issue(1, "ui"), issue(2, "ui"), issue(3), team=team, limits=of_profile) == [
        (1, "front", ()),
        (3, "any", ()),
        (2, "front", ("no place is free for front (1 of 1 taken)",)),
    ]


def test_equal_profiles_share_the_issues() -> None:
    team = ProjectTeam("app", (IssueTaker("b"), IssueTaker("a")), is_automatic=True)
    assert [by for _, by, _ in planned(*map(issue, range(1, 6)), team=team)] == ["a", "b", "a", "b", "a"]
    busy = session("x", profile="a")
    assert [by for _, by, _ in planned(issue(1), issue(2), sessions=(busy,), team=team)] == ["b", "a"]


def test_an_entry_is_ready_if_only_a_request_is_missing() -> None:
    assert (
        AssignmentEntry(issue(1), "a").is_ready
        and AssignmentEntry(issue(1), "a", reasons=("x",), is_requested=True).is_ready
    )
    assert not AssignmentEntry(issue(1), "a", reasons=("x",)).is_ready


def test_a_session_waiting_for_something_else_uses_no_slot() -> None:
    limits = (ParallelLimit(frozenset({"app"}), 1, "file"),)
    held = replace(session("held"), waiting_for="app-a to be done")
    assert planned(issue(1), sessions=(held,), limits=limits) == [(1, "any", ())]
    turn = replace(held, waiting_for="a free place", slot_wait_since=1.0)
    assert planned(issue(1), sessions=(turn,), limits=limits)[0][2] == ("no place is free (1 of 1 taken)",)


def task(number: int, priority: int = 0, *, start: bool = True, **more: Any) -> Issue:
    return issue(number, plan_entry=PlanEntry("P1", f"t{number}", priority=priority, start=start), **more)


def test_issues_of_a_plan_are_started_by_priority() -> None:
    team = replace(TEAM, is_automatic=False)
    entries = plan_assignments(
        {f"app#{item.number}": item for item in (task(1), task(2, 5), task(3, start=False))}, [], [team]
    )
    assert [(entry.issue.number, entry.is_requested, entry.reasons) for entry in entries] == [
        (2, False, ()),
        (1, False, ()),
        (3, True, ("autoAssign is off: take it by ao new 3",)),
    ]


def test_a_plan_limits_its_parallel_sessions() -> None:
    issues = {f"app#{number}": task(number) for number in (1, 2, 3)}
    busy = replace(session("x"), spec=replace(session("x").spec, group="P1"))
    entries = plan_assignments(issues, [busy], [TEAM], group_limits={"P1": 2})
    full = ("no place is free in P1 (2 of 2 taken)",)
    assert [(entry.issue.number, entry.reasons) for entry in entries] == [(1, ()), (2, full), (3, full)]


def test_a_coordinator_has_a_limit_of_sessions() -> None:
    issues = {f"app#{number}": task(number) for number in (1, 2, 3)} | {"app#4": issue(4)}
    demand = CoordinatorDemand(dict.fromkeys(("app#1", "app#2", "app#3"), "app-coordinator"), {"app-coordinator": 2})
    entries = plan_assignments(issues, [], [TEAM], demand=demand)
    full = ("app-coordinator has as many unfinished sessions as it may have",)
    assert [(entry.issue.number, entry.parent, entry.reasons) for entry in entries] == [
        (1, "app-coordinator", ()),
        (2, "app-coordinator", ()),
        (4, None, ()),
        (3, "app-coordinator", full),
    ]
    without_auto = plan_assignments(
        issues,
        [],
        [replace(TEAM, is_automatic=False)],
        demand=CoordinatorDemand(dict.fromkeys(issues, "app-coordinator")),
    )
    assert {entry.issue.number: entry.is_ready for entry in without_auto}[4], "a person may always ask for it"


def test_projects_share_the_slots() -> None:
    issues = {f"{name}#{number}": issue(number, project=name) for name in ("app", "zoo") for number in (1, 2, 3)}
    limits = (ParallelLimit(frozenset({"app", "zoo"}), 4, "file"),)
    entries = plan_assignments(issues, [], [TEAM, replace(TEAM, project="zoo")], limits)
    ready = [(entry.issue.project, entry.issue.number) for entry in entries if entry.is_ready]
    assert ready == [("app", 1), ("zoo", 1), ("app", 2), ("zoo", 2)]


def test_a_refused_issue_uses_no_slot() -> None:
    limits = (ParallelLimit(frozenset({"app"}), 1, "file"),)
    issues = {"app#1": issue(1), "app#2": issue(2)}
    entries = plan_assignments(issues, [], [TEAM], limits, refused={"app#1": "there is no runtime docker"})
    assert [(entry.issue.number, entry.reasons) for entry in entries] == [(2, ()), (1, ("there is no runtime docker",))]


def test_the_outcome_of_an_earlier_session_is_named() -> None:
    stopped = reduce(session("old", 1), Event(e.SessionStopped(), 1001.0, "daemon", "s", "app", "app-old"))
    assert stopped is not None
    waits = "issue 1 is open: app-old was stopped without landing"
    rows = planned(issue(1), issue(2, after=(1,)), sessions=(stopped,))
    assert (2, "any", (waits,)) in rows
    again = replace(session("new", 1), created_at=2000.0)
    assert (2, "any", ("issue 1 is open",)) in planned(issue(1), issue(2, after=(1,)), sessions=(stopped, again))


def test_a_waiting_session_of_an_issue_names_its_reason() -> None:
    queued = replace(session("one", 1, "back"), waiting_for="a free place (1 of 1 agents at work)")
    [(_, _, reasons)] = planned(issue(1), sessions=(queued,))
    assert reasons == ("app-one is to work on it and waits for a free place (1 of 1 agents at work)",)
    failed = replace(session("one", 1), failure=Failure("preparing", "no space", "", 1.0))
    [(_, _, reasons)] = planned(issue(1), sessions=(failed,))
    assert reasons == ("app-one failed at preparing: bring it back by ao restore app-one, or stop it",)


def test_an_entry_names_what_its_profile_matched() -> None:
    entries = plan_assignments({"app#1": issue(1, "ui"), "app#2": issue(2)}, [], [TEAM])
    assert {entry.issue.number: entry.match_reason for entry in entries} == {1: "labels ui", 2: "it takes any work"}
    own = ProjectTeam("app", (IssueTaker("demo", is_profile=False),))
    [entry] = plan_assignments({"app#1": issue(1)}, [], [own])
    assert (entry.taker, entry.is_profile, entry.match_reason) == ("demo", False, "it is the project's agent")
