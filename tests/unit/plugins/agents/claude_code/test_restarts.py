"""Reports about Claude Code after a restart of the daemon, and records of other sessions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.claude_code.claude import BEGIN, SimulatedClaude
from tests.unit.plugins.agents.claude_code.launch_files import ACTIVE, IDLE

pytestmark = pytest.mark.anyio


async def test_a_restarted_daemon_reports_nothing_twice(run: SimulatedClaude) -> None:
    run.hook("SessionStart")
    run.record("busy")
    run.write(run.user("one"), run.answer_line("Which one?"))
    await run.read_reports()
    run.record("idle")
    assert r.TurnReport("Which one?") in await run.read_reports()
    await run.restart()
    heard = await run.read_reports(60)
    (idle,) = heard
    assert isinstance(idle, r.ActivityReport) and idle.time is not None
    assert idle.time < datetime.fromtimestamp(BEGIN, UTC), "older than what is known: it replaces nothing"


async def test_a_turn_that_ended_while_the_daemon_was_down_is_reported(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.answer_line("Done."))
    heard = await run.read_batches()
    last = next(batch for batch in heard if isinstance(batch.reports[0], r.UsageReport))
    await run.restart()
    run.now += 5
    run.record("idle")
    again = await run.read_batches()
    assert again[0] == last, "the line is read again and told under the same name"
    assert again[1].reports == (r.TurnReport("Done.", datetime.fromtimestamp(BEGIN + 5, UTC)),)
    assert again[1].end > again[1].start


async def test_earlier_use_by_hand_is_not_reported(run: SimulatedClaude) -> None:
    run.now = BEGIN - 3600
    run.write(run.user("by hand"), run.answer_line("Yes."))
    run.now = BEGIN + 1
    await run.read_reports()
    run.record("idle")
    assert await run.read_reports() == [IDLE]


async def test_the_record_of_another_process_with_the_same_pid_is_ignored(run: SimulatedClaude) -> None:
    run.record("busy", procStart="17")
    assert await run.read_reports() == []


async def test_a_program_behind_a_script_is_found_by_its_conversation(run: SimulatedClaude) -> None:
    run.record("busy", pid=5000, procStart="99")
    assert await run.read_reports() == [ACTIVE]


async def test_a_new_conversation_is_followed(run: SimulatedClaude) -> None:
    run.record("idle")
    await run.read_reports()
    other = "5c1d0b8f-2f5e-4f8e-9a52-6f1d2c3b4a59"
    run.hook("SessionStart", session_id=other, transcript_path=str(run.transcript.with_stem(other)), source="clear")
    run.record("idle", sessionId=other)
    assert await run.read_reports() == [r.ConversationReport(other)]
    run.write(run.user("anew"), to=run.transcript.with_stem(other))
    assert any(isinstance(report, r.MessageTakenReport) for report in await run.read_reports())


async def test_without_a_record_the_transcript_is_used(run: SimulatedClaude) -> None:
    run.write(run.user("one"))
    assert (await run.read_reports())[-1] == ACTIVE
    run.write(run.answer_line("Done."))
    assert r.TurnReport("Done.") in await run.read_reports()


async def test_the_transcript_is_read_to_its_end_after_the_exit(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.read_reports()
    run.write(run.answer_line("Last words."))
    assert r.TurnReport("Last words.") in await run.end()
