"""The plugin `cursor`: runs Cursor's CLI agent; written from its documentation and not tried with the program (docs/agents/cursor.md)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.malformed_records import skip_malformed
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.plugins.agents.shared.journals import Journal, entries_in, recent_journals
from agent_orchestrator.protocols import (
    Activity,
    Agent,
    AgentContext,
    AgentLaunch,
    AgentState,
    InstalledAgent,
    ReportBatch,
    RunningLaunch,
    ScreenRules,
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL_REMEDY = "install it: curl https://cursor.com/install -fsS | bash"
MODES: Mapping[str, tuple[str, ...]] = {"plan": ("--mode", "plan"), "full": ("--force",)}

SETTLE_SECONDS = 0.4
"""Seconds without output after which the screen is read; during output it is read every `SCREEN_POLL_SECONDS`."""
SCREEN_POLL_SECONDS = 1.0

_USER_QUERY = re.compile(r"\A<user_query>\n?(.*?)\n?</user_query>\Z", re.DOTALL)


class Cursor(Agent):
    """The agent plugin that runs `cursor-agent` interactively."""

    screen = ScreenRules(
        ready=re.compile(r"^\W*(?:Add a follow-up|Plan, search, build anything)", re.MULTILINE),
        busy=re.compile(r"ctrl\+c to stop", re.IGNORECASE),
        blocked=re.compile(
            r"^.*(?:Waiting for approval|Run this command\?|Run \(once\)|Workspace Trust Required|Skip \(esc or n\)).*$",
            re.MULTILINE | re.IGNORECASE,
        ),
    )
    interrupt_keys = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("y",), "deny": ("n",)}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return Cursor's folders (login, chats) as writable, its settings in them as read-only."""
        del private
        home = Path(env.get("HOME") or Path.home())
        folders = agent_cli.agent_state(
            home / ".cursor", "mcp.json", "hooks.json", "commands", "extensions", "rules", "skills"
        )
        return replace(folders, writable=(*folders.writable, home / ".config" / "cursor"))

    async def detect(self) -> InstalledAgent | None:
        """Return where `cursor-agent` is installed and its version, or None."""
        return await agent_cli.detect(self._host, "cursor-agent")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command `cursor-agent PROMPT` with `--trust` for the folder; `--resume` with the chat's id if one is known."""
        argv = [agent_cli.find_program(self._host, "cursor-agent", context, INSTALL_REMEDY), "--trust"]
        if model := context.model or self._model:
            argv += ["--model", str(model)]
        argv += MODES.get(context.permissions, ())
        if context.resume is None:
            prompt = agent_cli.first_message(context)
        else:
            argv.append(f"--resume={context.resume}" if context.resume else "--continue")
            prompt = agent_cli.shorten_to_argument(context.message, context)
        if prompt:
            argv.append(agent_cli.as_argument(prompt))
        folder = _transcript_folder(context.env, context.workspace)
        return AgentLaunch(
            tuple(argv),
            waits=not prompt,
            conversation=context.resume or None,
            plugin_data={"folder": str(folder), "before": "\n".join(path.stem for path in _chat_files(folder))},
        )

    def escape_input(self, text: str) -> str:
        """Return the text with a space in front if it begins like a command of Cursor."""
        return f" {text}" if text.startswith(("/", "!", "&")) else text

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield the messages that Cursor took, from its transcript, and its state, from its screen."""
        listener = _CursorListener(run)
        run.changes.watch(run.log)
        run.changes.watch(listener.folder)
        last_look, is_quiet = 0.0, False
        while True:
            async for heard in listener.read():
                yield heard
            if is_quiet or time.monotonic() - last_look >= SCREEN_POLL_SECONDS:
                last_look = time.monotonic()
                if screen_report := listener.read_screen(await _screen_text(run), self.screen):
                    yield screen_report
            log_size = listener.terminal_log_size
            if not await run.changes.next(None if is_quiet else SETTLE_SECONDS):
                break
            is_quiet = listener.terminal_log_size == log_size
        async for heard in listener.read():
            yield heard


class _CursorListener:
    """A reader of one launch: its transcript and its screen."""

    def __init__(self, run: RunningLaunch) -> None:
        self._run = run
        self.folder = Path(run.plugin_data["folder"])
        self._earlier_chats = set(run.plugin_data.get("before", "").split("\n"))
        self._chat = run.conversation
        self._journal: Journal | None = None
        self._state: Activity | None = None
        self._last_text = ""

    @property
    def terminal_log_size(self) -> int:
        """Return the size of the terminal's log in bytes."""
        try:
            return self._run.log.stat().st_size
        except OSError:
            return 0

    async def read(self) -> AsyncIterator[ReportBatch]:
        """Yield the chat's id once it has one, and the messages that Cursor took."""
        if self._chat is None:
            new_chats = [path.stem for path in _chat_files(self.folder) if path.stem not in self._earlier_chats]
            if new_chats:
                self._chat = new_chats[-1]
                yield ReportBatch((r.ConversationReport(self._chat),), "transcript")
        if self._journal is None and self._chat:
            transcript = next((path for path in _chat_files(self.folder) if path.stem == self._chat), None)
            self._journal = Journal(transcript, replace(self._run, cursors={})) if transcript else None
        if self._journal is not None:
            cursor = self._run.cursors.get(self._journal.cursor_name, 0)
            async for line in self._journal.lines():
                reports = self._read_record(line.data)
                if reports and line.end > cursor:
                    yield self._journal.make_batch(line, *reports)

    @skip_malformed
    def _read_record(self, record: Mapping[str, Any]) -> list[r.Report]:
        """Return the report of a user's message; remember the agent's last text."""
        text = text_of(record)
        if record.get("role") == "user" and text:
            self._last_text = ""
            return [r.MessageTakenReport(agent_cli.without_rules(text))]
        if record.get("role") == "assistant" and text:
            self._last_text = text
        return []

    def read_screen(self, screen: str, rules: ScreenRules) -> ReportBatch | None:
        """Return the state that the screen shows, if it changed."""
        if rules.blocked and (match := rules.blocked.search(screen)):
            state, report = Activity.BLOCKED, r.ActivityReport(Activity.BLOCKED, match[0].strip(" │┃"))
        elif rules.busy and rules.busy.search(screen):
            state, report = Activity.ACTIVE, r.ActivityReport(Activity.ACTIVE)
        elif rules.ready and rules.ready.search(screen):
            state, report = Activity.IDLE, r.ActivityReport(Activity.IDLE)
        else:
            return None
        if state == self._state:
            return None
        previous, self._state = self._state, state
        if state == Activity.IDLE and previous == Activity.ACTIVE:
            return ReportBatch((r.TurnReport(self._last_text),), "screen")
        return ReportBatch((report,), "screen")


def text_of(record: Mapping[str, Any]) -> str:
    """Return the text of a transcript's record; a user's text may be inside a `<user_query>` tag."""
    content = (record.get("message") or {}).get("content")
    parts = content if isinstance(content, list) else []
    text = "\n".join(
        str(part.get("text")) for part in parts if isinstance(part, Mapping) and part.get("type") == "text"
    )
    match = _USER_QUERY.match(text.strip())
    return match[1] if match else text


def project_key(workspace: Path) -> str:
    """Return the name under which Cursor keeps the files of one folder."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", os.path.realpath(workspace)).strip("-")


def _transcript_folder(env: Mapping[str, str], workspace: Path) -> Path:
    """Return the folder with the transcripts of a workspace."""
    home = Path(env.get("HOME") or Path.home())
    return home / ".cursor" / "projects" / project_key(workspace) / "agent-transcripts"


def _chat_files(folder: Path) -> list[Path]:
    """Return the files of the chats, each in its own folder or not, the one that changed last at the end."""
    entries = entries_in(folder)
    return recent_journals(
        {path.stem: path for path in (*entries, *entries_in(*entries)) if path.suffix == ".jsonl"}.values()
    )


async def _screen_text(run: RunningLaunch) -> str:
    """Return the text of the screen, or "" if the terminal is gone."""
    try:
        return await run.screen()
    except AoError:
        return ""
