"""Claude Code: how it is started, and what is heard of it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.claude_code import dialogs
from agent_orchestrator.plugins.agents.claude_code.listener import projects_folder
from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode, rules
from agent_orchestrator.plugins.agents.claude_code.state_files import trusted_root
from agent_orchestrator.plugins.agents.claude_code.transcript import limit_reset, limited_model, typed
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.plugins.agents.shared.journals import MOST_BESIDE
from agent_orchestrator.plugins.agents.shared.user_files import lock_folder
from agent_orchestrator.protocols import Activity, AgentContext, Answers, Headless, Listens, Permission, Typable, Types
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents import claude
from tests.unit.plugins.agents.claude import BEGIN, SESSION, Claude, api_error

pytestmark = pytest.mark.anyio

ACTIVE, IDLE = r.ActivityReport(Activity.ACTIVE), r.ActivityReport(Activity.IDLE)
KEY = "sk-ant-api03-0123456789-0123456789"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def agent() -> ClaudeCode:
    return ClaudeCode({}, LocalHost())


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    for name in ("workspace", "private", "home", "bin"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "claude"
    program.write_text("#!/bin/sh\necho '2.1.325 (Claude Code)'\n")
    program.chmod(0o755)
    return AgentContext(
        session="app-fix",
        project="app",
        workspace=tmp_path / "workspace",
        branch="feature/fix",
        base="main",
        prompt="Fix it\n\nBe kind.",
        task="Fix it",
        system="Be kind.",
        task_file=tmp_path / "private" / "task.md",
        private=tmp_path / "private",
        repo=tmp_path / "repo",
        env={"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin"), "ANTHROPIC_API_KEY": KEY},
    )


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Claude]:
    made = Claude(tmp_path)
    assert await made.hear() == []
    yield made
    await made.close()


def settings(context: AgentContext) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((context.private / "claude-settings.json").read_text())
    return found


def own_file(context: AgentContext) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(context.env["HOME"]) / ".claude.json").read_text())
    return found


# -- starting ----------------------------------------------------------------------------------------------------------


async def test_the_task_is_its_first_message_and_the_rules_its_system_prompt(
    agent: ClaudeCode, context: AgentContext
) -> None:
    launch = await agent.launch(replace(context, model="opus"))
    argv = list(launch.argv)
    assert argv[-2:] == ["--", "Fix it"]
    assert argv[argv.index("--append-system-prompt") + 1] == "Be kind."
    assert argv[argv.index("--model") + 1] == "opus"
    assert argv[argv.index("--session-id") + 1] == launch.conversation
    assert not launch.waits


@pytest.mark.parametrize(
    ("permissions", "mode"),
    [("default", "default"), ("plan", "plan"), ("auto-edit", "acceptEdits"), ("full", "bypassPermissions")],
)
async def test_permissions_are_its_modes(agent: ClaudeCode, context: AgentContext, permissions: str, mode: str) -> None:
    argv = (await agent.launch(replace(context, permissions=permissions))).argv
    assert argv[argv.index("--permission-mode") + 1] == mode
    assert settings(context).get("skipDangerousModePermissionPrompt", False) == (permissions == "full")


def test_auto_edit_allows_the_projects_very_own_commands(context: AgentContext) -> None:
    found = rules(replace(context, commands=("npm ci && npm test", "rm *.pyc")))
    assert found[1:] == ["Bash(npm ci && npm test)"], (
        "a pattern would allow more; such a command is asked for, and allowed by our rule"
    )
    assert not any(rule.startswith("Bash") for rule in rules(replace(context, permissions="default")))


def test_what_a_person_allowed_is_a_rule_of_exactly_that(context: AgentContext) -> None:
    allowed = (
        Permission("Bash", "echo (a)"),
        Permission("WebSearch"),
        Permission("Write", "docs/x.md"),
        Permission("mcp__forge__list", '{"repo": "a"}'),
        Permission("Bash", "rm *.pyc"),
        Permission("Bash", "git commit:*"),
    )
    found = rules(replace(context, permissions="default", allowed=allowed))
    assert found[1:] == [
        "Bash(echo \\(a\\))",
        "WebSearch",
        f"Edit(/{context.workspace}/docs/x.md)",
    ], "and what would be a pattern is asked for"


async def test_hooks_only_append_to_a_file_of_this_launch(agent: ClaudeCode, context: AgentContext) -> None:
    first = await agent.launch(context)
    second = await agent.launch(context)
    assert first.memo["hooks"] != second.memo["hooks"]
    commands = {hook["command"] for event in settings(context)["hooks"].values() for hook in event[0]["hooks"]}
    assert commands == {f"cat >> {context.private / second.memo['hooks']}"}


async def test_it_is_not_started_without_its_program(agent: ClaudeCode, context: AgentContext, tmp_path: Path) -> None:
    found = await ClaudeCode({}, LocalHost()).detect()
    assert found is None or found.version
    assert (await agent.launch(context)).argv[0] == str(tmp_path / "bin" / "claude")


async def test_a_very_long_task_is_read_from_its_file_and_a_very_long_message_is_pasted(
    agent: ClaudeCode, context: AgentContext
) -> None:
    long = "x" * 150_000
    first = await agent.launch(replace(context, task=long, prompt=long))
    assert str(context.task_file) in first.argv[-1] and f"Read(/{context.task_file})" in rules(context)
    write_transcript(context, SESSION)
    later = await agent.launch(replace(context, resume=SESSION, message=long, prompt=long))
    assert later.paste == long and "--" not in later.argv


async def test_a_conversation_is_continued_with_its_rules_and_the_next_message(
    agent: ClaudeCode, context: AgentContext
) -> None:
    write_transcript(context, SESSION)
    launch = await agent.launch(replace(context, resume=SESSION, message="go on", prompt="go on"))
    assert launch.argv[launch.argv.index("--resume") + 1] == SESSION == launch.conversation
    assert launch.argv[-1] == "go on" and "--append-system-prompt" in launch.argv
    silent = await agent.launch(replace(context, resume=SESSION))
    assert silent.waits and "Fix it" not in silent.argv


async def test_the_last_conversation_is_continued_where_there_is_one(agent: ClaudeCode, context: AgentContext) -> None:
    assert "--session-id" in (await agent.launch(replace(context, resume=""))).argv
    write_transcript(context, SESSION)
    launch = await agent.launch(replace(context, resume=""))
    assert "--continue" in launch.argv and launch.conversation is None


async def test_a_conversation_that_was_never_written_begins_anew_with_its_task(
    agent: ClaudeCode, context: AgentContext
) -> None:
    launch = await agent.launch(replace(context, resume=SESSION))
    assert launch.argv[launch.argv.index("--session-id") + 1] == SESSION
    assert launch.argv[-1] == "Fix it"


async def test_a_conversation_of_another_folder_is_brought_here(agent: ClaudeCode, context: AgentContext) -> None:
    there = Path(context.env["HOME"]) / ".claude" / "projects" / "-home-me-app" / f"{SESSION}.jsonl"
    there.parent.mkdir(parents=True)
    there.write_text('{"type": "user"}\n')
    launch = await agent.launch(replace(context, resume=SESSION))
    assert "--resume" in launch.argv
    here = projects_folder(Path(context.env["HOME"]) / ".claude", context.workspace) / f"{SESSION}.jsonl"
    assert here.read_text() == there.read_text()


def write_transcript(context: AgentContext, session: str) -> Path:
    path = projects_folder(Path(context.env["HOME"]) / ".claude", context.workspace) / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    return path


def test_what_it_would_take_for_something_else_is_typed_as_text(agent: ClaudeCode) -> None:
    assert agent.typed("!rm -rf x") == " !rm -rf x"
    assert agent.typed("ends with \\") == "ends with \\ "
    assert agent.typed("/compact") == "/compact"


def test_more_arguments_may_be_configured(context: AgentContext) -> None:
    with pytest.raises(UsageError):
        ClaudeCode({"args": "--effort high"}, LocalHost())


async def test_configured_arguments_come_before_the_task(context: AgentContext) -> None:
    argv = (await ClaudeCode({"args": ["--effort", "high"]}, LocalHost()).launch(context)).argv
    assert argv[argv.index("--effort") + 1] == "high" and argv.index("--effort") < argv.index("--")


# -- dialogs answered ahead --------------------------------------------------------------------------------------------


async def test_its_own_file_keeps_what_was_in_it(agent: ClaudeCode, context: AgentContext, tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", Path(context.env["HOME"]) / ".claude.json"
    real.write_text(json.dumps({"mcpServers": {"a": 1}, "projects": {"/else": {"x": 1}}, "theme": "light"}))
    real.chmod(0o640)
    link.symlink_to(real)
    await agent.launch(context)
    data = own_file(context)
    assert data["mcpServers"] == {"a": 1} and data["theme"] == "light" and data["hasCompletedOnboarding"] is True
    assert data["projects"]["/else"] == {"x": 1}
    assert data["projects"][str(context.workspace)]["hasTrustDialogAccepted"] is True
    assert data["customApiKeyResponses"]["approved"] == [KEY[-20:]]
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o640
    before = real.stat().st_mtime_ns
    await agent.launch(context)
    assert real.stat().st_mtime_ns == before, "nothing was missing"


async def test_its_own_file_is_written_under_its_lock(
    agent: ClaudeCode, context: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    lock, merge = Path(context.env["HOME"]) / ".claude.json.lock", cli.merge_json

    def watched(path: Path, change: Callable[[dict[str, Any]], bool], agents: Path) -> None:
        held.append(lock.is_dir())
        merge(path, change, agents)

    monkeypatch.setattr(cli, "merge_json", watched)
    await agent.launch(context)
    assert held == [True] and not lock.exists()


async def test_a_rejected_key_stays_rejected_and_a_broken_file_as_it_is(
    agent: ClaudeCode, context: AgentContext
) -> None:
    file = Path(context.env["HOME"]) / ".claude.json"
    file.write_text(json.dumps({"customApiKeyResponses": {"approved": [], "rejected": [KEY[-20:]]}}))
    await agent.launch(context)
    assert own_file(context)["customApiKeyResponses"]["approved"] == []
    file.write_text("{broken")
    await agent.launch(context)
    assert file.read_text() == "{broken"


async def test_a_moved_configuration_folder_is_used(agent: ClaudeCode, context: AgentContext, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    launch = await agent.launch(replace(context, env={**context.env, "CLAUDE_CONFIG_DIR": str(moved)}))
    assert json.loads((moved / ".claude.json").read_text())["hasCompletedOnboarding"] is True
    assert launch.memo["folder"] == str(moved)
    assert not (Path(context.env["HOME"]) / ".claude.json").exists()


def test_trust_is_kept_for_a_worktrees_main_checkout_and_for_a_clone_itself(tmp_path: Path) -> None:
    def git(*argv: str, cwd: Path = tmp_path) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *argv], cwd=cwd, check=True)

    git("init", "-q", "repo")
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=tmp_path / "repo")
    git("worktree", "add", "-q", str(tmp_path / "tree"), cwd=tmp_path / "repo")
    git("clone", "-q", "repo", "copy")
    assert trusted_root(tmp_path / "tree") == tmp_path / "repo"
    assert trusted_root(tmp_path / "copy") == tmp_path / "copy"


def test_its_lock_is_waited_for_and_a_dead_ones_lock_is_taken(tmp_path: Path) -> None:
    file, lock = tmp_path / "f.json", tmp_path / "f.json.lock"
    with lock_folder(file) as held:
        assert held and lock.is_dir()
        with lock_folder(file, patience=0.05) as again:
            assert not again
    assert not lock.exists()
    lock.mkdir()
    old = (datetime.now(UTC) - timedelta(minutes=1)).timestamp()
    os.utime(lock, (old, old))
    with lock_folder(file, patience=0.05) as taken:
        assert taken


# -- what it does ------------------------------------------------------------------------------------------------------


async def test_it_can_do_all_of_it(agent: ClaudeCode) -> None:
    assert isinstance(agent, Listens) and isinstance(agent, Answers)
    assert isinstance(agent, Headless) and isinstance(agent, Types)


async def test_a_turn_from_its_prompt_to_its_last_words(run: Claude) -> None:
    run.hook("SessionStart", source="startup")
    run.record("idle")
    assert await run.hear() == [r.ConversationReport(SESSION), IDLE]
    run.now += 1
    run.record("busy")
    run.write(run.user("do it"))
    took, active = await run.hear()
    assert isinstance(took, r.TookReport) and took.text == "do it"
    assert active == ACTIVE
    run.write(run.said("Which one?"))
    (used,) = await run.hear()
    assert isinstance(used, r.UsageReport)
    assert (used.input, used.output, used.cache_read, used.cache_write) == (1000, 50, 300, 200)
    run.record("idle")
    assert await run.hear() == [r.TurnReport("Which one?")]
    assert await run.hear(10) == [], "idle is not told again"
    assert run.changes.patience is None, "nothing is asked while nothing happens"


async def test_idle_for_a_moment_before_the_first_prompt_is_not_idle(run: Claude) -> None:
    run.memo["prompt"] = "1"
    run.record("idle")
    assert await run.hear() == []
    run.record("busy")
    assert await run.hear(1) == [ACTIVE]


async def test_the_transcript_may_be_ahead_of_the_record(run: Claude) -> None:
    run.record("idle")
    await run.hear()
    run.now += 30
    run.write(run.user("next"))
    took, active = await run.hear()
    assert isinstance(took, r.TookReport)
    assert active == ACTIVE, "its record still says idle: that was before this message"
    run.record("busy")
    assert await run.hear() == []


async def test_two_messages_in_its_queue_are_two_turns(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.said("first"), run.user("two", promptSource="queued"))
    heard = [report for report in await run.hear() if not isinstance(report, r.UsageReport)]
    assert [type(report) for report in heard] == [r.TookReport, r.TurnReport, r.TookReport, r.ActivityReport]


async def test_a_message_taken_up_in_mid_turn(run: Claude) -> None:
    run.record("busy")
    queued = {"type": "queued_command", "prompt": "by the way", "commandMode": "prompt", "origin": {"kind": "human"}}
    run.write(run.user("one"), {"type": "attachment", "attachment": queued})
    texts = [report.text for report in await run.hear() if isinstance(report, r.TookReport)]
    assert texts == ["one", "by the way"]


async def test_a_hook_of_the_users_may_make_it_go_on(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.said("Done?", "msg_1"))
    assert not any(isinstance(report, r.TurnReport) for report in await run.hear())
    run.write(run.said("Really done.", "msg_2"))
    run.record("idle")
    assert [report for report in await run.hear() if isinstance(report, r.TurnReport)] == [r.TurnReport("Really done.")]


@pytest.mark.parametrize("mark", ["[Request interrupted by user]", "[Request interrupted by user for tool use]"])
async def test_escape_is_an_interruption(run: Claude, mark: str) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.hear()
    run.record("idle")
    assert await run.hear() == [], "the transcript follows"
    run.write(run.user(mark, origin=None))
    (told,) = await run.hear(0.2)
    assert told == r.ActivityReport(Activity.INTERRUPTED, "its turn was interrupted")
    assert await run.hear(5) == []


async def test_escape_before_the_first_word_leaves_no_mark_and_is_an_interruption_all_the_same(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.hear()
    run.now += 1
    run.record("idle")
    assert await run.hear() == [] and run.changes.patience == 0.1
    assert await run.hear(1) == [r.ActivityReport(Activity.INTERRUPTED, "its turn was interrupted")]


async def test_a_command_of_its_own_is_no_turn(run: Claude) -> None:
    run.record("idle")
    await run.hear()
    run.record("busy")
    command = "<command-name>/compact</command-name>\n<command-message>compact</command-message><command-args>a</command-args>"
    run.write(
        run.user(command),
        run.user("<local-command-stdout>Compacted</local-command-stdout>"),
        run.user("This session is being continued …", isCompactSummary=True),
    )
    took, active = await run.hear(1)
    assert isinstance(took, r.TookReport) and took.text == "/compact a"
    assert active == ACTIVE
    run.record("idle")
    assert await run.hear() == []
    assert await run.hear(1) == [IDLE]


async def test_a_turn_before_a_command_is_told(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.said("Done."), run.user("<command-name>/review</command-name>"))
    assert r.TurnReport("Done.") in await run.hear()


def test_what_was_typed_is_read_from_its_form_in_the_transcript() -> None:
    assert typed("<bash-input>ls -l</bash-input>") == "!ls -l"
    assert typed("<command-name>/clear</command-name>") == "/clear"
    assert typed("plain") == "plain"


async def test_an_api_error_that_it_gave_up_on(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), api_error("API Error: 500 scripted", error="server_error", apiErrorStatus=500))
    run.record("idle")
    assert (await run.hear())[-1] == r.ActivityReport(Activity.INTERRUPTED, "API Error: 500 scripted")


async def test_retries_are_read_from_the_screen_while_they_last(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.hear()
    run.shown = claude.RETRYING
    run.log.write_bytes(b"\x1b[3G529 scripted error 529\x1b[38;5;246m \xc2\xb7 Retrying in 3s \xc2\xb7 attempt 5/10")
    assert await run.hear() == [r.ActivityReport(Activity.RETRYING, "529 scripted error 529, attempt 5/10")]
    run.shown = claude.PROMPT
    assert await run.hear(1) == [ACTIVE]
    run.shown = claude.RETRYING
    assert await run.hear(1) == [], "the screen is left alone when nothing of the kind was printed"


async def test_the_usage_limit_with_its_end(run: Claude) -> None:
    run.record("busy")
    quota = {"status": "rejected", "resetsAt": 1794749796, "rateLimitType": "five_hour"}
    text = "You've hit your limit · resets 1:36pm (UTC)"
    run.write(run.user("one"), api_error(text, error="rate_limit", quotaLimits=quota))
    run.record("idle")
    assert (await run.hear())[-1] == r.LimitReport(datetime(2026, 11, 15, 13, 36, 36, tzinfo=UTC))


@pytest.mark.parametrize(
    ("kind", "text", "model"),
    [
        ("five_hour", "You've hit your limit", ""),
        ("seven_day_opus", "You've hit your limit", "opus"),
        ("", "You've reached your Opus weekly limit · resets 3pm", "opus"),
        ("seven_day", "You've hit your weekly limit", ""),
    ],
)
def test_a_limit_may_be_one_models(kind: str, text: str, model: str) -> None:
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
def test_when_a_limit_ends_by_what_it_says(text: str, resets: str | None) -> None:
    line = {"timestamp": "2026-11-15T12:00:00Z", "error": "rate_limit"}
    assert limit_reset(line, text) == (datetime.fromisoformat(resets) if resets else None)


async def test_calls_of_a_forges_command_line_are_counted(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.hear()
    run.write(
        run.called("Bash", {"command": "cd x && gh pr checks 3; glab mr list"}),
        run.called("Read", {"command": "gh pr"}),
    )
    assert [report.forge for report in await run.hear() if isinstance(report, r.UsageReport)] == [2]


async def test_subagents_count_and_say_nothing(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.hear()
    folder = run.transcript.with_suffix("") / "subagents"
    run.write({**run.user("side task"), "isSidechain": True}, run.said("side words"), to=folder / "agent-1.jsonl")
    heard = await run.hear()
    assert [type(report) for report in heard] == [r.UsageReport]


async def test_of_subagents_without_end_some_count(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.hear()
    folder = run.transcript.with_suffix("") / "subagents"
    for number in range(MOST_BESIDE + 50):
        run.write(run.said("side words", f"msg_{number}"), to=folder / f"agent-{number}.jsonl")
    assert len(await run.hear()) == MOST_BESIDE
    assert len(run.changes.watched) < MOST_BESIDE + 10
    assert await run.hear() == []


@pytest.mark.parametrize("name", ["*", "**/*", "*/**/**/*", "../../outside", "[!.]*"])
async def test_its_conversation_is_a_name_and_no_pattern(run: Claude, name: str) -> None:
    for other in (run.folder / "projects" / "away" / f"{SESSION}.jsonl", run.folder / "outside.jsonl"):
        run.write(run.user("theirs"), run.said("words of another conversation"), to=other)
    run.record("busy", sessionId=name)
    heard = [report for report in await run.hear() if not isinstance(report, r.ConversationReport)]
    assert heard == [r.ActivityReport(Activity.ACTIVE)]


async def test_what_it_says_itself_to_fill_a_gap_is_no_turn(run: Claude) -> None:
    run.record("idle")
    await run.hear()
    filler = run.said("No response requested.", "u1")
    filler["message"]["model"] = "<synthetic>"
    run.write(filler)
    assert await run.hear(1) == []


async def test_a_message_in_several_lines_is_counted_once(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.said("a", stop=None), run.said("b"))
    used = [report for report in await run.hear() if isinstance(report, r.UsageReport)]
    assert [one.output for one in used] == [50]
    run.record("idle")
    assert await run.hear() == [r.TurnReport("a\n\nb")]


async def test_its_to_do_list_is_the_progress(run: Claude) -> None:
    run.record("busy")
    todos = [
        {"content": "a", "status": "completed", "activeForm": "doing a"},
        {"content": "b", "status": "in_progress", "activeForm": "doing b"},
        {"content": "c", "status": "pending", "activeForm": "doing c"},
    ]
    run.write(run.user("one"), run.called("TodoWrite", {"todos": todos}))
    assert r.ProgressReport(1, 3, "doing b") in await run.hear()


async def test_its_tasks_are_the_progress(run: Claude) -> None:
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
    assert [report for report in await run.hear() if isinstance(report, r.ProgressReport)][-1] == r.ProgressReport(
        1, 2, "b"
    )


# -- what it asks ------------------------------------------------------------------------------------------------------


async def test_a_permission_with_command_and_reason(run: Claude) -> None:
    run.record("busy")
    given = {"command": "curl http://x", "description": "Fetch x"}
    run.write(run.user("one"), run.called("Bash", given))
    run.hook("PermissionRequest", tool_name="Bash", tool_input=given)
    await run.hear()
    run.record("waiting", "permission prompt")
    (asked,) = await run.hear()
    assert isinstance(asked, r.PermissionReport)
    assert (asked.tool, asked.command, asked.reason) == ("Bash", "curl http://x", "Fetch x") and asked.request
    assert await run.hear(20) == []
    run.record("busy")
    assert await run.hear() == [ACTIVE]
    run.hook("PermissionRequest", tool_name="Bash", tool_input=given)
    run.record("waiting", "permission prompt")
    (again,) = await run.hear()
    assert isinstance(again, r.PermissionReport) and again.request != asked.request


async def test_an_old_request_is_not_taken_for_what_another_dialog_asks(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.called("Bash", {"command": "make"}, "t1"), run.result("t1"))
    run.hook("PermissionRequest", tool_name="Bash", tool_input={"command": "make"})
    await run.hear()
    run.now += 60
    run.write(run.called("Write", {"file_path": "/n.txt"}, "t2"))
    run.record("waiting", "permission prompt")
    await run.hear()
    (asked,) = await run.hear(1)
    assert isinstance(asked, r.PermissionReport) and asked.command == "/n.txt"


async def test_a_request_that_was_answered_is_over(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.called("Bash", {"command": "make"}, "t1"))
    run.hook("PermissionRequest", tool_name="Bash", tool_input={"command": "make"})
    run.record("waiting", "permission prompt")
    assert isinstance((await run.hear())[-1], r.PermissionReport)
    run.record("busy")
    run.write(run.result("t1"), run.called("Write", {"file_path": "/n.txt"}, "t2"))
    await run.hear()
    run.record("waiting", "permission prompt")
    await run.hear()
    (asked,) = await run.hear(1)
    assert isinstance(asked, r.PermissionReport) and asked.command == "/n.txt"


async def test_a_permission_without_a_hook_is_known_by_the_call_without_a_result(run: Claude) -> None:
    run.record("busy")
    path = str(run.workspace / "docs" / "n.txt")
    run.write(run.user("one"), run.called("Write", {"file_path": path, "content": "x"}))
    await run.hear()
    run.record("waiting", "permission prompt")
    assert await run.hear() == []
    (asked,) = await run.hear(1)
    assert isinstance(asked, r.PermissionReport) and (asked.tool, asked.command) == ("Write", "docs/n.txt")


async def test_a_question_with_choices_is_answered_by_text(run: Claude) -> None:
    run.record("busy")
    one = {
        "question": "Which database?",
        "multiSelect": False,
        "options": [{"label": "PostgreSQL", "description": "big"}, {"label": "SQLite"}],
    }
    run.write(run.user("one"), run.called("AskUserQuestion", {"questions": [one]}))
    run.hook("PermissionRequest", tool_name="AskUserQuestion", tool_input={"questions": [one]})
    run.record("waiting", "input needed")
    asked = (await run.hear())[-1]
    assert asked == r.AskReport("Which database?\n- PostgreSQL: big\n- SQLite")
    run.write(run.result(outcome={"answers": {"Which database?": "use mysql"}}))
    (took,) = await run.hear()
    assert isinstance(took, r.TookReport) and took.text == "use mysql"


async def test_several_questions_at_once_are_a_dialog_to_be_answered_there(run: Claude) -> None:
    run.record("busy")
    one = {"question": "Which colours?", "multiSelect": True, "options": []}
    run.hook("PermissionRequest", tool_name="AskUserQuestion", tool_input={"questions": [one]})
    run.record("waiting", "input needed")
    asked = (await run.hear())[-1]
    assert isinstance(asked, r.PermissionReport) and "deny with the answers" in asked.reason


async def test_a_dialog_of_another_kind_blocks_too(run: Claude) -> None:
    run.record("idle")
    await run.hear()
    run.shown = claude.PLAN_DIALOG
    run.record("waiting", "dialog open")
    assert await run.hear() == []
    assert await run.hear(1) == [r.ActivityReport(Activity.BLOCKED, "Exit plan mode?")]


async def test_a_start_that_never_speaks_is_looked_at(run: Claude) -> None:
    run.shown = "Select login method:\n\n ❯ 1. Claude account with subscription\n   2. Anthropic Console account\n"
    assert await run.hear() == []
    assert await run.hear(6) == [r.ActivityReport(Activity.BLOCKED, "Select login method:")]


@pytest.mark.parametrize(
    ("screen", "command", "decision", "keys"),
    [
        (claude.PERMISSION_DIALOG, "rm -f foo.txt && curl http://x", "allow", ("1",)),
        (claude.PERMISSION_DIALOG, "rm -f foo.txt && curl http://x", "always", ("1",)),
        (claude.PERMISSION_DIALOG, "rm -f foo.txt && curl http://x", "deny", ("Escape",)),
        (claude.PERMISSION_DIALOG, "rm -rf /", "allow", None),
        (claude.FILE_DIALOG, "/home/me/plans/n.txt", "allow", ("Down", "Enter")),
        (claude.PLAN_DIALOG, "", "allow", ("1",)),
        (claude.PLAN_DIALOG, "", "deny", ("Escape",)),
        (claude.QUESTION_DIALOG, "Which database?\n- PostgreSQL: big\n- SQLite", "deny", ("Escape",)),
        (claude.QUESTION_DIALOG, "Which database?\n- PostgreSQL: big\n- SQLite", "allow", None),
    ],
)
async def test_answers_are_the_keys_of_the_dialog_that_is_shown(
    agent: ClaudeCode, run: Claude, screen: str, command: str, decision: str, keys: tuple[str, ...] | None
) -> None:
    run.shown = screen
    dialog = dialogs.read(screen)
    assert dialog is not None
    assert dialogs.key_for(dialog, command, decision) == keys
    if keys:
        assert await agent.answer(run.run, Permission("Bash", command), decision, "") == keys


async def test_a_dialog_is_answered_when_it_stood_for_a_while(agent: ClaudeCode, run: Claude) -> None:
    looks = []

    async def screen() -> str:
        looks.append(1)
        return claude.PERMISSION_DIALOG

    await agent.answer(replace(run.run, screen=screen), Permission("Bash", ""), "allow", "")
    assert len(looks) > 3


async def test_nothing_is_pressed_where_no_dialog_is(
    agent: ClaudeCode, run: Claude, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_orchestrator.plugins.agents.claude_code.plugin.DIALOG_WITHIN", 0.2)
    assert dialogs.read(claude.PROMPT) is None
    assert await agent.answer(run.run, Permission("Bash", "x"), "allow", "") is None


# -- what Escape leaves behind -----------------------------------------------------------------------------------------


async def test_what_escape_put_back_into_its_prompt_is_removed_before_a_message(agent: ClaudeCode, run: Claude) -> None:
    async def delivered(shown: str, *, interrupt: bool = False) -> Typable | None:
        run.shown = claude.PROMPT.replace("1. this is being typed", shown)
        return await agent.deliver(run.run, "m-1", "next", interrupt=interrupt)

    run.memo["folder"] = str(run.folder)
    run.write(run.user("do a long thing\nin two lines"))
    run.record("busy")
    assert await delivered("do a long thing") is None, "it is at work: that is a person's"
    run.record("idle")
    assert await delivered("do a long thing") == Typable(("C-c",))
    assert await delivered("[Pasted text #1 +80 lines]") == Typable(("C-c",))
    assert await delivered("something else") is None, "a person's"
    assert await delivered("") is None
    assert await delivered("do a long thing", interrupt=True) is None
    run.write(run.said("Done."))
    assert await delivered("do a long thing") is None, "it was answered"


# -- restarts ----------------------------------------------------------------------------------------------------------


async def test_a_restarted_daemon_tells_nothing_twice(run: Claude) -> None:
    run.hook("SessionStart")
    run.record("busy")
    run.write(run.user("one"), run.said("Which one?"))
    await run.hear()
    run.record("idle")
    assert r.TurnReport("Which one?") in await run.hear()
    await run.restart()
    heard = await run.hear(60)
    (idle,) = heard
    assert isinstance(idle, r.ActivityReport) and idle.time is not None
    assert idle.time < datetime.fromtimestamp(BEGIN, UTC), "older than what is known: it replaces nothing"


async def test_a_turn_that_ended_while_nobody_listened(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"), run.said("Done."))
    heard = await run.heard()
    last = next(one for one in heard if isinstance(one.reports[0], r.UsageReport))
    await run.restart()
    run.now += 5
    run.record("idle")
    again = await run.heard()
    assert again[0] == last, "the line is read again and told under the same name"
    assert again[1].reports == (r.TurnReport("Done.", datetime.fromtimestamp(BEGIN + 5, UTC)),)
    assert again[1].end > again[1].start


async def test_what_a_person_did_by_hand_before_is_not_this_sessions(run: Claude) -> None:
    run.now = BEGIN - 3600
    run.write(run.user("by hand"), run.said("Yes."))
    run.now = BEGIN + 1
    await run.hear()
    run.record("idle")
    assert await run.hear() == [IDLE]


async def test_another_processs_record_with_the_same_pid_is_not_read(run: Claude) -> None:
    run.record("busy", procStart="17")
    assert await run.hear() == []


async def test_a_program_behind_a_script_is_found_by_its_conversation(run: Claude) -> None:
    run.record("busy", pid=5000, procStart="99")
    assert await run.hear() == [ACTIVE]


async def test_a_new_conversation_is_followed(run: Claude) -> None:
    run.record("idle")
    await run.hear()
    other = "5c1d0b8f-2f5e-4f8e-9a52-6f1d2c3b4a59"
    run.hook("SessionStart", session_id=other, transcript_path=str(run.transcript.with_stem(other)), source="clear")
    run.record("idle", sessionId=other)
    assert await run.hear() == [r.ConversationReport(other)]
    run.write(run.user("anew"), to=run.transcript.with_stem(other))
    assert any(isinstance(report, r.TookReport) for report in await run.hear())


async def test_without_a_record_the_transcript_is_enough(run: Claude) -> None:
    run.write(run.user("one"))
    assert (await run.hear())[-1] == ACTIVE
    run.write(run.said("Done."))
    assert r.TurnReport("Done.") in await run.hear()


async def test_its_end_is_heard_to_the_last_line(run: Claude) -> None:
    run.record("busy")
    run.write(run.user("one"))
    await run.hear()
    run.write(run.said("Last words."))
    assert r.TurnReport("Last words.") in await run.end()


# -- without a terminal ------------------------------------------------------------------------------------------------


def test_a_turn_without_a_terminal(agent: ClaudeCode, context: AgentContext) -> None:
    first = agent.turn(context, "--do it", None)
    assert first.stdin == "--do it" and "-p" in first.argv and "stream-json" in first.argv
    assert "--session-id" in first.argv
    write_transcript(context, SESSION)
    later = agent.turn(context, "more", SESSION)
    assert later.argv[later.argv.index("--resume") + 1] == SESSION
    (hook,) = settings(context)["hooks"]["PreToolUse"]
    assert hook["matcher"] == "Bash" and "agent_orchestrator.sessions.permissions.hook" in hook["hooks"][0]["command"]
    agent.turn(replace(context, permissions="default"), "more", SESSION)
    assert "hooks" not in settings(context)


def test_a_turn_whose_last_words_must_have_a_shape(agent: ClaudeCode, context: AgentContext) -> None:
    argv = agent.turn(replace(context, schema='{"type": "object"}'), "plan", None).argv
    assert argv[argv.index("--json-schema") + 1] == '{"type": "object"}'
    assert "--json-schema" not in agent.turn(context, "plan", None).argv
    ended = {"type": "result", "result": "I am done.", "structured_output": {"tasks": ["é"]}}
    assert agent.read_turn(json.dumps(ended)).reports == (r.TurnReport('{"tasks": ["é"]}'),)


def test_the_lines_of_a_turn(agent: ClaudeCode) -> None:
    def read(**data: Any) -> Any:
        return agent.read_turn(json.dumps(data))

    assert read(type="system", subtype="init", session_id=SESSION).reports == (r.ConversationReport(SESSION),)
    retry = read(
        type="system", subtype="api_retry", attempt=1, max_retries=10, error_status=529, error="overloaded"
    ).reports
    assert retry == (r.ActivityReport(Activity.RETRYING, "529 overloaded, attempt 1/10"),)
    limit = read(type="rate_limit_event", rate_limit_info={"status": "rejected", "resetsAt": 1794749796}).reports
    assert limit == (r.LimitReport(datetime(2026, 11, 15, 13, 36, 36, tzinfo=UTC)),)
    said = read(type="assistant", message={"content": [{"type": "text", "text": "Fine."}]})
    assert said.show == "Fine."
    used = {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 3, "costUSD": 0.01}
    end = read(type="result", result="Fine.", usage={"input_tokens": 10}, model_usage_since_last_result={"opus": used})
    assert end.reports == (r.UsageReport("opus", 10, 5, 3, 0, 0.01), r.TurnReport("Fine."))
    older = read(type="result", is_error=True, result="API Error", usage={"input_tokens": 10, "output_tokens": 2})
    assert older.reports == (r.UsageReport("", 10, 2),)
    assert agent.read_turn("no JSON").show == "no JSON"


def test_a_command_is_told_whole_and_as_it_is() -> None:
    """`WORKSPACE/git` is a program of the agent's own, and what stands behind a long beginning counts too."""
    workspace = Path("/w")
    assert dialogs.asked({"command": "/w/git status"}, workspace)[0] == "/w/git status"
    assert dialogs.asked({"file_path": "/w/src/a.py"}, workspace)[0] == "src/a.py"
    long = "git add " + "a " * 3000 + "&& evil"
    assert dialogs.asked({"command": long}, workspace)[0] == long
