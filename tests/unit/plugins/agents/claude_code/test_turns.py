"""Reports about Claude Code's turns: messages, interruptions, limits, usage and progress."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode
from agent_orchestrator.plugins.agents.claude_code.transcript import limit_reset, limited_model, typed_text
from agent_orchestrator.plugins.agents.shared.journals import MAX_JOURNALS
from agent_orchestrator.protocols import Activity
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.claude_code import claude
from tests.unit.plugins.agents.claude_code.claude import SESSION, SimulatedClaude, api_error
from tests.unit.plugins.agents.claude_code.launch_files import ACTIVE, IDLE

pytestmark = pytest.mark.anyio


async def test_the_agent_supports_all_optional_features(agent: ClaudeCode) -> None:
    assert agent.listens and agent.answers_requests and agent.has_headless_mode


async def test_a_turn_is_reported_from_its_prompt_to_its_answer(run: SimulatedClaude) -> None:
    run.hook("SessionStart", source="startup")
    run.record("idle")
    assert await run.read_reports() == [r.ConversationReport(SESSION), IDLE]
    run.now += 1
    run.record("busy")
    run.write(run.user("do it"))
    taken_report, active = await run.read_reports()
    assert isinstance(taken_report, r.MessageTakenReport) and taken_report.text == "do it"
    assert active == ACTIVE
    run.write(run.answer_line("Which one?"))
    (used,) = await run.read_reports()
    assert isinstance(used, r.UsageReport)
    assert (used.input, used.output, used.cache_read, used.cache_write) == (1000, 50, 300, 200)
    run.record("idle")
    assert await run.read_reports() == [r.TurnReport("Which one?")]
    assert await run.read_reports(10) == [], "idle is not told again"
    assert run.changes.patience is None, "nothing is asked while nothing happens"


async def test_idle_before_the_first_prompt_is_not_reported(run: SimulatedClaude) -> None:
    run.plugin_data["prompt"] = "1"
    run.record("idle")
    assert await run.read_reports() == []
    run.record("busy")
    assert await run.read_reports(1) == [ACTIVE]


async def test_the_transcript_may_be_ahead_of_the_record(run: SimulatedClaude) -> None:
    run.record("idle")
    await run.read_reports()
    run.now += 30
    run.write(run.user("next"))
    taken_report, active = await run.read_reports()
    assert isinstance(taken_report, r.MessageTakenReport)
    assert active == ACTIVE, "its record still says idle: that was before this message"
    run.record("busy")
    assert await run.read_reports() == []


async def test_two_queued_messages_are_two_turns(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.answer_line("first"), run.user("two", promptSource="queued"))
    heard = [report for report in await run.read_reports() if not isinstance(report, r.UsageReport)]
    assert [type(report) for report in heard] == [
        r.MessageTakenReport,
        r.TurnReport,
        r.MessageTakenReport,
        r.ActivityReport,
    ]


async def test_a_message_taken_during_a_turn_is_reported(run: SimulatedClaude) -> None:
    run.record("busy")
    queued = {"type": "queued_command", "prompt": "by the way", "commandMode": "prompt", "origin": {"kind": "human"}}
    run.write(run.user("one"), {"type": "attachment", "attachment": queued})
    texts = [report.text for report in await run.read_reports() if isinstance(report, r.MessageTakenReport)]
    assert texts == ["one", "by the way"]


async def test_a_users_hook_may_continue_a_turn(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.answer_line("Done?", "msg_1"))
    assert not any(isinstance(report, r.TurnReport) for report in await run.read_reports())
    run.write(run.answer_line("Really done.", "msg_2"))
    run.record("idle")
    assert [report for report in await run.read_reports() if isinstance(report, r.TurnReport)] == [
        r.TurnReport("Really done.")
    ]


@pytest.mark.parametrize("mark", ["[Request interrupted by user]", "[Request interrupted by user for tool use]"])
async def test_escape_is_an_interruption(run: SimulatedClaude, mark: str) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.read_reports()
    run.record("idle")
    assert await run.read_reports() == [], "the transcript follows"
    run.write(run.user(mark, origin=None))
    (report,) = await run.read_reports(0.2)
    assert report == r.ActivityReport(Activity.INTERRUPTED, "its turn was interrupted")
    assert await run.read_reports(5) == []


async def test_escape_before_the_first_output_is_an_interruption_too(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.read_reports()
    run.now += 1
    run.record("idle")
    assert await run.read_reports() == [] and run.changes.patience == 0.1
    assert await run.read_reports(1) == [r.ActivityReport(Activity.INTERRUPTED, "its turn was interrupted")]


async def test_a_slash_command_is_no_turn(run: SimulatedClaude) -> None:
    run.record("idle")
    await run.read_reports()
    run.record("busy")
    command = "<command-name>/compact</command-name>\n<command-message>compact</command-message><command-args>a</command-args>"
    run.write(
        run.user(command),
        run.user("<local-command-stdout>Compacted</local-command-stdout>"),
        run.user("This session is being continued …", isCompactSummary=True),
    )
    taken_report, active = await run.read_reports(1)
    assert isinstance(taken_report, r.MessageTakenReport) and taken_report.text == "/compact a"
    assert active == ACTIVE
    run.record("idle")
    assert await run.read_reports() == []
    assert await run.read_reports(1) == [IDLE]


async def test_a_turn_before_a_command_is_reported(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.answer_line("Done."), run.user("<command-name>/review</command-name>"))
    assert r.TurnReport("Done.") in await run.read_reports()


def test_typed_text_is_read_from_its_form_in_the_transcript() -> None:
    assert typed_text("<bash-input>ls -l</bash-input>") == "!ls -l"
    assert typed_text("<command-name>/clear</command-name>") == "/clear"
    assert typed_text("plain") == "plain"


async def test_a_final_api_error_interrupts_the_turn(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"), api_error("API Error: 500 scripted", error="server_error", apiErrorStatus=500))
    run.record("idle")
    assert (await run.read_reports())[-1] == r.ActivityReport(Activity.INTERRUPTED, "API Error: 500 scripted")


async def test_retries_are_read_from_the_screen(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.read_reports()
    run.visible = claude.RETRYING
    run.log.write_bytes(b"\x1b[3G529 scripted error 529\x1b[38;5;246m \xc2\xb7 Retrying in 3s \xc2\xb7 attempt 5/10")
    assert await run.read_reports() == [r.ActivityReport(Activity.RETRYING, "529 scripted error 529, attempt 5/10")]
    run.visible = claude.PROMPT
    assert await run.read_reports(1) == [ACTIVE]
    run.visible = claude.RETRYING
    assert await run.read_reports(1) == [], "the screen is left alone when nothing of the kind was printed"


async def test_the_usage_limit_has_its_reset_time(run: SimulatedClaude) -> None:
    run.record("busy")
    quota = {"status": "rejected", "resetsAt": 1794749796, "rateLimitType": "five_hour"}
    text = "You've hit your limit · resets 1:36pm (UTC)"
    run.write(run.user("one"), api_error(text, error="rate_limit", quotaLimits=quota))
    run.record("idle")
    assert (await run.read_reports())[-1] == r.LimitReport(datetime(2026, 11, 15, 13, 36, 36, tzinfo=UTC))


@pytest.mark.parametrize(
    ("kind", "text", "model"),
    [
        ("five_hour", "You've hit your limit", ""),
        ("seven_day_opus", "You've hit your limit", "opus"),
        ("", "You've reached your Opus weekly limit · resets 3pm", "opus"),
        ("seven_day", "You've hit your weekly limit", ""),
    ],
)
def test_a_limit_may_be_for_one_model(kind: str, text: str, model: str) -> None:
    assert limited_model({"rateLimitType": kind}, text) == model


@pytest.mark.parametrize(
    ("text", "resets"),
    [
        ("Claude AI usage limit reached|1794749796", "2026-11-15T13:36:36+00:00"),
        ("You've hit your session limit · resets 3pm (UTC)", "2026-11-15T15:00:00+00:00"),
        ("You've hit your session limit · resets 11:30am (UTC)", "2026-11-16T11:30:00+00:00"),
        ("You've hit your weekly limit · resets Nov 20, 9am (Europe/Berlin)", "2026-11-20T09:00:00+01:00"),
        ("API Error: Request rejected (429)", None),
    ],
)
def test_the_reset_time_is_parsed_from_a_message(text: str, resets: str | None) -> None:
    line = {"timestamp": "2026-11-15T12:00:00Z", "error": "rate_limit"}
    assert limit_reset(line, text) == (datetime.fromisoformat(resets) if resets else None)


async def test_calls_of_a_forges_command_line_are_counted(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.read_reports()
    run.write(
        run.called("Bash", {"command": "cd x && gh pr checks 3; glab mr list"}),
        run.called("Read", {"command": "gh pr"}),
    )
    assert [report.forge for report in await run.read_reports() if isinstance(report, r.UsageReport)] == [2]


async def test_subagents_count_only_usage(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.read_reports()
    folder = run.transcript.with_suffix("") / "subagents"
    run.write(
        {**run.user("side task"), "isSidechain": True}, run.answer_line("side words"), to=folder / "agent-1.jsonl"
    )
    heard = await run.read_reports()
    assert [type(report) for report in heard] == [r.UsageReport]


async def test_the_number_of_subagents_is_limited(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.read_reports()
    folder = run.transcript.with_suffix("") / "subagents"
    for number in range(MAX_JOURNALS + 50):
        run.write(run.answer_line("side words", f"msg_{number}"), to=folder / f"agent-{number}.jsonl")
    assert len(await run.read_reports()) == MAX_JOURNALS
    assert len(run.changes.watched) < MAX_JOURNALS + 10
    assert await run.read_reports() == []


@pytest.mark.parametrize("name", ["*", "**/*", "*/**/**/*", "../../outside", "[!.]*"])
async def test_a_conversation_id_is_not_a_pattern(run: SimulatedClaude, name: str) -> None:
    for other in (run.folder / "projects" / "away" / f"{SESSION}.jsonl", run.folder / "outside.jsonl"):
        run.write(run.user("theirs"), run.answer_line("words of another conversation"), to=other)
    run.record("busy", sessionId=name)
    heard = [report for report in await run.read_reports() if not isinstance(report, r.ConversationReport)]
    assert heard == [r.ActivityReport(Activity.ACTIVE)]


async def test_synthetic_filler_text_is_no_turn(run: SimulatedClaude) -> None:
    run.record("idle")
    await run.read_reports()
    filler = run.answer_line("No response requested.", "u1")
    filler["message"]["model"] = "<synthetic>"
    run.write(filler)
    assert await run.read_reports(1) == []


async def test_a_message_in_several_lines_is_counted_once(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.answer_line("a", stop=None), run.answer_line("b"))
    used = [report for report in await run.read_reports() if isinstance(report, r.UsageReport)]
    assert [usage.output for usage in used] == [50]
    run.record("idle")
    assert await run.read_reports() == [r.TurnReport("a\n\nb")]


async def test_its_to_do_list_is_reported_as_progress(run: SimulatedClaude) -> None:
    run.record("busy")
    todos = [
        {"content": "a", "status": "completed", "activeForm": "doing a"},
        {"content": "b", "status": "in_progress", "activeForm": "doing b"},
        {"content": "c", "status": "pending", "activeForm": "doing c"},
    ]
    run.write(run.user("one"), run.called("TodoWrite", {"todos": todos}))
    assert r.ProgressReport(1, 3, "doing b") in await run.read_reports()


async def test_its_tasks_are_reported_as_progress(run: SimulatedClaude) -> None:
    run.record("busy")
    run.write(
        run.user("one"),
        run.called("TaskCreate", {"subject": "a", "description": "d", "activeForm": "doing a"}, "t1"),
        run.called("TaskCreate", {"subject": "b", "description": "d"}, "t2"),
        run.result("t1", {"task": {"id": "1", "subject": "a"}}),
        run.result("t2", {"task": {"id": "2", "subject": "b"}}),
        run.called("TaskUpdate", {"taskId": "1", "status": "completed"}, "t3"),
        run.called("TaskUpdate", {"taskId": "2", "status": "in_progress"}, "t4"),
    )
    assert [report for report in await run.read_reports() if isinstance(report, r.ProgressReport)][
        -1
    ] == r.ProgressReport(1, 2, "b")
