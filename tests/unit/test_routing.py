"""Which profile takes which issue, in which order, and why not yet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.config.scope import Limit
from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.events import Event
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.fold import reduce
from agent_orchestrator.flow.pull import Issue
from agent_orchestrator.services.routing import Entry, Taker, Team, choose, match, plan
from tests.unit.flow.test_facts_properties import ALL
from tests.unit.flow.world import created

FRONT = Taker("front", labels=("ui", "css"), excluded=("api",))
BACK = Taker("back", labels=("api", "db"))
ANY = Taker("any")
TEAM = Team("app", (FRONT, BACK, ANY), auto=True)


@pytest.mark.parametrize(
    ("labels", "load", "name"),
    [
        ((), {}, "any"),
        (("ui",), {}, "front"),
        (("UI", "css"), {}, "front"),
        (("ui", "api"), {}, "back"),
        (("docs",), {}, "any"),
        (("ui", "db"), {}, "back"),
        (("ui", "db"), {"back": 2, "front": 1}, "front"),
        (("ui", "css", "db"), {"front": 9}, "front"),
    ],
)
def test_the_best_match_takes_it(labels: tuple[str, ...], load: dict[str, int], name: str) -> None:
    chosen = choose(TEAM.takers, labels, load)
    assert chosen is not None and chosen.name == name
    assert choose(reversed(TEAM.takers), labels, load) == chosen


@ALL
@given(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")))
def test_what_is_excluded_is_never_taken_and_what_is_named_is_there(
    labels: set[str], wanted: set[str], excluded: set[str]
) -> None:
    fit = match(Taker("x", labels=tuple(wanted), excluded=tuple(excluded)), labels)
    if excluded & labels or (wanted and not wanted & labels):
        assert fit is None
    else:
        assert fit == len(wanted & labels)


def issue(number: int, *labels: str, project: str = "app", **more: object) -> Issue:
    made = Issue(number, project, f"issue {number}", 1000.0, 1000.0, labels=labels)
    return replace(made, **more)  # type: ignore[arg-type]


def session(name: str, number: int = 0, profile: str | None = None, project: str = "app") -> SessionFacts:
    made = created(f"{project}-{name}", issue=str(number) if number else None, profile=profile)
    facts = reduce(None, replace(made, project=project))
    assert facts is not None
    return facts


def planned(
    *issues: Issue, sessions: tuple[SessionFacts, ...] = (), team: Team = TEAM, limits: tuple[Limit, ...] = ()
) -> list[tuple[int, str | None, tuple[str, ...]]]:
    found = plan({f"{one.project}#{one.number}": one for one in issues}, sessions, [team], limits)
    return [(entry.issue.number, entry.taker, entry.reasons) for entry in found]


def test_what_may_be_taken_comes_first_each_by_its_profile() -> None:
    assert planned(
        issue(1, "ui", after=(3,)), issue(2, "api"), issue(3), issue(4, "ui", state="closed"), issue(5, project="other")
    ) == [(2, "back", ()), (3, "any", ()), (1, "front", ("issue 3 is open",))]


def test_each_reason_is_told() -> None:
    stopped = reduce(session("old", 2), Event(e.SessionStopped(), 1001.0, "daemon", "s", "app", "app-old"))
    assert stopped is not None
    found = planned(
        issue(1),
        issue(2, assignee="app-old"),
        issue(3, assignee="bob"),
        issue(4, author="eve", write_access="no"),
        issue(5, after=(1, 3), assignee="bob"),
        sessions=(session("one", 1, "back"), stopped),
    )
    assert found == [
        (1, "back", ("app-one works on it",)),
        (2, "any", ("app-old has attempted it: try again by ao new 2",)),
        (3, "any", ("it is assigned to bob",)),
        (4, "any", ("it needs your word (words of eve, who may not write to the repository): ao new 4",)),
        (5, "any", ("issue 1 is open", "issue 3 is open", "it is assigned to bob")),
    ]
    team = replace(TEAM, takers=(FRONT,), trusted=("eve",))
    assert planned(issue(1), issue(2, "ui", "api"), issue(3, "ui", write_access="no", author="Eve"), team=team) == [
        (3, "front", ()),
        (1, None, ("no profile takes work without labels",)),
        (2, None, ("no profile takes its labels (ui, api)",)),
    ]


def test_without_auto_assign_everything_waits_to_be_asked_for_and_is_ready() -> None:
    entries = plan({"app#1": issue(1), "app#2": issue(2, after=(1,))}, [], [replace(TEAM, auto=False)])
    assert [(entry.ready, entry.reasons) for entry in entries] == [
        (True, ("autoAssign is off: take it by ao new 1",)),
        (False, ("issue 1 is open",)),
    ]


def test_places_are_given_in_order_and_what_waits_for_a_place_takes_one() -> None:
    limits = (Limit(frozenset({"app"}), 2, "file"),)
    queued = session("first", profile="any")
    found = planned(issue(1), issue(2), issue(3), sessions=(queued,), limits=limits)
    assert found == [
        (1, "any", ()),
        (2, "any", ("no place is free (2 of 2 taken)",)),
        (3, "any", ("no place is free (2 of 2 taken)",)),
    ]
    team = replace(TEAM, takers=(replace(FRONT, limit=1), ANY))
    assert planned(issue(1, "ui"), issue(2, "ui"), issue(3), team=team) == [
        (1, "front", ()),
        (3, "any", ()),
        (2, "front", ("no place is free for front (1 of 1 taken)",)),
    ]


def test_equals_share_the_work() -> None:
    team = Team("app", (Taker("b"), Taker("a")), auto=True)
    assert [by for _, by, _ in planned(*map(issue, range(1, 6)), team=team)] == ["a", "b", "a", "b", "a"]
    busy = session("x", profile="a")
    assert [by for _, by, _ in planned(issue(1), issue(2), sessions=(busy,), team=team)] == ["b", "a"]


def test_an_entry_is_ready_when_nothing_but_a_word_is_missing() -> None:
    assert Entry(issue(1), "a").ready and Entry(issue(1), "a", reasons=("x",), asked=True).ready
    assert not Entry(issue(1), "a", reasons=("x",)).ready
