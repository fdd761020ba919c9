"""The state of a plan, folded from its events."""

from __future__ import annotations

from collections.abc import Mapping

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, event_from_json, event_json
from agent_orchestrator.core.facts import HomeFacts
from agent_orchestrator.core.fold.home import reduce_home
from agent_orchestrator.core.plans import Plan, next_plan_id, plan_number, reduce_plans
from agent_orchestrator.core.store import codec

TASKS = ({"id": "a", "title": "A", "dependencies": []}, {"id": "b", "title": "B", "dependencies": ["a"]})
REQUESTED = e.PlanRequested("P1", "all", "demo")
DRAFTED = e.PlanDrafted("P1", TASKS, ("n",), 10, 5, 0.5)


def plan_after(*bodies: e.Body, plans: Mapping[str, Plan] | None = None) -> Plan:
    folded = plans or {}
    for number, body in enumerate(bodies):
        folded = reduce_plans(folded, Event(body, 100.0 + number, "person", f"k{number}", "app", seq=number))
    return folded["P1"]


def test_the_states_of_a_plan_follow_its_events() -> None:
    assert plan_after(REQUESTED).state == "planning"
    draft = plan_after(REQUESTED, DRAFTED)
    assert (draft.state, draft.tasks[1].dependencies, draft.notes, draft.usage.usd) == ("draft", ("a",), ("n",), 0.5)
    apply = e.PlanApplyRequested("P1", start=False, group_limit=3)
    applying = plan_after(REQUESTED, DRAFTED, apply)
    assert (applying.state, applying.start, applying.group_limit, applying.applied_at) == ("applying", False, 3, 102.0)
    done = plan_after(REQUESTED, DRAFTED, apply, e.PlanApplied("P1", {"a": 1, "b": 2}))
    assert (done.state, done.issues) == ("applied", {"a": 1, "b": 2})
    again = plan_after(REQUESTED, DRAFTED, apply, e.PlanRefused("P1", "no"))
    assert (again.state, again.error) == ("draft", "no")
    assert plan_after(REQUESTED, e.PlanFailed("P1", "no", 3)).error == "no"


def test_late_events_change_nothing() -> None:
    gone = plan_after(REQUESTED, e.PlanDiscarded("P1"))
    assert plan_after(REQUESTED, e.PlanDiscarded("P1"), DRAFTED, e.PlanApplyRequested("P1")) == gone
    apply, applied = e.PlanApplyRequested("P1"), e.PlanApplied("P1", {"a": 1})
    done = plan_after(REQUESTED, DRAFTED, apply, applied)
    late = (e.PlanChanged("P1", TASKS[:1]), e.PlanDiscarded("P1"), e.PlanFailed("P1", "x"), e.PlanApplyRequested("P1"))
    assert plan_after(REQUESTED, DRAFTED, apply, applied, *late) == done
    assert plan_after(REQUESTED, e.PlanRequested("P1", "another")).goal == "all"
    assert reduce_plans({}, Event(DRAFTED, 0.0, "x", "k")) == {}


def test_plan_numbers_are_counted_up() -> None:
    plan = plan_after(REQUESTED)
    assert (next_plan_id({}), next_plan_id({"P1": plan, "P9": plan, "odd": plan}), plan_number("P²")) == (
        "P1",
        "P10",
        0,
    )


def test_marks_of_different_homes_differ() -> None:
    first, second = (
        reduce_plans({}, Event(REQUESTED, 0.0, "person", key, "app"))["P1"].token
        for key in ("plan:app:1", "plan:app:2")
    )
    assert first != second


def test_facts_and_events_of_plans_can_be_written_and_read_back() -> None:
    home = HomeFacts()
    for number, body in enumerate((REQUESTED, DRAFTED, e.PlanApplyRequested("P1"), e.PlanApplied("P1", {"a": 1}))):
        event = Event(body, 100.0, "person", f"k{number}", "app")
        assert event_from_json(event_json(event)).body == body
        home = reduce_home(home, event)
    assert codec.load(HomeFacts, codec.dump(home)) == home
