"""A session's story: events in words, in the order in which a person thinks of them, and how it stands in one sentence."""

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
from agent_orchestrator.core.rules import DEFAULT_RULES
from agent_orchestrator.core.status import derive
from agent_orchestrator.views.timeline import TYPES_WITH_ENTRY, TYPES_WITHOUT_ENTRY, Timeline, entry_json, sentence
from tests.unit.core.drawn import ANY_BODY, created, launched

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
TAKEN: list[tuple[e.Body, str, str]] = [(e.AgentAck(), "spool", "t")]


def log(*told: tuple[e.Body, str, str]) -> list[Event]:
    later = [Event(body, 1060.0, source, key, "app", "app-x") for body, source, key in told]
    return [replace(event, seq=number) for number, event in enumerate([*BEGUN, *later], 1)]


def story(*told: tuple[e.Body, str, str]) -> Timeline:
    made = Timeline()
    for event in log(*told):
        made.add(event, RETRIES)
    return made


def said(*told: tuple[e.Body, str, str]) -> str:
    facts: SessionFacts | None = None
    for event in log(*told):
        facts = reduce(facts, event)
    assert facts is not None
    entries = story(*told).entries
    return sentence(facts, derive(facts, 1100.0), entries, DEFAULT_RULES, lambda at: f"at {at:g}")


def test_a_failed_check_is_seen_decided_on_sent_and_acknowledged() -> None:
    found = story(*FAILED, *SENT, *DELIVERED, *TAKEN).entries[-5:]
    assert [(one.kind, one.title, one.message) for one in found] == [
        ("seen", "CI failed on lint", ""),
        ("decided", "Rule ci-failed: send-to-agent, attempt 1 of 2", MESSAGE),
        ("sent", "Message queued for the agent", MESSAGE),
        ("sent", "Message delivered", MESSAGE),
        ("acknowledged", "The agent took the message up", MESSAGE),
    ]
    assert {one.trigger for one in found} == {"ci-failed"}, "one can see what belongs together"
    assert (found[0].detail, found[2].detail) == ("line 3 is long", "mend it")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "CI failed on lint; nothing was sent to the agent yet"),
        (SENT, "CI failed on lint; log waits to be sent, attempt 1 of 2"),
        ([*SENT, *DELIVERED], "CI failed on lint; log sent at 1060, attempt 1 of 2"),
        (
            [*SENT, *DELIVERED, *TAKEN],
            "CI failed on lint; log sent at 1060, acknowledged at 1060, attempt 1 of 2",
        ),
        (
            [*SENT, *DELIVERED, *TAKEN, (e.AgentActivity("active"), "spool", "g")],
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
def test_the_sentence_tells_how_far_a_trouble_is(told: list[tuple[e.Body, str, str]], words: str) -> None:
    assert said(*FAILED, *told) == words


def test_a_message_that_came_to_an_agent_which_was_lost_is_called_that() -> None:
    later = [
        (e.AgentAck("other"), 1),
        (e.MessageDelivered(MESSAGE), 1),
        (e.AgentLost("node n1 is lost"), 1),
        (e.AgentLaunched({}), 2),
        (e.AgentActivity("idle"), 2),
    ]
    told = [Event(body, 1060.0, "spool", body.type, "app", "app-x", number) for body, number in later]
    facts: SessionFacts | None = None
    for event in [*log(*FAILED, *SENT), *told]:
        facts = reduce(facts, event)
    assert facts is not None
    entries = story(*FAILED, *SENT).entries
    words = sentence(facts, derive(facts, 1100.0), entries, DEFAULT_RULES, lambda at: f"at {at:g}")
    assert "log sent at 1060, but its agent was lost (node n1 is lost) before it said" in words


def test_without_trouble_the_sentence_is_the_status() -> None:
    assert said((e.AgentAsk("Which database?"), "spool", "q")) == "Asks: Which database?"


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
def test_each_kind_has_its_words(body: e.Body, source: str, kind: str, title: str, by: str) -> None:
    last = story((body, source, "k")).entries[-1]
    assert (last.kind, last.title, last.by) == (kind, title, by)


def test_checks_are_told_of_once_all_of_them_passed() -> None:
    passed: list[tuple[e.Body, str, str]] = [
        (e.CheckFinished("lint", HEAD, "success"), "checks", "1"),
        (e.CheckFinished("unit", HEAD, "flaky"), "checks", "2"),
        (e.ChecksSettled(HEAD), "checks", "3"),
    ]
    titles = [one.title for one in story(*passed).entries[-2:]]
    assert titles == ["unit is flaky: it failed, and passed on the same commit", "Checks passed at abc1234"]
    assert "passed" not in story(*FAILED).entries[-1].title


def test_a_step_that_is_told_again_is_told_once() -> None:
    steps: list[tuple[e.Body, str, str]] = [
        (e.AgentProgress(1, 3, "reading"), "spool", "1"),
        (e.AgentProgress(2, 3, "reading"), "spool", "2"),
        (e.AgentProgress(3, 3, "writing"), "spool", "3"),
    ]
    assert [one.title for one in story(*steps).entries if one.kind == "said"] == ["reading", "writing"]


def test_every_kind_of_event_is_told_or_left_out_on_purpose() -> None:
    assert not TYPES_WITHOUT_ENTRY & TYPES_WITH_ENTRY
    assert set(e.KINDS.values()) - TYPES_WITHOUT_ENTRY == TYPES_WITH_ENTRY


@given(st.lists(st.tuples(ANY_BODY, st.sampled_from(["spool", "person", "rule x"]), st.text(max_size=5)), max_size=6))
def test_no_event_is_without_words_for_it(told: list[Any]) -> None:
    facts: SessionFacts | None = None
    for event in log(*told):
        facts = reduce(facts, event)
    entries = story(*told).entries
    assert facts is not None
    assert sentence(facts, derive(facts, 1100.0), entries, DEFAULT_RULES, str)
    for entry in entries:
        shape = entry_json(entry)
        assert shape["title"] is not None and shape["by"]
