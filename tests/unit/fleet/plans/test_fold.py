"""A plan's life, from its events."""

from __future__ import annotations

from collections.abc import Mapping

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, event_from_json, event_json
from agent_orchestrator.core.facts import HomeFacts
from agent_orchestrator.core.fold.home import reduce_home
from agent_orchestrator.core.plans import Plan, next_plan, plan_number, reduce_plans
from agent_orchestrator.core.store import codec

TASKS = ({"id": "a", "title": "A", "dependencies": []}, {"id": "b", "title": "B", "dependencies": ["a"]})
ASKED = e.PlanRequested("P1", "all", "demo")
DRAFTED = e.PlanDrafted("P1", TASKS, ("n",), 10, 5, 0.5)


def told(*bodies: e.Body, plans: Mapping[str, Plan] | None = None) -> Plan:
    found = plans or {}
    for number, body in enumerate(bodies):
        found = reduce_plans(found, Event(body, 100.0 + number, "person", f"k{number}", "app", seq=number))
    return found["P1"]


def test_the_way_of_a_plan() -> None:
    assert told(ASKED).state == "planning"
    draft = told(ASKED, DRAFTED)
    assert (draft.state, draft.tasks[1].dependencies, draft.notes, draft.spent.usd) == ("draft", ("a",), ("n",), 0.5)
    apply = e.PlanApplyRequested("P1", start=False, group_limit=3)
    applying = told(ASKED, DRAFTED, apply)
    assert (applying.state, applying.start, applying.group_limit, applying.applied_at) == ("applying", False, 3, 102.0)
    done = told(ASKED, DRAFTED, apply, e.PlanApplied("P1", {"a": 1, "b": 2}))
    assert (done.state, done.issues) == ("applied", {"a": 1, "b": 2})
    again = told(ASKED, DRAFTED, apply, e.PlanRefused("P1", "no"))
    assert (again.state, again.error) == ("draft", "no")
    assert told(ASKED, e.PlanFailed("P1", "no", 3)).error == "no"


def test_what_comes_too_late_changes_nothing() -> None:
    gone = told(ASKED, e.PlanDiscarded("P1"))
    assert told(ASKED, e.PlanDiscarded("P1"), DRAFTED, e.PlanApplyRequested("P1")) == gone
    apply, applied = e.PlanApplyRequested("P1"), e.PlanApplied("P1", {"a": 1})
    done = told(ASKED, DRAFTED, apply, applied)
    late = (e.PlanChanged("P1", TASKS[:1]), e.PlanDiscarded("P1"), e.PlanFailed("P1", "x"), e.PlanApplyRequested("P1"))
    assert told(ASKED, DRAFTED, apply, applied, *late) == done
    assert told(ASKED, e.PlanRequested("P1", "another")).goal == "all"
    assert reduce_plans({}, Event(DRAFTED, 0.0, "x", "k")) == {}


def test_numbers() -> None:
    plan = told(ASKED)
    assert (next_plan({}), next_plan({"P1": plan, "P9": plan, "odd": plan}), plan_number("P²")) == ("P1", "P10", 0)


def test_marks_differ_between_homes() -> None:
    one, other = (
        reduce_plans({}, Event(ASKED, 0.0, "person", key, "app"))["P1"].token for key in ("plan:app:1", "plan:app:2")
    )
    assert one != other


def test_facts_and_events_survive_being_written() -> None:
    home = HomeFacts()
    for number, body in enumerate((ASKED, DRAFTED, e.PlanApplyRequested("P1"), e.PlanApplied("P1", {"a": 1}))):
        event = Event(body, 100.0, "person", f"k{number}", "app")
        assert event_from_json(event_json(event)).body == body
        home = reduce_home(home, event)
    assert codec.load(HomeFacts, codec.dump(home)) == home
