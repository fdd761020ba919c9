"""Status and intents for any facts: always a defined status, and at most one lifecycle step at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import decide, lifecycle_intents, still_needed
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.rules.stuck_threshold import STUCK_AFTER_SECONDS
from agent_orchestrator.core.status import derive_status
from tests.unit.core.event_strategies import SESSION, events
from tests.unit.core.test_facts_properties import begun, step

SEQUENCES = st.lists(events(), max_size=25)
NOW = 1200.0
COLUMNS = {
    "stopped": "Done",
    "queued": "Working",
    "starting": "Working",
    "needs_input": "Needs you",
    "blocked": "Needs you",
    "failed": "Needs you",
    "stuck": "Needs you",
    "interrupted": "Needs you",
    "working": "Working",
    "limited": "Working",
    "exited": "Needs you",
    "idle": "Needs you",
}


def ended_at_its_limit(facts: SessionFacts) -> bool:
    launch = facts.launch
    ended_by_itself = launch is not None and launch.ended and not launch.stopped and not launch.loss_reason
    return ended_by_itself and facts.limited and facts.activity.state == "exited"


@given(SEQUENCES, st.sampled_from([NOW, NOW + 599, NOW + 5000]))
def test_every_status_is_defined_has_evidence_and_is_working_only_with_a_live_agent(
    sequence: list[Event], now: float
) -> None:
    facts = begun()
    for event in sequence:
        facts = step(facts, event)
    status = derive_status(facts, now)
    called = facts.held_messages and COLUMNS[status.name] != "Done"
    assert status.column == ("Needs you" if called else COLUMNS[status.name])
    assert status.state in ("idle", "working", "waiting", "error")
    assert status.at <= now and status.source and status.why
    if status.name in ("working", "blocked", "needs_input", "stuck"):
        assert facts.live
    if status.name == "limited":
        assert facts.live or ended_at_its_limit(facts), "an agent that ended at its limit is started again later"
    if status.name == "working":
        assert facts.activity.state in ("active", "retrying")
        assert now - max(facts.activity.at, facts.last_sign_at) < STUCK_AFTER_SECONDS
    if facts.stopped:
        assert status.name == "stopped"
    if facts.failure and not facts.stopped:
        assert status.name == "failed"


@given(SEQUENCES)
def test_one_lifecycle_step_at_a_time_each_under_its_own_key(sequence: list[Event]) -> None:
    facts = begun()
    recorded: dict[str, str] = {}
    for event in sequence:
        before, facts = facts, step(facts, event)
        intents = lifecycle_intents(facts, DEFAULT_RULES)
        keys = [intent.key for intent in intents]
        assert len(set(keys)) == len(keys)
        assert all(still_needed(intent, facts) for intent in intents)
        kinds = [intent.kind for intent in intents]
        assert sum(kind in ("prepare", "launch", "deliver", "stop", "clean-up") for kind in kinds) <= 1
        for intent in intents:
            assert recorded.setdefault(intent.key, intent.kind) == intent.kind
            assert intent.session == SESSION
            if intent.kind in ("deliver", "silence", "limit", "stop"):
                assert intent.generation == facts.generation
                assert facts.live or intent.kind == "limit", "an agent that ended at its limit is started again later"
            if intent.kind == "launch":
                assert not facts.live and intent.generation == facts.generation + 1
            if intent.kind == "deliver":
                assert intent.args["message"] == next(
                    message.id for message in facts.messages if message.pending and not message.needs_approval
                )
        if facts.stopped:
            assert intents == []
        if facts.requested_state == "stop":
            assert set(kinds) <= {"stop", "clean-up"}
        lifecycle = [
            change for change in decide(before, facts, DEFAULT_RULES, NOW) if change.kind not in ("react", "escalate")
        ]
        assert {change.key for change in lifecycle} == set(keys) - {
            change.key for change in lifecycle_intents(before, DEFAULT_RULES)
        }
        again = decide(facts, facts, DEFAULT_RULES, facts.updated_at)
        assert again == []


def agent_event(body: e.Body, at: float, key: str, source: str = "spool") -> Event:
    return Event(body, at, source, key, "app", SESSION, 1)


def test_silence_during_a_turn_is_notified_once() -> None:
    facts = step(begun(), agent_event(e.AgentActivity("active"), 1000.0, "a"))
    stuck = step(facts, agent_event(e.TimerDue("silence"), 1600.0, "t", "daemon"))
    first = decide(facts, stuck, DEFAULT_RULES, 1600.0)
    assert [(intent.kind, intent.args["trigger"]) for intent in first] == [("react", "agent-stuck")]
    later = step(stuck, agent_event(e.AgentUsage("m", 1, 1), 1650.0, "u", "hook"))
    assert decide(stuck, later, DEFAULT_RULES, 1700.0) == []


def test_output_or_progress_ends_the_silence() -> None:
    facts = step(begun(), agent_event(e.AgentActivity("active"), 1000.0, "a"))
    assert derive_status(facts, 1600.0).name == "stuck"
    assert derive_status(step(facts, agent_event(e.AgentOutput(), 1300.0, "o", "daemon")), 1600.0).name == "working"
    assert derive_status(step(facts, agent_event(e.AgentProgress(1, 2), 1300.0, "p")), 1600.0).name == "working"


def test_an_interrupted_turn_is_no_exit_but_a_lost_process_is() -> None:
    facts = step(begun(), agent_event(e.AgentActivity("active"), 1000.0, "a"))
    esc = step(facts, agent_event(e.AgentActivity("interrupted"), 1001.0, "i"))
    assert derive_status(esc, 1002.0).name == "interrupted" and decide(facts, esc, DEFAULT_RULES, 1002.0) == []
    lost = step(facts, agent_event(e.AgentLost("the machine was started anew"), 1001.0, "x", "daemon"))
    assert derive_status(lost, 1002.0).name == "interrupted"
    assert [intent.args["trigger"] for intent in decide(facts, lost, DEFAULT_RULES, 1002.0)] == ["agent-exited"]


def test_a_limit_reached_again_is_awaited_again() -> None:
    limit = agent_event(e.AgentLimit(1500.0), 1010.0, "l1")
    facts = step(begun(), limit)
    key = next(intent.key for intent in lifecycle_intents(facts) if intent.kind == "limit")
    free = step(facts, agent_event(e.AgentActivity("active"), 1020.0, "a"))
    assert key not in [intent.key for intent in lifecycle_intents(free)]
    again = step(free, agent_event(e.AgentLimit(1500.0), 1030.0, "l2"))
    assert key in [intent.key for intent in decide(free, again, DEFAULT_RULES, 1030.0)]


def test_an_agent_that_ends_at_its_limit_waits_for_the_reset_and_is_started_again() -> None:
    limited = step(begun(), agent_event(e.AgentLimit(None), 1000.0, "l"))
    ended = step(limited, agent_event(e.AgentExited(0), 1000.0, "x", "daemon"))
    assert not ended.live and derive_status(ended, NOW).name == "limited"
    assert [intent.kind for intent in lifecycle_intents(ended)] == ["limit"]
    resumed = step(limited, agent_event(e.AgentActivity("active"), 1000.5, "a"))
    ended_later = step(resumed, agent_event(e.AgentExited(1), 1001.0, "x", "daemon"))
    assert derive_status(ended_later, NOW).name == "failed" and lifecycle_intents(ended_later) == []
    stopped = step(limited, agent_event(e.AgentStopped(), 1001.0, "s", "daemon"))
    assert derive_status(stopped, NOW).name == "interrupted"


def test_messages_are_delivered_in_order_and_the_task_first() -> None:
    facts = begun()
    for name in ("first", "second"):
        facts = step(facts, agent_event(e.MessageQueued(name, name), 1001.0, name, "person"))
    assert [intent.args["message"] for intent in lifecycle_intents(facts) if intent.kind == "deliver"] == ["first"]
    facts = step(facts, agent_event(e.MessageQueued("task", "do it", task=True), 1002.0, "task", "daemon"))
    assert [intent.args["message"] for intent in lifecycle_intents(facts) if intent.kind == "deliver"] == ["task"]
    for name in ("task", "first"):
        facts = step(facts, agent_event(e.MessageDelivered(name), 1003.0, f"d:{name}", "daemon"))
    assert [intent.args["message"] for intent in lifecycle_intents(facts) if intent.kind == "deliver"] == ["second"]
