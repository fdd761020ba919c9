"""The plugin `opencode`: runs OpenCode's terminal and reads, prompts and answers it through the HTTP server that it runs on
loopback.

Look here when an OpenCode session does not start, receives no messages, or its permission requests are not answered
(docs/agents/opencode.md).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.errors import Temporary, UsageError
from agent_orchestrator.plugins.agents.opencode.configuration import environment
from agent_orchestrator.plugins.agents.opencode.connection import (
    USER,
    client_of,
    conversation_of,
    create_connection,
    load_connection,
    save_connection,
)
from agent_orchestrator.plugins.agents.opencode.server_calls import (
    call_server,
    ensure_conversation,
    missed_reports,
    reply_to_question,
    resend_unanswered_message,
    send_message,
    show_conversation,
)
from agent_orchestrator.plugins.agents.opencode.server_events import ConversationReader, failure, parse_usage
from agent_orchestrator.plugins.agents.shared import agent_cli
from agent_orchestrator.protocols import (
    Activity,
    Agent,
    AgentContext,
    AgentLaunch,
    AgentState,
    Delivered,
    Delivery,
    InstalledAgent,
    NotReady,
    Permission,
    ReportBatch,
    RunningLaunch,
    ScreenRules,
    TurnCommand,
    TurnLine,
)
from agent_orchestrator.protocols import reports as r

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

INSTALL_REMEDY = "install it: npm install -g opencode-ai"
REPLIES = {"allow": "once", "always": "once", "deny": "reject"}
FIRST_EVENT_TIMEOUT = 2.0
"""Seconds to wait for the first event: a server that is starting may accept the connection and stay silent, but greets a second
connection at once.
"""
SILENCE_TIMEOUT = 30.0
"""Seconds without an event after which the event stream counts as broken; it has a heartbeat every ten seconds."""
RECONNECT_SECONDS = 0.3

SETTINGS = (
    "opencode.json",
    "opencode.jsonc",
    "config.json",
    "AGENTS.md",
    "agent",
    "agents",
    "command",
    "commands",
    "plugin",
    "plugins",
)
"""The configuration files that OpenCode takes commands from; a sandboxed OpenCode may only read them."""


class OpenCode(Agent):
    """The agent plugin that runs `opencode` with its server on a port chosen for the launch."""

    screen = ScreenRules()
    interrupt_keys = ("Escape", "Escape")
    """The keys for a person, pressed one after the other; this plugin stops turns and answers permission requests through the server."""
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        self._host = host
        self._model = config.get("model")
        self._last_text: dict[str, str] = {}

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return OpenCode's folders: login, conversations and state are writable; of the configuration folder, `SETTINGS` are
        read-only.
        """
        del private
        home = Path(env.get("HOME") or Path.home())
        data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
        state = Path(env.get("XDG_STATE_HOME") or home / ".local" / "state") / "opencode"
        config = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
        folders = agent_cli.agent_state(config, *SETTINGS)
        return replace(folders, writable=(*folders.writable, data, state))

    async def detect(self) -> InstalledAgent | None:
        """Return where `opencode` is installed and its version, or None."""
        return await agent_cli.detect(self._host, "opencode")

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the command that starts the terminal and its server; the task is delivered through the server once that answers."""
        connection = create_connection(context)
        save_connection(context.private, connection)
        argv = [self._program(context), "--port", str(connection.port), "--hostname", "127.0.0.1"]
        if context.permissions == "plan":
            argv += ["--agent", "plan"]
        if connection.conversation:
            argv += ["--session", connection.conversation]
        text = (context.task or context.prompt) if context.resume is None else context.message
        model = self._model_of(context)
        return AgentLaunch(
            tuple(argv),
            {
                **environment(context, model),
                "OPENCODE_SERVER_USERNAME": USER,
                "OPENCODE_SERVER_PASSWORD": connection.password,
            },
            paste=text or None,
            waits=True,
            conversation=connection.conversation,
            plugin_data={
                "port": str(connection.port),
                "since": str(time.time()),
                "model": model or "",
                "agent": "plan" if context.permissions == "plan" else "",
                "told": "" if text else "nothing",
            },
        )

    def _program(self, context: AgentContext) -> str:
        """Return the path of `opencode`; raise `Missing` if it is not installed."""
        return agent_cli.find_program(self._host, "opencode", context, INSTALL_REMEDY)

    def _model_of(self, context: AgentContext) -> str | None:
        """Return the model as `provider/model`, or None for OpenCode's default; raise `UsageError` for a name without a provider."""
        model = context.model or self._model
        if model and "/" not in str(model):
            raise UsageError(
                f"opencode knows no model {str(model)!r}", "name it provider/model; see them: opencode models"
            )
        return str(model) if model else None

    # -- listening -----------------------------------------------------------------------------------------------------

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield reports from the server's events; after each connect, first those for what was missed."""
        listener = ConversationReader(
            conversation_of(run),
            float(run.plugin_data["since"]),
            run.cursors,
            awaits=not run.plugin_data["told"],
            going_on=lambda: bool(load_connection(run.private).interrupting),
        )
        while True:
            server = client_of(run)
            with contextlib.suppress(Temporary):
                async with contextlib.aclosing(
                    server.events("/event", first=FIRST_EVENT_TIMEOUT, silence=SILENCE_TIMEOUT)
                ) as events:
                    async for event in events:
                        if listener.conversation is None and (
                            conversation := load_connection(run.private).conversation
                        ):
                            for heard in listener.begin_conversation({"id": conversation}):
                                yield heard
                        if event.get("type") == "server.connected":
                            async for heard in missed_reports(server, listener):
                                yield heard
                        for heard in listener.read_event(event):
                            yield heard
                        if event.get("type") == "session.created":
                            save_connection(
                                run.private, replace(load_connection(run.private), conversation=listener.conversation)
                            )
                        if event.get("type") in ("server.connected", "session.status"):
                            await resend_unanswered_message(server, run, listener)
            if not await run.changes.next(RECONNECT_SECONDS):
                return

    # -- messages and answers -------------------------------------------------------------------------------------------

    async def deliver(self, run: RunningLaunch, message: str, text: str, *, interrupt: bool) -> Delivery | None:
        """Deliver the text as the answer to an open question, or as a message whose id is the same at every attempt; return
        `NotReady` on failure.
        """
        server = client_of(run)
        try:
            conversation = conversation_of(run) or await ensure_conversation(server, run)
            await show_conversation(server, run, conversation)
            if await reply_to_question(server, run, conversation, message, text):
                return Delivered()
            if interrupt:
                save_connection(run.private, replace(load_connection(run.private), interrupting=message))
                await call_server(server, "POST", f"/session/{conversation}/abort")
            return await send_message(server, run, conversation, message, text)
        except Temporary:
            return NotReady("opencode does not answer yet")

    async def answer(
        self, run: RunningLaunch, permission: Permission, decision: str, text: str
    ) -> Sequence[str] | None:
        """Answer a permission request through the server, by its id; 404 means that it was already answered in the terminal."""
        if not permission.request:
            return None
        body = {"reply": REPLIES[decision]}
        if decision == "deny" and text:
            body["message"] = text
        try:
            answer = await client_of(run).call("POST", f"/permission/{permission.request}/reply", body)
        except Temporary:
            return None
        return () if answer.ok or answer.status == 404 else None

    # -- without a terminal --------------------------------------------------------------------------------------------

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> TurnCommand:
        """Return the command `opencode run`, which reads its prompt from standard input; what is not permitted is denied
        without asking.
        """
        argv = [self._program(context), "run", "--format", "json"]
        if model := self._model_of(context):
            argv.append(f"--model={model}")  # as a separate argument a name that begins with a dash would be an option
        if context.permissions == "plan":
            argv += ["--agent", "plan"]
        if conversation:
            argv += ["--session", conversation]
        return TurnCommand(tuple(argv), environment(context, None), stdin=prompt)

    def read_turn(self, line: str) -> TurnLine:
        """Parse one event of `opencode run --format json`; a line of another kind is shown as it is."""
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return TurnLine(line)
        if not isinstance(event, dict):
            return TurnLine(line)
        session, part = str(event.get("sessionID") or ""), event.get("part") or {}
        match event.get("type"):
            case "step_start":
                return TurnLine("", (r.ConversationReport(session), r.ActivityReport(Activity.ACTIVE)))
            case "text":
                self._last_text[session] = str(part.get("text") or "")
                return TurnLine(self._last_text[session])
            case "tool_use":
                return TurnLine(_render_tool_use(part))
            case "step_finish":
                usage_report = parse_usage(part)
                if part.get("reason") == "tool-calls":
                    return TurnLine("", (usage_report,) if usage_report else ())
                turn_report = r.TurnReport(self._last_text.pop(session, ""))
                return TurnLine("", (usage_report, turn_report) if usage_report else (turn_report,))
            case "error":
                report = failure(event.get("error") or {})
                return TurnLine(f"error: {getattr(report, 'detail', '') or 'limit reached'}", (report,))
        return TurnLine()


def _render_tool_use(part: Mapping[str, Any]) -> str:
    """Return the use of a tool as text for a terminal."""
    state = part.get("state") or {}
    title = state.get("title") or json.dumps(state.get("input") or {}, ensure_ascii=False)
    output = str(state.get("output") or state.get("error") or "").strip()
    return f"{part.get('tool')}: {title}" + (f"\n{output}" if output else "")
