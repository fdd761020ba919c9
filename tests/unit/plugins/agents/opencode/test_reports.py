"""Reports derived from the events of OpenCode's server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from agent_orchestrator.plugins.agents.opencode.server_events import ConversationReader
from agent_orchestrator.protocols import (
    Activity,
    ReportBatch,
)
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.opencode.reports import (
    ACTIVE,
    IDLE,
    batches_of_section,
    recorded_reports,
    reports_of,
    states,
)
from tests.unit.plugins.agents.opencode.server import SESSION, recorded


def test_a_turn_from_its_message_to_its_last_words() -> None:
    heard = batches_of_section("turn")
    assert recorded_reports(heard)[0] == r.ConversationReport(SESSION)
    assert states(heard) == [ACTIVE, r.TurnReport("Hello.")]
    assert reports_of(r.MessageTakenReport, heard) == [r.MessageTakenReport("once only [[say: Hello.]]")]
    usage = r.UsageReport("scripted/gpt-5", input=1200, output=50, cache_read=300, usd=0.00133)
    assert reports_of(r.UsageReport, heard) == [usage]


def test_the_same_message_again_is_nothing_new() -> None:
    ears = ConversationReader(None, 0, {})
    heard = batches_of_section("turn", ears)
    again = [batch for event in recorded("again")[1:] for batch in ears.read_event(event)]
    assert states([*heard, *again]) == [ACTIVE, r.TurnReport("Hello."), ACTIVE, IDLE]
    assert reports_of(r.MessageTakenReport, [*heard, *again]) == reports_of(r.MessageTakenReport, heard)
    assert reports_of(r.UsageReport, [*heard, *again]) == reports_of(r.UsageReport, heard)


def test_a_permission_is_asked_and_given() -> None:
    heard = batches_of_section("permission")
    requests = reports_of(r.PermissionReport, heard)
    assert [(request.tool, request.command) for request in requests] == [("bash", "touch other.txt")]
    assert requests[0].request.startswith("per_")
    assert states(heard) == [ACTIVE, requests[0], ACTIVE, r.TurnReport("Done.")]
    assert len(reports_of(r.UsageReport, heard)) == 4


@pytest.mark.parametrize(("section", "words"), [("denied with a word", "Then not."), ("denied", "")])
def test_a_permission_is_denied(section: str, words: str) -> None:
    heard = batches_of_section(section)
    assert states(heard) == [ACTIVE, *reports_of(r.PermissionReport, heard), ACTIVE, r.TurnReport(words)]


def test_its_to_do_list_is_progress() -> None:
    assert reports_of(r.ProgressReport, batches_of_section("todo")) == [r.ProgressReport(1, 3, "two")]


@pytest.mark.parametrize("section", ["interrupted", "interrupted in a retry"])
def test_an_interruption_is_no_end_of_the_turn(section: str) -> None:
    other_states = [report for report in states(batches_of_section(section)) if report != ACTIVE]
    assert other_states[-1] == r.ActivityReport(Activity.INTERRUPTED)
    assert not reports_of(r.TurnReport, batches_of_section(section))


def test_a_turn_that_is_stopped_for_a_message_is_not_shown_as_interrupted() -> None:
    assert states(batches_of_section("interrupted", ConversationReader(None, 0, {}, going_on=lambda: True))) == [ACTIVE]


def test_an_error_that_is_tried_again() -> None:
    heard = batches_of_section("429")
    retrying = r.ActivityReport(Activity.RETRYING, "scripted error 429")
    assert states(heard) == [ACTIVE, retrying, ACTIVE, retrying, ACTIVE, r.TurnReport("at last")]


def test_an_error_that_ends_the_turn_needs_a_person() -> None:
    assert states(batches_of_section("401"))[-1] == r.ActivityReport(
        Activity.WAITING_INPUT, "scripted error 401 (HTTP 401)"
    )


def test_a_message_that_cannot_even_be_begun_with_needs_a_person() -> None:
    states_heard = states(batches_of_section("no agent"))
    assert isinstance(states_heard[-1], r.ActivityReport) and states_heard[-1].state == Activity.WAITING_INPUT
    assert "Agent not found" in states_heard[-1].detail


def test_a_usage_limit_has_its_reset() -> None:
    status = next(
        e["properties"]["status"] for e in recorded("limit") if "next" in str(e.get("properties", {}).get("status"))
    )
    ahead = datetime.now(UTC).timestamp() + 3600
    ears = ConversationReader(SESSION, 0, {})
    limit = [report for heard in ears.read_status({**status, "next": ahead * 1000}) for report in heard.reports]
    assert limit == [r.LimitReport(datetime.fromtimestamp(ahead, UTC))]


def test_a_question_is_asked_and_answered() -> None:
    heard = batches_of_section("question")
    question = r.AskReport("Which database?\n- sqlite: small")
    assert states(heard) == [ACTIVE, question, ACTIVE, r.TurnReport("ok")]
    assert r.MessageTakenReport("use duckdb") in recorded_reports(heard)


def test_a_subagents_turn_is_not_the_agents_but_what_it_spends_counts() -> None:
    heard = batches_of_section("subagent")
    assert states(heard) == [ACTIVE, r.TurnReport("main done")]
    assert len(reports_of(r.MessageTakenReport, heard)) == 1
    assert len(reports_of(r.UsageReport, heard)) == 3


def test_messages_that_came_while_it_was_busy_are_taken_up_by_the_next_answer() -> None:
    ears = ConversationReader(SESSION, 0, {})
    heard: list[ReportBatch] = []
    for key, role, created in (
        ("msg_1", "user", 1),
        ("msg_2", "assistant", 2),
        ("msg_3", "user", 3),
        ("msg_4", "user", 4),
    ):
        info = {"id": key, "role": role, "sessionID": SESSION, "time": {"created": created}}
        heard += ears.read_message(info)
        ears.read_part({"id": f"prt{key}", "messageID": key, "type": "text", "text": f"text of {key}"})
        ears.read_part({"id": f"pra{key}", "messageID": key, "type": "text", "text": "a file", "synthetic": True})
    assert reports_of(r.MessageTakenReport, heard) == [r.MessageTakenReport("text of msg_1")]
    heard += ears.read_message({"id": "msg_5", "role": "assistant", "sessionID": SESSION, "time": {"created": 5}})
    assert reports_of(r.MessageTakenReport, heard) == [
        r.MessageTakenReport(f"text of msg_{number}") for number in (1, 3, 4)
    ]


def _hear(ears: ConversationReader, kind: str, **properties: Any) -> list[r.Report]:
    return [report for heard in ears.read_event({"type": kind, "properties": properties}) for report in heard.reports]


def test_a_dialog_stays_open_during_other_events() -> None:
    ears = ConversationReader(SESSION, 0, {})
    for number in (1, 2):
        _hear(ears, "permission.asked", id=f"per_{number}", sessionID=SESSION, permission="bash", patterns=["x"])
    assert _hear(ears, "session.status", sessionID=SESSION, status={"type": "busy"}) == []
    second = r.PermissionReport("bash", "x", request="per_2")
    assert _hear(ears, "permission.replied", sessionID=SESSION, requestID="per_1", reply="once") == [second]
    assert _hear(ears, "permission.replied", sessionID=SESSION, requestID="per_2", reply="once") == [ACTIVE]


def test_an_end_is_reported_once() -> None:
    ears = ConversationReader(None, 0, {})
    batches_of_section("401", ears)
    assert _hear(ears, "session.status", sessionID=SESSION, status={"type": "idle"}) == []


def test_only_a_conversation_of_its_own_takes_the_session_along() -> None:
    ears = ConversationReader(SESSION, 0, {})
    assert _hear(ears, "session.created", info={"id": "ses_2", "parentID": "ses_9"}) == []
    assert _hear(ears, "session.created", info={"id": "ses_3"}) == [r.ConversationReport("ses_3")]
    assert _hear(ears, "session.status", sessionID=SESSION, status={"type": "busy"}) == []
    assert _hear(ears, "session.status", sessionID="ses_3", status={"type": "busy"}) == [ACTIVE]


def test_a_message_stored_again_during_its_turn_is_reported_once() -> None:
    ears = ConversationReader(SESSION, 0, {})
    user = {"id": "msg_1", "role": "user", "sessionID": SESSION, "time": {"created": 1}}
    part = {"id": "prt_1", "messageID": "msg_1", "type": "text", "text": "once"}
    batches: list[ReportBatch] = []
    for created in (2, 3):
        batches += ears.read_message(user)
        ears.read_part(part)
        answer = {"id": f"msg_{created}", "role": "assistant", "sessionID": SESSION, "time": {"created": created}}
        batches += ears.read_message(answer)
    assert reports_of(r.MessageTakenReport, batches) == [r.MessageTakenReport("once")]
