"""The status of a session whose agent is idle."""

from __future__ import annotations

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.status import derive_status
from tests.unit.core.test_facts_properties import begun, step


def after(facts: SessionFacts, at: float, *bodies: e.Body, generation: int | None = None) -> SessionFacts:
    for number, body in enumerate(bodies):
        launch = facts.generation if generation is None else generation
        facts = step(facts, Event(body, at, "spool", f"{at}:{number}", "app", facts.id, launch))
    return facts


def test_a_restored_agent_without_a_message_has_finished_no_turn() -> None:
    facts = after(begun(), 1001.0, e.AgentActivity("interrupted", "API error: no key"))
    facts = after(facts, 1002.0, e.AgentStopped(signal=15), e.RestoreRequested(), e.SessionAdmitted())
    facts = after(facts, 1003.0, e.AgentLaunched({}, resumed=True), generation=2)
    idle = after(facts, 1004.0, e.AgentActivity("idle"))
    back = derive_status(idle, 1005.0)
    assert (back.name, back.waiting_for) == ("idle", "a message") and "brought back" in back.why
    messaged = after(idle, 1006.0, e.MessageQueued("m1", "go on", "person"), e.MessageDelivered("m1"))
    done = derive_status(after(messaged, 1007.0, e.AgentActivity("active"), e.AgentTurnEnded("Here it is.")), 1008.0)
    assert (done.why, done.waiting_for) == ("its turn is finished", "your look at it")
