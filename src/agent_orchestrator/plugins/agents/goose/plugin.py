"""The plugin `goose`: runs goose and reads its session store, its logs and its terminal's prompts (docs/agents/goose.md)."""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.threads import run_in_own_thread
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.goose.listener import FAILURE_TEXT, QUOTA, GooseListener, shows_dialog
from agent_orchestrator.plugins.agents.goose.session_store import GooseFolders, GooseStore, calls_in, parts_of
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.plugins.agents.shared.input_prompts import PromptLog, log_size
from agent_orchestrator.protocols import (
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
from agent_orchestrator.protocols.reports import ConversationReport, LimitReport, Report, TurnReport, UsageReport

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL_REMEDY = "install goose: https://block.github.io/goose/docs/getting-started/installation"
MODES = {"default": "approve", "plan": "chat", "auto-edit": "approve", "full": "auto"}
"""goose's mode for each of our permission modes; with `auto-edit` goose asks for everything too, and rules answer what is permitted."""
SETTLE_SECONDS = 0.2


class Goose(Agent):
    """The agent plugin that starts goose, types into it only at its prompt, and reads its session store, logs and terminal."""

    screen = ScreenRules()
    interrupt_keys = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {"allow": ("Enter",), "deny": ("Down", "Down", "Enter")}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        del config
        self._host = host
        self._last_text = ""
        self._pieces: list[str] = []
        self._model = ""
        self._conversation = ""
        self._earlier_sums: list[float] = [0, 0, 0.0]

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return goose's store, its configuration (read-only) and the session's own logs."""
        place, home = GooseFolders.from_environment(env, private), Path(env.get("HOME") or Path.home())
        root = env.get("GOOSE_PATH_ROOT")
        config = Path(root) / "config" if root else Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "goose"
        folders = agent_cli.agent_state(config, "config.yaml", "recipes", "skills")
        return replace(folders, writable=(*folders.writable, place.store.path.parent.parent, place.state))

    async def detect(self) -> InstalledAgent | None:
        """Return where `goose` is installed and its version, or None."""
        return await agent_cli.detect(self._host, "goose")

    def escape_input(self, text: str) -> str:
        """Return the text with a space in front if it begins like a command of goose."""
        return f" {text}" if text.startswith("/") else text

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command `goose run --interactive` with the task or the restore's message, or `goose session` without one."""
        program = agent_cli.find_program(self._host, "goose", context, INSTALL_REMEDY)
        place = GooseFolders.from_environment(context.env, context.private)
        existing, sums, row = await run_in_own_thread(_find_session, place.store, context.resume)
        name = existing or f"{context.session}-{secrets.token_hex(4)}"
        argv = ["--session-id" if existing else "--name", name, *(["--resume"] if existing else [])]
        if MODES.get(context.permissions) == "approve":
            argv.append("--debug")  # shows complete commands and paths in permission requests
        text = context.message if context.resume is not None else context.task or context.prompt
        env = {**_environment(context), "XDG_STATE_HOME": str(place.state)}
        if text:
            system = [f"--system={context.system}"] if context.system else []
            text = self.escape_input(agent_cli.shorten_to_argument(text, context))
            argv = [program, "run", "--interactive", *argv, *system, f"--text={text}"]
        else:
            rules = context.private / "goose" / "rules.md"
            rules.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            rules.write_text(context.system, encoding="utf-8")
            argv, env["GOOSE_MOIM_MESSAGE_FILE"] = [program, "session", *argv], str(rules)
        plugin_data = {
            "session": name,
            "store": str(place.store.path),
            "logs": str(place.logs),
            "spent": json.dumps(sums),
            "row": str(row),
            "log": str(log_size(context)),
        }
        return AgentLaunch(tuple(argv), env, waits=not text, conversation=name, plugin_data=plugin_data)

    # -- listening -----------------------------------------------------------------------------------------------------

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield reports until goose has ended: messages and usage from the store, retries from the log, prompts and dialogs
        from the terminal.
        """
        listener = GooseListener(run)
        is_alive = True
        while True:
            async for heard in listener.read():
                yield heard
            if not is_alive:
                return
            is_alive = await run.changes.next(SETTLE_SECONDS if listener.is_undecided else None)

    async def deliver(
        self, run: RunningLaunch, message: str, text: str, *, interrupt: bool
    ) -> Delivery | ReadyToType | None:
        """Return `ReadyToType` at goose's own prompt, otherwise `NotReady`: text typed during a turn is joined to what is typed next."""
        del text
        prompts = PromptLog(run.log, int(run.plugin_data.get("log", "0")))
        if prompts.current() is not None:
            return ReadyToType()
        if shows_dialog(prompts.tail()):
            return NotReady("the agent waits for a permission")
        if interrupt:
            self._interrupt(run, message)
        return NotReady("goose takes messages between its turns")

    def _interrupt(self, run: RunningLaunch, message: str) -> None:
        """Interrupt the turn, once per message."""
        mark = run.private / "goose" / "interrupted"
        if mark.exists() and mark.read_text() == message:
            return
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.write_text(message)
        self._host.kill(ProcessId(run.pid, run.started), signal.SIGINT, group=True)

    # -- headless ------------------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> TurnCommand:
        """Return the command `goose run` with JSON output; it reads its instructions from standard input. Raise `UsageError` if
        goose would ask.
        """
        if MODES.get(context.permissions) == "approve":
            raise UsageError(
                f"goose without a terminal has nobody to ask, as permissions: {context.permissions} wants it",
                "set mode: tui, or permissions: plan or full",
            )
        program = agent_cli.find_program(self._host, "goose", context, INSTALL_REMEDY)
        place = GooseFolders.from_environment(context.env, context.private)
        existing = place.store.find(conversation) if conversation else None
        name = existing or f"{context.session}-{secrets.token_hex(4)}"
        session_options = ["--session-id", name, "--resume"] if existing else ["--name", name]
        system = [f"--system={context.system}"] if context.system else []
        argv = (program, "run", *session_options, *system, "--output-format=stream-json", "--instructions=-")
        self._last_text, self._pieces, self._model, self._conversation = "", [], context.model or "", name
        self._earlier_sums = place.store.usage_totals(existing) if existing else [0, 0, 0.0]
        return TurnCommand(argv, _environment(context), stdin=self.escape_input(prompt))

    def read_turn(self, line: str) -> TurnLine:
        """Parse one line of output: messages come in pieces, the last object has the usage."""
        try:
            data = json.loads(line)
        except ValueError:
            return TurnLine(line)
        message = data.get("message") if isinstance(data, dict) else None
        if isinstance(message, dict):
            return TurnLine(self._render_message(message))
        if isinstance(data, dict) and data.get("type") == "complete":
            return TurnLine(self._join_pieces(), (*self._usage_reports(data), *self._end_reports()))
        return TurnLine()

    def _render_message(self, message: Mapping[str, Any]) -> str:
        """Collect the text of a message; return it with the tool calls once there are any."""
        parts = parts_of(message.get("content"))
        if message.get("role") == "assistant":
            self._pieces += [str(part.get("text") or "") for part in parts if part.get("type") == "text"]
        calls = calls_in(parts)
        text = self._join_pieces() if calls else ""
        return "\n".join(filter(None, [text, *(f"▸ {call}" for call in calls)]))

    def _join_pieces(self) -> str:
        """Return the collected text and start a new one."""
        self._last_text, self._pieces = "".join(self._pieces).strip(), []
        return self._last_text

    def _usage_reports(self, data: Mapping[str, Any]) -> tuple[Report, ...]:
        """Return this turn's usage: the sums of the conversation less those before the turn."""
        input_tokens, output_tokens = int(data.get("input_tokens") or 0), int(data.get("output_tokens") or 0)
        input_tokens, output_tokens = (
            input_tokens - int(self._earlier_sums[0]),
            output_tokens - int(self._earlier_sums[1]),
        )
        return (UsageReport(self._model, input_tokens, output_tokens),) if input_tokens + output_tokens > 0 else ()

    def _end_reports(self) -> tuple[Report, ...]:
        """Return the conversation and how the turn ended: answered, failed, or at a usage limit."""
        conversation = ConversationReport(self._conversation)
        error = FAILURE_TEXT.match(f"{self._last_text}\n\n")
        if error and QUOTA.search(error["error"]):
            return (conversation, LimitReport())
        if error:
            return (
                conversation,
                TurnReport(f"The model could not be asked ({error['error']}). Shall it be tried again?"),
            )
        return (conversation, TurnReport(self._last_text))


def _find_session(store: GooseStore, session: str | None) -> tuple[str | None, list[float], int]:
    """Return a session's id if it exists, its usage so far, and the number of the store's last message."""
    existing = store.find(session) if session else None
    return existing, store.usage_totals(existing) if existing else [0, 0, 0.0], store.last_row()


def _environment(context: AgentContext) -> dict[str, str]:
    """Return the environment: goose's mode, and the model if one is chosen."""
    env = {"GOOSE_MODE": MODES.get(context.permissions, "approve"), "GOOSE_PROMPT_EDITOR_ALWAYS": "false"}
    return {**env, "GOOSE_MODEL": context.model} if context.model else env
