"""aider: its launch and reports. The lines were recorded from aider 0.86.2."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.aider import chat_history, plugin
from agent_orchestrator.plugins.agents.aider.plugin import Aider
from agent_orchestrator.plugins.agents.shared import input_prompts
from agent_orchestrator.protocols import Activity, AgentContext, NotReady, ReadyToType
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.stepped_run import CLOCK, WaitingClock, make_run, read_all_batches, reports

pytestmark = pytest.mark.anyio

ACTIVE = r.ActivityReport(Activity.ACTIVE)
PROMPT = "\x1b[6n\x1b[?2004h\x1b[?25l\x1b[0m\x1b[?7l\x1b[0m\x1b[J\x1b[0;38;5;40m> \x1b[0m\r\r\n\x1b[?7h"
SUBMITTED = "text\r\n\x1b[?2004l\r\n"
CHAT = """
# aider chat started at 2026-11-15 11:33:25

> aider --model openai/gpt-5__
> Aider v0.86.2__
> Main model: openai/gpt-5 with diff edit format__
> Weak model: openai/gpt-5-nano__
""".replace("__", "  ")


def asks(question: str) -> str:
    return f"\x1b[6n\x1b[?2004h\x1b[?25l\x1b[0m\x1b[J\x1b[0;38;5;40m{question} (Y)es/(N)o [Yes]: \x1b[?7h\x1b[?25h"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> WaitingClock:
    for module in (plugin, chat_history, input_prompts):
        monkeypatch.setattr(module, "monotonic", CLOCK)
    return CLOCK


@pytest.fixture
def agent() -> Aider:
    return Aider({}, LocalHost())


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    for name in ("workspace", "private", "bin", "home"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "aider"
    program.write_text("#!/bin/sh\n")
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
        repo=tmp_path,
        env={"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path / "home")},
    )


class Files:
    """What aider writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "private" / "aider"
        self.folder.mkdir(parents=True)
        self.log = folder / "private" / "terminal.log"
        self.chat(CHAT)

    def chat(self, text: str) -> Files:
        return self._add(self.folder / "chat.history.md", text)

    def show(self, text: str) -> Files:
        return self._add(self.log, text)

    def event(self, event: str, **properties: object) -> Files:
        line = {"event": event, "properties": properties, "user_id": "u", "time": 1794742455}
        return self._add(self.folder / "events.jsonl", json.dumps(line) + "\n")

    def message(self, text: str) -> Files:
        """Write the user's text at the prompt."""
        return self.show(SUBMITTED).chat("\n#### " + "  \n#### ".join(text.splitlines()) + "  \n")

    def answer(self, text: str) -> Files:
        """Write the model's text."""
        counted = "> Tokens: 850 sent, 11 received. Cost: $0.0012 message, $0.0012 session.  \n"
        self.event("message_send_starting").chat(f"\n{text}\n\n{counted}")
        used = {"main_model": "openai/REDACTED", "prompt_tokens": 850, "completion_tokens": 11, "cost": 0.00117}
        return self.event("message_send", **used)

    def _add(self, path: Path, text: str) -> Files:
        with path.open("ab") as file:
            file.write(text.encode())
        return self


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "private").mkdir(exist_ok=True)
    return Files(tmp_path)


# -- starting ----------------------------------------------------------------------------------------------------------


async def test_its_abilities(agent: Aider) -> None:
    assert agent.listens and agent.delivers_messages and agent.has_headless_mode
    assert not agent.answers_requests and not agent.detects_unsent_text


async def test_the_task_is_typed_and_the_rules_are_a_file_it_reads(agent: Aider, context: AgentContext) -> None:
    launch = await agent.launch(context)
    assert launch.paste == "Fix it"
    rules = Path(launch.argv[launch.argv.index("--read") + 1])
    assert rules.read_text() == "Be kind." and rules.is_relative_to(context.private)
    assert "--restore-chat-history" not in launch.argv and launch.plugin_data["task"]


async def test_its_files_are_outside_the_workspace(agent: Aider, context: AgentContext) -> None:
    launch = await agent.launch(context)
    for option in ("--chat-history-file", "--input-history-file", "--analytics-log"):
        assert Path(launch.argv[launch.argv.index(option) + 1]).is_relative_to(context.private)
    assert launch.argv[launch.argv.index("--llm-history-file") + 1] == ""
    assert list(context.workspace.iterdir()) == []


async def test_git_does_not_see_its_cache(agent: Aider, context: AgentContext) -> None:
    git = {"cwd": context.workspace, "check": True, "capture_output": True}
    subprocess.run(["git", "init", "-q"], **git)  # type: ignore[call-overload]
    await agent.launch(context)
    (context.workspace / ".aider.tags.cache.v4").mkdir()
    (context.workspace / ".aider.tags.cache.v4" / "cache.db").touch()
    status = subprocess.run(["git", "status", "--porcelain"], **git)  # type: ignore[call-overload]
    assert status.stdout == b""


async def test_a_missing_identity_is_given_and_not_written(agent: Aider, context: AgentContext) -> None:
    subprocess.run(["git", "init", "-q"], cwd=context.workspace, check=True)
    env = {**context.env, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": "1"}
    env |= {"GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Me"}
    launch = await agent.launch(replace(context, env=env))
    assert launch.env["GIT_CONFIG_COUNT"] == "2"
    assert (launch.env["GIT_CONFIG_KEY_1"], launch.env["GIT_CONFIG_VALUE_1"]) == ("user.email", "aider@localhost")


@pytest.mark.parametrize(
    ("permissions", "has", "has_not"),
    [
        ("default", (), ("--yes-always", "--auto-test")),
        ("plan", ("--chat-mode", "--yes-always", "--no-suggest-shell-commands"), ("--auto-test",)),
        ("auto-edit", ("--auto-test",), ("--yes-always",)),
        ("full", ("--auto-test",), ("--yes-always",)),
    ],
)
async def test_permissions(
    agent: Aider, context: AgentContext, permissions: str, has: tuple[str, ...], has_not: tuple[str, ...]
) -> None:
    launch = await agent.launch(replace(context, permissions=permissions, commands=("make test", "make lint")))
    assert set(has) <= set(launch.argv) and not set(has_not) & set(launch.argv)
    if "--auto-test" in has:
        assert launch.argv[launch.argv.index("--test-cmd") + 1] == "make test && make lint"


async def test_a_very_long_task_is_a_file_it_reads(agent: Aider, context: AgentContext) -> None:
    launch = await agent.launch(replace(context, task="word " * 30_000))
    assert launch.paste is not None and len(launch.paste) < 200
    read = [launch.argv[n + 1] for n, word in enumerate(launch.argv) if word == "--read"]
    assert Path(read[-1]).read_text() == "word " * 30_000


@pytest.mark.parametrize("text", ["/run rm -rf .", "!rm -rf .", "{", "{tag"])
async def test_a_message_is_never_a_command(agent: Aider, text: str) -> None:
    assert agent.escape_input(text) == f" {text}"
    assert agent.escape_input(f"see {text}") == f"see {text}"


async def test_its_own_conversation_is_continued(agent: Aider, context: AgentContext) -> None:
    first = await agent.launch(context)
    assert first.conversation is not None
    Path(first.conversation).write_text(CHAT)
    again = await agent.launch(replace(context, resume=first.conversation, message="And now?"))
    assert "--restore-chat-history" in again.argv
    assert again.paste == "And now?" and again.plugin_data["chat"] == str(len(CHAT))
    silent = await agent.launch(replace(context, resume=first.conversation))
    assert silent.paste is None and silent.waits and "task" not in silent.plugin_data


async def test_a_conversation_begun_by_hand_is_copied(agent: Aider, context: AgentContext) -> None:
    mine = context.repo / ".aider.chat.history.md"
    mine.write_text("#### hello  \n")
    launch = await agent.launch(replace(context, resume=".aider.chat.history.md", message="go on"))
    assert "--restore-chat-history" in launch.argv and launch.conversation != str(mine)
    assert Path(str(launch.conversation)).read_text() == "#### hello  \n" == mine.read_text()
    with pytest.raises(UsageError):
        await agent.launch(replace(context, private=context.repo / "new", resume="no-such-file"))


# -- hearing -----------------------------------------------------------------------------------------------------------


async def test_a_turn(agent: Aider, tmp_path: Path, files: Files) -> None:
    steps = [
        lambda: files.show("starting" + PROMPT),
        lambda: files.message("Please do\n\n#### not a user's line\n> nor this"),
        lambda: files.answer("I do.\n\na.txt\n```\nhello\n```\n\nDone one"),
        lambda: (files.chat("> Applied edit to a.txt  \n> Commit d534d35 feat: a  \n"), files.show(PROMPT)),
    ]
    batches = await read_all_batches(agent, make_run(tmp_path, steps))
    assert reports(batches) == [
        r.ActivityReport(Activity.IDLE),
        r.MessageTakenReport("Please do\n\n#### not a user's line\n> nor this"),
        ACTIVE,
        r.UsageReport("openai/gpt-5", 850, 11, usd=0.00117, time=reports(batches)[3].time),  # type: ignore[union-attr]
        r.TurnReport("I do.\nDone one"),
    ]
    assert [batch.source for batch in batches] == ["mode", "transcript", "record", "mode"]


async def test_before_its_task_is_typed_it_is_not_idle(agent: Aider, tmp_path: Path, files: Files) -> None:
    batches = await read_all_batches(agent, make_run(tmp_path, [lambda: files.show(PROMPT)], {"task": "typed"}))
    assert batches == []


async def test_a_turn_that_began_and_ended_between_two_looks(agent: Aider, tmp_path: Path, files: Files) -> None:
    def all_of_it() -> None:
        files.message("quick")
        files.answer("Quick.")
        files.show(PROMPT)

    steps = [lambda: files.show(PROMPT), all_of_it]
    heard_reports = reports(await read_all_batches(agent, make_run(tmp_path, steps)))
    assert heard_reports[1:3] == [r.MessageTakenReport("quick"), ACTIVE] and heard_reports[-1] == r.TurnReport("Quick.")


async def test_a_message_seen_before_its_prompt_is_closed_is_no_turn_that_ended(
    agent: Aider, tmp_path: Path, files: Files
) -> None:
    """The terminal's log may be behind the chat history."""
    steps = [
        lambda: files.show(PROMPT),
        lambda: files.chat("\n#### go  \n"),
        lambda: files.show(SUBMITTED),
        lambda: (files.answer("Gone."), files.show(PROMPT)),
    ]
    run = make_run(tmp_path, [])
    run.changes.steps = steps  # type: ignore[attr-defined]
    looked = run.changes.next

    async def impatient(within: float | None = None) -> bool:
        return await looked(None if steps else within)

    run.changes.next = impatient  # type: ignore[method-assign]
    heard_reports = [
        report for report in reports(await read_all_batches(agent, run)) if not isinstance(report, r.UsageReport)
    ]
    assert heard_reports == [r.ActivityReport(Activity.IDLE), r.MessageTakenReport("go"), ACTIVE, r.TurnReport("Gone.")]


async def test_after_a_restart_nothing_is_reported_twice(agent: Aider, tmp_path: Path, files: Files) -> None:
    files.show(PROMPT)
    files.message("first")
    files.answer("One.")
    files.show(PROMPT)
    first = await read_all_batches(agent, make_run(tmp_path))
    cursors = {
        place: max(batch.end for batch in first if batch.source_id == place)
        for place in {batch.source_id for batch in first if batch.source_id}
    }
    assert [r.TurnReport] == [
        type(report) for report in reports(await read_all_batches(agent, make_run(tmp_path, cursors=cursors)))
    ]
    again = await read_all_batches(agent, make_run(tmp_path, cursors=cursors))
    assert [(batch.source_id, batch.start) for batch in again] == [(first[-1].source_id, first[-1].start)], (
        "the same key"
    )


@pytest.mark.parametrize(
    ("question", "subject", "tool"),
    [
        ("Create new file?", "a.txt", "edit"),
        ("Allow edits to file that has not been added to the chat?", "src/b.py", "edit"),
        ("Add file to the chat?", "src/b.py", "read"),
        ("Run shell command?", "make test", "shell"),
    ],
)
async def test_a_question_about_something(
    agent: Aider, tmp_path: Path, files: Files, question: str, subject: str, tool: str
) -> None:
    steps = [
        lambda: files.show(PROMPT),
        lambda: files.message("go"),
        lambda: (files.answer("I shall."), files.chat(f"> {subject}  \n"), files.show(asks(question))),
        lambda: (files.chat(f"> {question} (Y)es/(N)o [Yes]: y  \n"), files.show("y\r\n\x1b[?2004l\r\n")),
        lambda: files.show(PROMPT),
    ]
    heard_reports = reports(await read_all_batches(agent, make_run(tmp_path, steps)))
    [request] = [report for report in heard_reports if isinstance(report, r.PermissionReport)]
    assert (request.tool, request.command, request.reason) == (tool, subject, question)
    assert heard_reports[heard_reports.index(request) + 1 :] == [ACTIVE, r.TurnReport("I shall.")]


async def test_a_file_outside_the_workspace_has_its_absolute_path(agent: Aider, tmp_path: Path, files: Files) -> None:
    steps = [
        lambda: files.message("go"),
        lambda: (files.answer("So."), files.chat("> ../../x  \n"), files.show(asks("Create new file?"))),
    ]
    heard_reports = reports(await read_all_batches(agent, make_run(tmp_path, steps)))
    assert isinstance(heard_reports[-1], r.PermissionReport) and heard_reports[-1].command.startswith("/")


async def test_a_question_about_going_on(agent: Aider, tmp_path: Path, files: Files) -> None:
    steps = [
        lambda: files.message("go"),
        lambda: (files.answer("So."), files.show(asks("Attempt to fix lint errors?"))),
    ]
    heard_reports = reports(await read_all_batches(agent, make_run(tmp_path, steps)))
    assert isinstance(heard_reports[-1], r.PermissionReport)
    assert (heard_reports[-1].tool, heard_reports[-1].command) == ("continue", "Attempt to fix lint errors?")


async def test_commands_of_several_lines_are_for_a_person(agent: Aider, tmp_path: Path, files: Files) -> None:
    """One of their lines can look like a single command in the chat history."""
    steps = [
        lambda: files.message("go"),
        lambda: (
            files.answer("So."),
            files.chat("> rm -rf ~  \n> git status  \n"),
            files.show(asks("Run shell commands?")),
        ),
    ]
    heard_reports = reports(await read_all_batches(agent, make_run(tmp_path, steps)))
    assert isinstance(heard_reports[-1], r.PermissionReport) and heard_reports[-1].command == ""
    assert heard_reports[-1].tool not in ("shell", "continue")


async def test_printed_text_is_no_question_that_a_rule_may_answer(agent: Aider, tmp_path: Path, files: Files) -> None:
    steps = [
        lambda: files.message("go"),
        lambda: (files.event("message_send_starting"), files.show(asks("Create new file?"))),
    ]
    heard_reports = reports(await read_all_batches(agent, make_run(tmp_path, steps)))
    assert isinstance(heard_reports[-1], r.PermissionReport) and heard_reports[-1].command == ""


async def test_an_interruption(agent: Aider, tmp_path: Path, files: Files) -> None:
    steps = [
        lambda: files.show(PROMPT),
        lambda: files.message("go"),
        lambda: (files.chat(">   \n>   \n> ^C again to exit  \n"), files.show(PROMPT)),
        lambda: files.message("go on"),
        lambda: (files.answer("Well."), files.show(PROMPT)),
    ]
    heard_reports = reports(await read_all_batches(agent, make_run(tmp_path, steps)))
    assert r.ActivityReport(Activity.INTERRUPTED) in heard_reports and heard_reports[-1] == r.TurnReport("Well.")


RATE = "litellm.RateLimitError: RateLimitError: OpenAIException - scripted error 429"


async def test_retries_that_succeed(agent: Aider, tmp_path: Path, files: Files) -> None:
    steps = [
        lambda: files.show(PROMPT),
        lambda: files.message("go"),
        lambda: files.chat(f"> {RATE}  \n> The API provider has rate limited you.  \n> Retrying in 0.2 seconds...  \n"),
        lambda: (files.answer("At last."), files.show(PROMPT)),
    ]
    heard_reports = [
        report
        for report in reports(await read_all_batches(agent, make_run(tmp_path, steps)))
        if not isinstance(report, r.UsageReport)
    ]
    assert heard_reports[3:] == [r.ActivityReport(Activity.RETRYING, RATE), ACTIVE, r.TurnReport("At last.")]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("litellm.AuthenticationError: AuthenticationError: OpenAIException - no such key", r.ActivityReport),
        ("litellm.RateLimitError: You exceeded your current quota. Please try again in 1h2m3s.", r.LimitReport),
        ("Model openai/gpt-5 has hit a token limit!", r.ActivityReport),
    ],
)
async def test_an_error_that_ends_the_turn(
    agent: Aider, tmp_path: Path, files: Files, error: str, kind: type[r.Report]
) -> None:
    steps = [
        lambda: files.show(PROMPT),
        lambda: files.message("go"),
        lambda: (files.chat(f"> {error}  \n"), files.show(PROMPT)),
    ]
    last = reports(await read_all_batches(agent, make_run(tmp_path, steps)))[-1]
    assert isinstance(last, kind)
    if isinstance(last, r.ActivityReport):
        assert (last.state, last.detail) == (Activity.WAITING_INPUT, error)
    if isinstance(last, r.LimitReport):
        assert last.resets_at is not None


async def test_cached_tokens_are_counted_apart(agent: Aider, tmp_path: Path, files: Files) -> None:
    def answered() -> None:
        files.chat("\nYes.\n\n> Tokens: 12k sent, 2.0k cache write, 5.0k cache hit, 50 received.  \n")
        files.event("message_send", main_model="anthropic/claude", prompt_tokens=12_000, completion_tokens=50, cost=0)

    heard_reports = reports(await read_all_batches(agent, make_run(tmp_path, [lambda: files.message("go"), answered])))
    [used] = [report for report in heard_reports if isinstance(report, r.UsageReport)]
    assert (used.input, used.output, used.cache_read, used.cache_write, used.usd) == (3000, 50, 5000, 2000, None)


async def test_at_its_end_its_cache_is_removed(agent: Aider, tmp_path: Path, files: Files) -> None:
    run = make_run(tmp_path)
    (run.workspace / ".aider.tags.cache.v4").mkdir()
    (run.workspace / "kept.txt").touch()
    await read_all_batches(agent, run)
    assert [path.name for path in run.workspace.iterdir()] == ["kept.txt"]


# -- delivery ----------------------------------------------------------------------------------------------------------


async def test_messages_are_typed_only_at_its_prompt(agent: Aider, tmp_path: Path, files: Files) -> None:
    run = make_run(tmp_path)
    assert await agent.deliver(run, "m", "hi", interrupt=False) == NotReady("the agent is not ready yet")
    files.show(PROMPT)
    assert await agent.deliver(run, "m", "hi", interrupt=True) == ReadyToType()
    files.message("hi")
    assert isinstance(await agent.deliver(run, "n", "ho", interrupt=False), NotReady)
    files.show(asks("Create new file?"))
    assert await agent.deliver(run, "n", "ho", interrupt=True) == NotReady("the agent waits for a permission")


async def test_the_agent_is_interrupted_once_per_message(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = LocalHost()
    killed: list[int] = []
    monkeypatch.setattr(host, "kill", lambda process, *_, **__: killed.append(process.pid))
    agent, run = Aider({}, host), make_run(tmp_path)
    files.show(PROMPT)
    files.message("hi")
    for _ in range(3):
        assert isinstance(await agent.deliver(run, "m", "stop", interrupt=True), NotReady)
    assert len(killed) == 1
    await agent.deliver(run, "n", "stop again", interrupt=True)
    assert len(killed) == 1, "a second one in short order would end aider"
    mark = files.folder / "interrupted"
    os.utime(mark, (0, 0))
    await agent.deliver(run, "m", "stop", interrupt=True)
    assert len(killed) == 1, "the same message"
    await agent.deliver(run, "n", "stop again", interrupt=True)
    assert len(killed) == 2


# -- headless ----------------------------------------------------------------------------------------------------------


async def test_a_turn_without_a_terminal(agent: Aider, context: AgentContext) -> None:
    turn = agent.turn(context, "/run it", None)
    file = Path(turn.argv[turn.argv.index("--message-file") + 1])
    assert file.read_text() == " /run it"
    assert {"--yes-always", "--no-suggest-shell-commands"} <= set(turn.argv)
    lines = [
        "Ready.",
        "\x1ec",
        "\x1ec#### begin  ",
        "\x1ec",
        "\x1ecReady.",
        "\x1ec",
        "\x1ec> Tokens: 8 sent, 2 received.  ",
    ]
    event = {"event": "message_send", "properties": {"prompt_tokens": 8, "completion_tokens": 2}, "time": 1}
    lines += [f"\x1ee{json.dumps(event)}", '\x1ee{"event": "exit", "properties": {}}']
    read = [agent.read_turn(line) for line in lines]
    assert [parsed.show for parsed in read if parsed.show] == ["Ready."]
    heard_reports = [report for parsed in read for report in parsed.reports]
    assert [type(report) for report in heard_reports] == [r.UsageReport, r.TurnReport]
    assert heard_reports[-1] == r.TurnReport("Ready.")


async def test_a_turn_without_a_terminal_that_fails_asks(agent: Aider, context: AgentContext) -> None:
    agent.turn(context, "begin", None)
    agent.read_turn(f"\x1ec> {RATE}  ")
    [heard_reports] = agent.read_turn('\x1ee{"event": "exit", "properties": {}}').reports
    assert isinstance(heard_reports, r.TurnReport) and "429" in heard_reports.text and heard_reports.text.endswith("?")


async def test_the_script_of_a_turn_marks_what_was_added(agent: Aider, context: AgentContext, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "aider"
    program.write_text(
        '#!/bin/sh\nfor word in "$@"; do [ "$last" = --chat-history-file ] && chat=$word;'
        ' [ "$last" = --analytics-log ] && log=$word; last=$word; done\n'
        'echo "> new  " >>"$chat"; echo "{}" >>"$log"; echo shown; exit 3\n'
    )
    turn = agent.turn(context, "begin", None)
    chat = context.private / "aider" / "chat.history.md"
    chat.write_text("> old  \n")
    done = subprocess.run(turn.argv, capture_output=True, text=True, cwd=context.workspace, env=dict(context.env))
    assert done.returncode == 3
    assert done.stdout.split("\n")[:3] == ["shown", "\x1ec> new  ", "\x1ee{}"]
