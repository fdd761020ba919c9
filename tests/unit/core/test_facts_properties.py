"""Facts under any sequence of events: invalid ones are ignored, counters do not fall, what ended stays ended."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import HomeFacts, SessionFacts
from agent_orchestrator.core.fold.home import reduce_home
from agent_orchestrator.core.fold.messages import message_rank
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.fold.usage import MAX_MODELS_PER_DAY
from agent_orchestrator.core.status import BOARD_COLUMNS, derive_status
from agent_orchestrator.core.store import codec
from tests.unit.core.event_strategies import ANY_BODY, LIKELY_BODIES, MESSAGES, created, events, launched

SEQUENCES = st.lists(events(), max_size=25)
OF_ONE_LAUNCH = (
    e.AgentActivity,
    e.AgentProgress,
    e.AgentLimit,
    e.AgentAsk,
    e.AgentDone,
    e.AgentOutput,
    e.AgentExited,
    e.AgentLost,
    e.AgentStopped,
)


def begun() -> SessionFacts:
    facts = reduce(None, created())
    assert facts is not None
    for event in (
        Event(e.SessionAdmitted(), 1000.0, "scheduler", "a", "app", facts.id),
        Event(e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g"), 1000.0, "daemon", "w", "app", facts.id),
        launched(),
    ):
        facts = step(facts, event)
    return facts


def step(facts: SessionFacts, event: Event) -> SessionFacts:
    after = reduce(facts, event)
    assert after is not None
    return after


@given(st.booleans(), st.lists(events(ANY_BODY), max_size=15))
def test_no_sequence_of_events_breaks_the_fold(with_session: bool, sequence: list[Event]) -> None:
    facts = reduce(None, created()) if with_session else None
    home = HomeFacts()
    for event in sequence:
        facts = reduce(facts, event)
        home = reduce_home(home, event)
        if facts is not None:
            assert derive_status(facts, 1200.0).name in BOARD_COLUMNS
    assert codec.load(HomeFacts, json.loads(json.dumps(codec.dump(home)))) == home


@given(SEQUENCES)
def test_counters_do_not_fall_and_what_ended_stays_ended(sequence: list[Event]) -> None:
    facts = begun()
    for event in sequence:
        before, facts = facts, step(facts, event)
        assert facts.updated_at >= before.updated_at
        assert facts.generation >= before.generation
        assert facts.spool_position >= before.spool_position or facts.generation > before.generation
        ranks = {message.id: message_rank(message) for message in facts.messages}
        for message in before.messages:
            assert ranks[message.id] >= message_rank(message)
        if before.launch and before.launch.ended and facts.generation == before.generation:
            assert facts.launch == before.launch
            assert not facts.live
        if before.stopped and not isinstance(event.body, e.RestoreRequested):
            assert facts.stopped


@given(SEQUENCES, events(LIKELY_BODIES.filter(lambda body: isinstance(body, OF_ONE_LAUNCH))), st.sampled_from([-1, 1]))
def test_an_event_of_another_launch_changes_nothing(sequence: list[Event], late: Event, difference: int) -> None:
    facts = begun()
    for event in sequence:
        facts = step(facts, event)
    other = facts.generation + difference
    if other:
        assert reduce(facts, replace(late, generation=other)) == facts


@given(SEQUENCES)
def test_usage_is_the_sum_of_all_reports(sequence: list[Event]) -> None:
    facts = begun()
    bodies = [event.body for event in sequence if isinstance(event.body, e.AgentUsage)]
    for event in sequence:
        facts = step(facts, event)
    assert facts.usage.input == sum(body.input for body in bodies)
    assert facts.usage.output == sum(body.output for body in bodies)
    costs = [body.usd for body in bodies if body.usd is not None]
    assert facts.usage.usd == (sum(costs) if costs else None)


@given(SEQUENCES, st.integers(0, 25))
def test_a_snapshot_plus_later_events_equals_the_full_log(sequence: list[Event], cut: int) -> None:
    numbered = [replace(event, seq=number) for number, event in enumerate(sequence, 1)]
    facts = begun()
    for event in numbered[:cut]:
        facts = step(facts, event)
    restored: SessionFacts = codec.load(SessionFacts, json.loads(json.dumps(codec.dump(facts))))
    assert restored == facts
    for event in numbered[cut:]:
        facts, restored = step(facts, event), step(restored, event)
    assert restored == facts


@given(SEQUENCES, SEQUENCES)
def test_events_of_independent_sources_commute(spool: list[Event], git: list[Event]) -> None:
    """The agent's reports and HEAD do not depend on the order of the sources."""
    reported = [
        replace(spool_first, source="spool", generation=1)
        for spool_first in spool
        if isinstance(spool_first.body, OF_ONE_LAUNCH)
    ]
    moved = [
        replace(spool_first, source="git", generation=0)
        for spool_first in git
        if isinstance(spool_first.body, e.HeadMoved)
    ]
    spool_first = git_first = begun()
    for event in [*reported, *moved]:
        spool_first = step(spool_first, event)
    for event in [*moved, *reported]:
        git_first = step(git_first, event)
    assert spool_first == git_first


@given(st.lists(events(MESSAGES.filter(lambda body: not isinstance(body, e.MessageQueued))), max_size=12))
def test_a_messages_state_only_rises(sequence: list[Event]) -> None:
    facts = begun()
    for name in ("m1", "m2"):
        facts = step(facts, Event(e.MessageQueued(name, "x"), 1000.0, "person", name, "app", "app-x"))
    for event in sequence:
        before, facts = facts, step(facts, replace(event, generation=0))
        for old, new in zip(before.messages, facts.messages, strict=True):
            assert message_rank(new) >= message_rank(old)
            assert old.delivered_at in (None, new.delivered_at)
            assert (new.delivered_at is None) == (new.state not in ("delivered", "acknowledged"))


def test_an_agents_report_replaces_a_later_guess_of_its_process() -> None:
    guess = Event(e.AgentActivity("active"), 1000.5, "process", "p", "app", "app-x", 1)
    question = Event(e.AgentAsk("which?"), 1000.0, "spool", "spool:app-x:1:0:30", "app", "app-x", 1)
    facts = step(step(begun(), guess), question)
    assert (facts.activity.state, facts.question) == ("waiting_input", "which?")
    older = Event(e.AgentActivity("active"), 999.0, "spool", "spool:app-x:1:30:60", "app", "app-x", 1)
    assert step(facts, older).activity == facts.activity


def test_a_message_for_a_stopped_session_is_failed_at_once() -> None:
    facts = step(begun(), Event(e.SessionStopped(), 1001.0, "daemon", "s", "app", "app-x"))
    facts = step(facts, Event(e.MessageQueued("m", "hi"), 1002.0, "person", "m", "app", "app-x"))
    assert [message.state for message in facts.messages] == ["failed"]


def test_only_the_oldest_settled_messages_are_forgotten() -> None:
    facts = begun()
    for number in range(250):
        facts = step(facts, Event(e.MessageQueued(f"m{number}", "x"), 1001.0, "person", f"q{number}", "app", "app-x"))
        if number % 2:
            facts = step(facts, Event(e.MessageDelivered(f"m{number}"), 1001.0, "daemon", "d", "app", "app-x"))
    assert len(facts.messages) == 200
    assert sum(message.pending for message in facts.messages) == 125


def test_usage_of_too_many_models_is_summed_under_one_name() -> None:
    facts = begun()
    for number in range(2 * MAX_MODELS_PER_DAY):
        body = e.AgentUsage(f"m{number}" + "x" * 1000, 1, 2, usd=0.5)
        facts = step(facts, Event(body, 1001.0, "spool", f"u{number}", "app", facts.id, facts.generation))
    assert facts.usage.input == sum(usage.input for usage in facts.daily_usage.values()) == 2 * MAX_MODELS_PER_DAY
    assert len(facts.daily_usage) == MAX_MODELS_PER_DAY + 1 and max(map(len, facts.daily_usage)) < 300
