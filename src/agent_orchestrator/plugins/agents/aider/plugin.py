"""`aider`: heard by its chat history, its event log and its terminal's prompts (docs/agents/aider.md)."""

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
from agent_orchestrator.plugins.agents.shared import cli
from agent_orchestrator.plugins.agents.shared.input_prompts import PromptLog, log_size
from agent_orchestrator.plugins.agents.shared.journals import Journal
from agent_orchestrator.plugins.workspaces.contents import exclude
from agent_orchestrator.protocols import (
    Activity,
    AgentContext,
    AgentLaunch,
    AgentRun,
    Delivery,
    Found,
    Heard,
    Held,
    Kept,
    ScreenRules,
    Turn,
    TurnLine,
    Typable,
)
from agent_orchestrator.protocols.host import ProcessId
from agent_orchestrator.protocols.reports import ActivityReport, PermissionReport

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

LONGEST_TASK = 100_000
"""Bytes of a task that are typed; a longer one is given as a file to read."""
SETTLED = 0.2
"""Seconds without change after which a message at the end of the chat history is complete."""
ENDS_IT = 3.0
"""Seconds within which a second interrupt makes aider exit, and some."""
TAGS_CACHE = ".aider.tags.cache.v*"
QUIET = (
    "--no-check-update",
    "--no-show-release-notes",
    "--no-show-model-warnings",
    "--no-gitignore",
    "--no-analytics",
    "--no-detect-urls",
    "--disable-playwright",
    "--auto-commits",
)
"""Asks nothing at its start, fetches no address that a message happens to name, sends nothing home."""
YES = ("--yes-always", "--no-suggest-shell-commands")
"""It edits without asking, and runs no commands of the model's: the only way of working where nobody can be asked."""
PLAN = ("--chat-mode", "ask", *YES)

_EVENT, _SAID = "\x1ee", "\x1ec"
"""How a turn without a terminal marks the lines of its event log and of its chat history."""


@dataclass(frozen=True, slots=True)
class _Files:
    """What aider keeps for one session, outside the workspace."""

    folder: Path

    @property
    def chat(self) -> Path:
        return self.folder / "chat.history.md"

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def rules(self) -> Path:
        return self.folder / "instructions.md"

    @property
    def task(self) -> Path:
        return self.folder / "task.md"

    @property
    def interrupted(self) -> Path:
        return self.folder / "interrupted"


def _files(private: Path) -> _Files:
    return _Files(private / "aider")


class Aider:
    """Starts aider, types into it only at its prompt, and hears it."""

    screen = ScreenRules()
    interrupt_keys = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("y", "Enter"), "deny": ("n", "Enter")}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._stream = bool(config.get("stream"))
        self._story = chat_history.Story()
        self._blank = False

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Its caches, and the session's history, event log and typed lines."""
        files = _files(private)
        grows = (files.chat, files.events, files.folder / "input.history")
        for file in grows:
            file.touch(mode=0o600)
        return Kept((Path(env.get("HOME") or Path.home()) / ".aider", *grows))

    async def detect(self) -> Found | None:
        """Its version is read from its installation: starting it takes seconds."""
        path = self._host.which("aider")
        return Found(path, _version(Path(path))) if path else None

    def typed(self, text: str) -> str:
        """A message is never a command."""
        return _as_message(text)

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """It takes no first prompt: the task is typed once it is ready, its rules are a file that it reads."""
        files = _files(context.private)
        files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _adopt(context, files, context.resume)
        argv = [self._program(context), *_arguments(context, files), "--fancy-input", "--no-multiline"]
        argv.append("--stream" if self._stream else "--no-stream")
        _keep_out_of_sight(context.workspace)
        text = context.message if context.resume is not None else context.task or context.prompt
        if len(text.encode()) > LONGEST_TASK:
            files.task.write_text(text, encoding="utf-8")
            argv += ["--read", str(files.task)]
            text = f"Your task is in the read-only file {files.task.name}. Do what it says."
        size = files.chat.stat().st_size if files.chat.exists() else 0
        return AgentLaunch(
            tuple(argv),
            await self._env(context),
            paste=text or None,
            waits=not text,
            conversation=str(files.chat),
            memo={"chat": str(size), "log": str(log_size(context)), **({"task": "typed"} if text else {})},
        )

    async def _env(self, context: AgentContext) -> dict[str, str]:
        """No browser is opened; without an identity aider would write one into the repository's configuration."""
        env = {"BROWSER": "true"}
        number = int(context.env.get("GIT_CONFIG_COUNT") or 0)
        for key, value in (("user.name", "aider"), ("user.email", "aider@localhost")):
            known = await self._host.run(
                ["git", "config", "--get", key], cwd=context.workspace, env=context.env or None
            )
            if known.code:
                env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
                number += 1
                env["GIT_CONFIG_COUNT"] = str(number)
        return env

    def _program(self, context: AgentContext) -> str:
        return cli.program(self._host, "aider", context, "install it: python -m pip install aider-chat")

    # -- hearing -------------------------------------------------------------------------------------------------------

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """Its chat history tells what was taken up and said, its terminal when it waits, its event log what it cost."""
        files = _files(run.private)
        prompts = PromptLog(run.log, int(run.memo.get("log", "0")))
        chat, events = chat_history.Chat(files.chat, run), Journal(files.events, run, "record")
        run.changes.watch(run.log)
        told, asking, alive = -1, False, True
        while True:
            prompt = prompts.look()  # before the chat history: what led to a prompt is written there by then
            async for heard in chat.read(prompts, final=not alive):
                yield heard
            async for line in events.lines():
                chat.answering = line.data.get("event") == "message_send_starting"
                if usage := chat_history.usage(line.data, chat.story):
                    yield events.heard(line, usage)
            if prompt is None and asking:
                asking = False
                yield Heard((ActivityReport(Activity.ACTIVE),), "mode")
            elif (
                prompt is not None
                and prompt.start != told
                and (seen := chat_history.seen(prompt, chat, run.workspace)) is not None
            ):
                told, asking = prompt.start, isinstance(seen, PermissionReport)
                place = "" if seen == ActivityReport(Activity.IDLE) else run.log.name
                yield Heard((seen,), "mode", place, prompt.start, prompt.end)
            if not alive:
                break
            pending = chat.unsettled or (chat.turn is not None and chat.turn.doubtful(prompt, monotonic()))
            alive = await run.changes.next(SETTLED if pending else None)
        await asyncio.to_thread(_tidy, run.workspace)

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | Typable | None:
        """Typed only at its own prompt: what comes while it works would be cut into lines, or answer a question."""
        del text
        prompts = PromptLog(run.log, int(run.memo.get("log", "0")))
        prompt = prompts.look()
        if prompt is not None:
            return (
                Typable() if chat_history.MAIN_PROMPT.search(prompt.text) else Held("the agent waits for a permission")
            )
        if not prompts.began:
            return Held("the agent is not ready yet")
        if interrupt:
            self._interrupt(run, message)
        return Held("aider takes messages between its turns")

    def _interrupt(self, run: AgentRun, message: str) -> None:
        """Once for each message; and not twice in short order, which would end it."""
        mark = _files(run.private).interrupted
        if mark.exists() and (mark.read_text() == message or time.time() - mark.stat().st_mtime < ENDS_IT):
            return
        mark.write_text(message)
        self._host.kill(ProcessId(run.pid, run.started), signal.SIGINT, group=True)

    # -- headless ------------------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> Turn:
        """One message from a file. What it adds to its chat history and event log is printed, marked, behind its output."""
        files = _files(context.private)
        files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _adopt(context, files, conversation)
        _keep_out_of_sight(context.workspace)
        files.task.write_text(_as_message(prompt), encoding="utf-8")
        command = [
            self._program(context),
            *_arguments(context, files),
            *YES,
            "--no-pretty",
            "--no-fancy-input",
            "--no-stream",
        ]
        argv = ("/bin/sh", "-c", HEADLESS, "sh", str(files.chat), str(files.events), *command)
        self._story = chat_history.Story()
        return Turn((*argv, "--message-file", str(files.task)), {"BROWSER": "true"})

    def read_turn(self, line: str) -> TurnLine:
        """Its output is shown; what it means is in its chat history and event log, which come behind."""
        if line.startswith(_SAID):
            text = line[len(_SAID) :]
            self._story.line(text, gap=self._blank)
            self._blank = not text.strip()
        elif line.startswith(_EVENT):
            try:
                record = json.loads(line[len(_EVENT) :])
            except ValueError:
                return TurnLine()
            if usage := chat_history.usage(record, self._story):
                return TurnLine(reports=(usage,))
            if record.get("event") == "exit":
                return TurnLine(reports=(chat_history.as_turn(self._story),))
        else:
            return TurnLine(line)
        return TurnLine()


HEADLESS = """\
chat=$1 events=$2; shift 2; touch "$chat"; size=$(wc -c <"$chat"); : >"$events"
"$@"; code=$?
tail -c +$((size + 1)) "$chat" | sed "s/^/\x1ec/"; sed "s/^/\x1ee/" "$events"; exit $code"""


# -- starting ----------------------------------------------------------------------------------------------------------


def _arguments(context: AgentContext, files: _Files) -> list[str]:
    files.rules.write_text(context.system, encoding="utf-8")
    argv = [*QUIET, *(PLAN if context.permissions == "plan" else ())]
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


def _as_message(text: str) -> str:
    """A first character that aider would take for a command, or for the begin of several lines, gets a blank before it."""
    text = text.replace("\0", "")
    return f" {text}" if text.startswith(("/", "!", "{")) else text


def _adopt(context: AgentContext, files: _Files, conversation: str | None) -> None:
    """A conversation begun by hand is continued in a copy of its chat history."""
    if not conversation or files.chat.exists() or Path(conversation) == files.chat:
        return
    source = context.repo / Path(conversation).expanduser()
    source = source / ".aider.chat.history.md" if source.is_dir() else source
    if not source.is_file():
        raise UsageError(f"there is no chat history of aider at {source}", "name a .aider.chat.history.md")
    shutil.copyfile(source, files.chat)


def _keep_out_of_sight(workspace: Path) -> None:
    """aider keeps its map of the repository in the workspace, wherever its other files are: Git must not see it."""
    layout = find_layout(workspace)
    if layout is not None:
        exclude(layout, [f"/{TAGS_CACHE}/"])


def _tidy(workspace: Path) -> None:
    for folder in workspace.glob(TAGS_CACHE):
        shutil.rmtree(folder, ignore_errors=True)


def _version(program: Path) -> str:
    for found in program.resolve().parent.parent.glob("lib/python*/site-packages/aider_chat-*.dist-info"):
        return found.name.removeprefix("aider_chat-").removesuffix(".dist-info")
    return ""
