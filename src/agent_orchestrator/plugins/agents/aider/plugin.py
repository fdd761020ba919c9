"""The plugin `aider`: runs aider and reads its chat history, its event log and its terminal's prompts (docs/agents/aider.md)."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.aider import chat_history
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.plugins.agents.shared.input_prompts import PromptLog, log_size
from agent_orchestrator.plugins.agents.shared.journals import Journal
from agent_orchestrator.plugins.workspaces.git_exclude import exclude
from agent_orchestrator.protocols import (
    Activity,
    Agent,
    AgentContext,
    AgentLaunch,
    AgentState,
    Delivery,
    InstalledAgent,
    NotReady,
    ReadyToType,
    ReportBatch,
    RunningLaunch,
    ScreenRules,
    TurnCommand,
    TurnLine,
)
from agent_orchestrator.protocols.host import ProcessId
from agent_orchestrator.protocols.reports import ActivityReport, PermissionReport

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

MAX_TYPED_TASK_BYTES = 100_000
"""The number of bytes of a task that are typed; a longer one is given as a file to read."""
SETTLE_SECONDS = 0.2
"""Seconds without change after which a message at the end of the chat history is complete."""
DOUBLE_INTERRUPT_SECONDS = 3.0
"""Seconds within which a second interrupt makes aider exit, with a margin."""
TAGS_CACHE = ".aider.tags.cache.v*"
QUIET_OPTIONS = (
    "--no-check-update",
    "--no-show-release-notes",
    "--no-show-model-warnings",
    "--no-gitignore",
    "--no-analytics",
    "--no-detect-urls",
    "--disable-playwright",
    "--auto-commits",
)
"""Options with which aider asks nothing at its start, fetches no address that a message contains, and sends no analytics."""
UNATTENDED_OPTIONS = ("--yes-always", "--no-suggest-shell-commands")
"""Options with which aider edits without asking and runs no commands of the model: the only way where no person can be asked."""
PLAN_OPTIONS = ("--chat-mode", "ask", *UNATTENDED_OPTIONS)

_EVENT_MARK, _CHAT_MARK = "\x1ee", "\x1ec"
"""The marks before lines of the event log and of the chat history in the output of a headless turn."""


@dataclass(frozen=True, slots=True)
class _AiderFiles:
    """The files that aider keeps for one session, outside of the workspace."""

    folder: Path

    @property
    def chat(self) -> Path:
        """Return the path of the chat history."""
        return self.folder / "chat.history.md"

    @property
    def events(self) -> Path:
        """Return the path of the event log."""
        return self.folder / "events.jsonl"

    @property
    def rules(self) -> Path:
        """Return the path of the rules."""
        return self.folder / "instructions.md"

    @property
    def task(self) -> Path:
        """Return the path of a long or headless task."""
        return self.folder / "task.md"

    @property
    def interrupting_message(self) -> Path:
        """Return the path of the file with the id of the message that last interrupted a turn."""
        return self.folder / "interrupted"


def _files(private: Path) -> _AiderFiles:
    """Return the paths of a session's files."""
    return _AiderFiles(private / "aider")


class Aider(Agent):
    """The agent plugin that starts aider, types into it only at its prompt, and reads its chat history, event log and terminal."""

    screen = ScreenRules()
    interrupt_keys = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("y", "Enter"), "deny": ("n", "Enter")}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._stream = bool(config.get("stream"))
        self._turn_history = chat_history.TurnHistory()
        self._is_blank_before = False

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return aider's caches, and the session's chat history, event log and typed lines, as writable."""
        files = _files(private)
        session_files = (files.chat, files.events, files.folder / "input.history")
        for file in session_files:
            file.touch(mode=0o600)
        return AgentState((Path(env.get("HOME") or Path.home()) / ".aider", *session_files))

    async def detect(self) -> InstalledAgent | None:
        """Return where `aider` is installed and its version, or None; the version is read from its installation, since starting
        it takes seconds.
        """
        path = self._host.which("aider")
        return InstalledAgent(path, _installed_version(Path(path))) if path else None

    def escape_input(self, text: str) -> str:
        """Return the text as it must be typed, so that it is never a command."""
        return _escape_command(text)

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command; aider takes no first prompt, so the task is typed once it is ready, and the rules are a file that
        it reads.
        """
        files = _files(context.private)
        files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy_conversation(context, files, context.resume)
        argv = [self._program(context), *_launch_options(context, files), "--fancy-input", "--no-multiline"]
        argv.append("--stream" if self._stream else "--no-stream")
        _exclude_cache(context.workspace)
        text = context.message if context.resume is not None else context.task or context.prompt
        if len(text.encode()) > MAX_TYPED_TASK_BYTES:
            files.task.write_text(text, encoding="utf-8")
            argv += ["--read", str(files.task)]
            text = f"Your task is in the read-only file {files.task.name}. Do what it says."
        size = files.chat.stat().st_size if files.chat.exists() else 0
        return AgentLaunch(
            tuple(argv),
            await self._environment(context),
            paste=text or None,
            waits=not text,
            conversation=str(files.chat),
            plugin_data={"chat": str(size), "log": str(log_size(context)), **({"task": "typed"} if text else {})},
        )

    async def _environment(self, context: AgentContext) -> dict[str, str]:
        """Return the environment: no browser, and a Git identity if there is none, since aider would write one into the
        repository's configuration.
        """
        env = {"BROWSER": "true"}
        number = int(context.env.get("GIT_CONFIG_COUNT") or 0)
        for key, value in (("user.name", "aider"), ("user.email", "aider@localhost")):
            result = await self._host.run(
                ["git", "config", "--get", key], cwd=context.workspace, env=context.env or None
            )
            if result.code:
                env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
                number += 1
                env["GIT_CONFIG_COUNT"] = str(number)
        return env

    def _program(self, context: AgentContext) -> str:
        """Return the path of `aider`; raise `Missing` if it is not installed."""
        return agent_cli.find_program(self._host, "aider", context, "install it: python -m pip install aider-chat")

    # -- listening -----------------------------------------------------------------------------------------------------

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield messages from the chat history, usage from the event log, waiting and permission requests from the terminal."""
        files = _files(run.private)
        prompts = PromptLog(run.log, int(run.plugin_data.get("log", "0")))
        chat, events = chat_history.ChatHistory(files.chat, run), Journal(files.events, run, "record")
        run.changes.watch(run.log)
        handled_prompt, is_asking, is_alive = -1, False, True
        while True:
            prompt = (
                prompts.current()
            )  # read before the chat history, which then has everything that led to this prompt
            async for heard in chat.read(prompts, final=not is_alive):
                yield heard
            async for line in events.lines():
                chat.is_model_answering = line.data.get("event") == "message_send_starting"
                if usage := chat_history.parse_usage(line.data, chat.turn_history):
                    yield events.make_batch(line, usage)
            if prompt is None and is_asking:
                is_asking = False
                yield ReportBatch((ActivityReport(Activity.ACTIVE),), "mode")
            elif (
                prompt is not None
                and prompt.start != handled_prompt
                and (prompt_report := chat_history.report_of_prompt(prompt, chat, run.workspace)) is not None
            ):
                handled_prompt, is_asking = prompt.start, isinstance(prompt_report, PermissionReport)
                place = "" if prompt_report == ActivityReport(Activity.IDLE) else run.log.name
                yield ReportBatch((prompt_report,), "mode", place, prompt.start, prompt.end)
            if not is_alive:
                break
            is_pending = chat.has_open_message or (
                chat.turn is not None and chat.turn.is_undecided(prompt, monotonic())
            )
            is_alive = await run.changes.next(SETTLE_SECONDS if is_pending else None)
        await asyncio.to_thread(_remove_cache, run.workspace)

    async def deliver(
        self, run: RunningLaunch, message: str, text: str, *, interrupt: bool
    ) -> Delivery | ReadyToType | None:
        """Return `ReadyToType` at aider's own prompt, otherwise `NotReady`: text typed during a turn would be split into lines, or
        answer a question.
        """
        del text
        prompts = PromptLog(run.log, int(run.plugin_data.get("log", "0")))
        prompt = prompts.current()
        if prompt is not None:
            return (
                ReadyToType()
                if chat_history.MAIN_PROMPT.search(prompt.text)
                else NotReady("the agent waits for a permission")
            )
        if not prompts.has_prompted:
            return NotReady("the agent is not ready yet")
        if interrupt:
            self._interrupt(run, message)
        return NotReady("aider takes messages between its turns")

    def _interrupt(self, run: RunningLaunch, message: str) -> None:
        """Interrupt the turn, once per message and not twice within `DOUBLE_INTERRUPT_SECONDS`, which would end aider."""
        mark = _files(run.private).interrupting_message
        if mark.exists() and (
            mark.read_text() == message or time.time() - mark.stat().st_mtime < DOUBLE_INTERRUPT_SECONDS
        ):
            return
        mark.write_text(message)
        self._host.kill(ProcessId(run.pid, run.started), signal.SIGINT, group=True)

    # -- headless ------------------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> TurnCommand:
        """Return a command that gives one message from a file, then prints what aider added to its chat history and event log, marked."""
        files = _files(context.private)
        files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy_conversation(context, files, conversation)
        _exclude_cache(context.workspace)
        files.task.write_text(_escape_command(prompt), encoding="utf-8")
        command = [
            self._program(context),
            *_launch_options(context, files),
            *UNATTENDED_OPTIONS,
            "--no-pretty",
            "--no-fancy-input",
            "--no-stream",
        ]
        argv = ("/bin/sh", "-c", HEADLESS_SCRIPT, "sh", str(files.chat), str(files.events), *command)
        self._turn_history = chat_history.TurnHistory()
        return TurnCommand((*argv, "--message-file", str(files.task)), {"BROWSER": "true"})

    def read_turn(self, line: str) -> TurnLine:
        """Show a line of output; read the marked lines of chat history and event log, which come after it."""
        if line.startswith(_CHAT_MARK):
            text = line[len(_CHAT_MARK) :]
            self._turn_history.read_line(text, gap=self._is_blank_before)
            self._is_blank_before = not text.strip()
        elif line.startswith(_EVENT_MARK):
            try:
                record = json.loads(line[len(_EVENT_MARK) :])
            except ValueError:
                return TurnLine()
            if usage := chat_history.parse_usage(record, self._turn_history):
                return TurnLine(reports=(usage,))
            if record.get("event") == "exit":
                return TurnLine(reports=(chat_history.headless_end_report(self._turn_history),))
        else:
            return TurnLine(line)
        return TurnLine()


HEADLESS_SCRIPT = """\
chat=$1 events=$2; shift 2; touch "$chat"; size=$(wc -c <"$chat"); : >"$events"
"$@"; code=$?
tail -c +$((size + 1)) "$chat" | sed "s/^/\x1ec/"; sed "s/^/\x1ee/" "$events"; exit $code"""


# -- starting ----------------------------------------------------------------------------------------------------------


def _launch_options(context: AgentContext, files: _AiderFiles) -> list[str]:
    """Write the rules and return the options of every launch."""
    files.rules.write_text(context.system, encoding="utf-8")
    argv = [*QUIET_OPTIONS, *(PLAN_OPTIONS if context.permissions == "plan" else ())]
    argv += ["--chat-history-file", str(files.chat), "--input-history-file", str(files.folder / "input.history")]
    argv += ["--llm-history-file", "", "--analytics-log", str(files.events)]
    if context.system:
        argv += ["--read", str(files.rules)]
    if context.model:
        argv += ["--model", context.model]
    if context.commands and context.permissions in ("auto-edit", "full"):
        argv += ["--test-cmd", " && ".join(context.commands), "--auto-test"]
    if files.chat.exists():
        argv.append("--restore-chat-history")
    return argv


def _escape_command(text: str) -> str:
    """Return the text with a space in front if aider would take its first character for a command or the begin of several lines."""
    text = text.replace("\0", "")
    return f" {text}" if text.startswith(("/", "!", "{")) else text


def _copy_conversation(context: AgentContext, files: _AiderFiles, conversation: str | None) -> None:
    """Copy the chat history of a conversation that was begun by hand, to continue it; raise `UsageError` if there is none."""
    if not conversation or files.chat.exists() or Path(conversation) == files.chat:
        return
    source = context.repo / Path(conversation).expanduser()
    source = source / ".aider.chat.history.md" if source.is_dir() else source
    if not source.is_file():
        raise UsageError(f"there is no chat history of aider at {source}", "name a .aider.chat.history.md")
    shutil.copyfile(source, files.chat)


def _exclude_cache(workspace: Path) -> None:
    """Exclude aider's map of the repository from Git: it is in the workspace, wherever aider's other files are."""
    layout = find_layout(workspace)
    if layout is not None:
        exclude(layout, [f"/{TAGS_CACHE}/"])


def _remove_cache(workspace: Path) -> None:
    """Remove aider's map of the repository from the workspace."""
    for folder in workspace.glob(TAGS_CACHE):
        shutil.rmtree(folder, ignore_errors=True)


def _installed_version(program: Path) -> str:
    """Return the version in the name of the installed package's metadata folder, or ""."""
    for metadata in program.resolve().parent.parent.glob("lib/python*/site-packages/aider_chat-*.dist-info"):
        return metadata.name.removeprefix("aider_chat-").removesuffix(".dist-info")
    return ""
