"""The timeline of a session: its entries, and its state in one sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.reactions import message_id
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.status import derive_status
from agent_orchestrator.views.timeline import (
    TYPES_WITH_ENTRY,
    TYPES_WITHOUT_ENTRY,
    Timeline,
    entry_json,
    state_sentence,
)
from tests.unit.core.event_strategies import ANY_BODY, created, launched

RETRIES = {"ci-failed": 2}
HEAD = "abc1234def"
KEY = "react:app-x:ci-failed:1"
MESSAGE = message_id(KEY)

BEGUN = [
    created(),
    Event(e.SessionAdmitted(), 1000.0, "scheduler", "a", "app", "app-x"),
    Event(e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g"), 1000.0, "daemon", "w", "app", "app-x"),
    launched(),
]
FAILED: list[tuple[e.Body, str, str]] = [
    (e.HeadMoved(HEAD), "git", "h"),
    (e.PrOpened(1, "x", "main", draft=False), "forge", "o"),
    (e.AgentActivity("idle"), "spool", "i"),
    (e.CheckFinished("lint", HEAD, "failure", "line 3 is long"), "checks", "c"),
    (e.ChecksSettled(HEAD), "checks", "s"),
]
SENT: list[tuple[e.Body, str, str]] = [
    (e.MessageQueued(MESSAGE, "mend it", "rule ci-failed"), "rule ci-failed", f"{KEY}:0"),
    (e.Reacted("ci-failed", "ci-failed", f"{HEAD}:0:lint", "send-to-agent", 1), "rule ci-failed", f"{KEY}:1"),
]
DELIVERED: list[tuple[e.Body, str, str]] = [(e.MessageDelivered(MESSAGE), "daemon", "d")]
ACKNOWLEDGED: list[tuple[e.Body, str, str]] = [(e.AgentAck(), "spool", "t")]


def event_log(*entries: tuple[e.Body, str, str]) -> list[Event]:
    later = [Event(body, 1060.0, source, key, "app", "app-x") for body, source, key in entries]
    return [replace(event, seq=number) for number, event in enumerate([*BEGUN, *later], 1)]


def timeline_of(*entries: tuple[e.Body, str, str]) -> Timeline:
    timeline = Timeline()
    for event in event_log(*entries):
        timeline.add(event, RETRIES)
    return timeline


def sentence_for(*bodies: tuple[e.Body, str, str]) -> str:
    facts: SessionFacts | None = None
    for event in event_log(*bodies):
        facts = reduce(facts, event)
    assert facts is not None
    timeline_entries = timeline_of(*bodies).entries
    return state_sentence(facts, derive_status(facts, 1100.0), timeline_entries, DEFAULT_RULES, lambda at: f"at {at:g}")


def test_a_failed_check_has_entries_from_detection_to_acknowledgement() -> None:
    last_entries = timeline_of(*FAILED, *SENT, *DELIVERED, *ACKNOWLEDGED).entries[-5:]
    assert [(entry.kind, entry.title, entry.message) for entry in last_entries] == [
        ("seen", "CI failed on lint", ""),
        ("decided", "Rule ci-failed: send-to-agent, attempt 1 of 2", MESSAGE),
        ("sent", "Message queued for the agent", MESSAGE),
        ("sent", "Message delivered", MESSAGE),
        ("acknowledged", "The agent took the message up", MESSAGE),
    ]
    assert {entry.trigger for entry in last_entries} == {"ci-failed"}, "entries of one problem share their trigger"
    assert (last_entries[0].detail, last_entries[2].detail) == ("line 3 is long", "mend it")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], "CI failed on lint; nothing was sent to the agent yet"),
        (SENT, "CI failed on lint; log waits to be sent, attempt 1 of 2"),
        ([*SENT, *DELIVERED], "CI failed on lint; log sent at 1060, attempt 1 of 2"),
        (
            [*SENT, *DELIVERED, *ACKNOWLEDGED],
            "CI failed on lint; log sent at 1060, acknowledged at 1060, attempt 1 of 2",
        ),
        (
            [*SENT, *DELIVERED, *ACKNOWLEDGED, (e.AgentActivity("active"), "spool", "g")],
            "CI failed on lint; log sent at 1060, acknowledged at 1060, attempt 1 of 2",
        ),
        (
            [*SENT, (e.MessageFailed(MESSAGE, "its terminal is gone"), "daemon", "f")],
            "CI failed on lint; log not delivered: its terminal is gone, attempt 1 of 2",
        ),
        (
            [*SENT, *DELIVERED, (e.Escalated("ci-failed", "ci-failed", "2 attempts"), "rule ci-failed", "e")],
            "CI failed on lint; log sent at 1060, attempt 1 of 2, you were called at 1060",
        ),
    ],
)
def test_the_sentence_shows_the_progress_of_a_problem(entries: list[tuple[e.Body, str, str]], expected: str) -> None:
    assert sentence_for(*FAILED, *entries) == expected


def test_a_message_to_a_lost_agent_is_described_as_such() -> None:
    later = [
        (e.AgentAck("other"), 1),
        (e.MessageDelivered(MESSAGE), 1),
        (e.AgentLost("node n1 is lost"), 1),
        (e.AgentLaunched({}), 2),
        (e.AgentActivity("idle"), 2),
    ]
    later_events = [Event(body, 1060.0, "spool", body.type, "app", "app-x", number) for body, number in later]
    facts: SessionFacts | None = None
    for event in [*event_log(*FAILED, *SENT), *later_events]:
        facts = reduce(facts, event)
    assert facts is not None
    entries = timeline_of(*FAILED, *SENT).entries
    words = state_sentence(facts, derive_status(facts, 1100.0), entries, DEFAULT_RULES, lambda at: f"at {at:g}")
    assert "log sent at 1060, but its agent was lost (node n1 is lost) before it said" in words


def test_without_a_problem_the_sentence_is_the_status() -> None:
    assert sentence_for((e.AgentAsk("Which database?"), "spool", "q")) == "Asks: Which database?"


@pytest.mark.parametrize(
    ("body", "source", "kind", "title", "by"),
    [
        (e.ReviewSubmitted("r", "approved", HEAD), "person", "did", "You approved", "person"),
        (e.ReviewSubmitted("r", "changes_requested", HEAD, "ann"), "forge", "seen", "ann asked for changes", "ann"),
        (e.CommentAdded("c", "why?", "bob", "a.py", 3), "forge", "seen", "Comment by bob on a.py:3", "bob"),
        (e.CommentAdded("c", "so", by_agent=True), "spool", "said", "Answered a comment", "agent"),
        (e.MessageQueued("m", "hello"), "person", "did", "You wrote to the agent", "person"),
        (e.WorkPushed(HEAD), "daemon", "seen", "Pushed abc1234", "daemon"),
        (e.PrMerged(HEAD, "c0", "c1"), "forge", "seen", "Merged as abc1234", "forge"),
        (e.AgentAsk("Which?\nThis?"), "spool", "said", "Asks: Which?", "agent"),
        (e.StopRequested(), "person", "did", "Asked to stop", "person"),
        (e.StopRequested(), "rule pr-merged", "decided", "Asked to stop", "rule pr-merged"),
        (e.AgentExited(1, output="boom"), "process", "seen", "The agent exited with 1", "process"),
        (e.PermissionAnswered("deny", tool="Bash", command="rm x"), "person", "did", "Refused: Bash rm x", "person"),
        (
            e.ConflictsSeen("h", "b", ("a", "b", "c", "d")),
            "git",
            "seen",
            "Conflicts with the base in a, b, c and 1 more",
            "git",
        ),
    ],
)
def test_each_kind_of_event_has_its_title(body: e.Body, source: str, kind: str, title: str, by: str) -> None:
    last = timeline_of((body, source, "k")).entries[-1]
    assert (last.kind, last.title, last.by) == (kind, title, by)


def test_passed_checks_are_one_entry_once_all_have_passed() -> None:
    passed: list[tuple[e.Body, str, str]] = [
        (e.CheckFinished("lint", HEAD, "success"), "checks", "1"),
        (e.CheckFinished("unit", HEAD, "flaky"), "checks", "2"),
        (e.ChecksSettled(HEAD), "checks", "3"),
    ]
    titles = [entry.title for entry in timeline_of(*passed).entries[-2:]]
    assert titles == ["unit is flaky: it failed, and passed on the same commit", "Checks passed at abc1234"]
    assert "passed" not in timeline_of(*FAILED).entries[-1].title


def test_a_repeated_step_has_one_entry() -> None:
    steps: list[tuple[e.Body, str, str]] = [
        (e.AgentProgress(1, 3, "reading"), "spool", "1"),
        (e.AgentProgress(2, 3, "reading"), "spool", "2"),
        (e.AgentProgress(3, 3, "writing"), "spool", "3"),
    ]
    assert [entry.title for entry in timeline_of(*steps).entries if entry.kind == "said"] == ["reading", "writing"]


def test_every_kind_of_event_is_classified() -> None:
    assert not TYPES_WITHOUT_ENTRY & TYPES_WITH_ENTRY
    assert set(e.EVENT_KINDS.values()) - TYPES_WITHOUT_ENTRY == TYPES_WITH_ENTRY


@given(st.lists(st.tuples(ANY_BODY, st.sampled_from(["spool", "person", "rule x"]), st.text(max_size=5)), max_size=6))
def test_every_event_has_an_entry_and_a_sentence(bodies: list[Any]) -> None:
    facts: SessionFacts | None = None
    for event in event_log(*bodies):
        facts = reduce(facts, event)
    entries = timeline_of(*bodies).entries
    assert facts is not None
    assert state_sentence(facts, derive_status(facts, 1100.0), entries, DEFAULT_RULES, str)
    for entry in entries:
        shape = entry_json(entry)
        assert shape["title"] is not None and shape["by"]
