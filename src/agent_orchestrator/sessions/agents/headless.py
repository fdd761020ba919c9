"""Runs an agent without a terminal, one turn per message: the program of sessions with `mode: headless`.

    python -m agent_orchestrator.sessions.agents.headless PLAN

`PLAN` is written by `plan_launch` at each launch. Messages come from `$AO_INBOX`, and from lines typed into the terminal; each is one run
of the command that the agent's plugin names (`ScriptedAgent.run_turn`). The plugin parses the command's output: the text is shown, the
reports go to `$AO_SPOOL`. A message is acknowledged before its turn begins, so a turn is never run twice. Ctrl-C ends the turn, not the
session.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.malformed_records import parse_turn_line
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.plugins.agents.shared.spool import SpoolReader, clean_text, to_line
from agent_orchestrator.protocols import Activity, Agent, AgentContext, AgentLaunch, Permission
from agent_orchestrator.protocols import reports as r

INTERRUPT_TIMEOUT = 3.0
"""Seconds that an interrupted turn gets to end normally."""


def plan_launch(
    context: AgentContext,
    agent: str,
    options: Mapping[str, Any],
    plugins: tuple[Path, ...],
    message: str | None,
    scratch: Path | None = None,
) -> AgentLaunch:
    """Write the plan file and return how to start this program for a session.

    `message` is the id of the message that the launch is for, if there is one. The turns write their files to `scratch`, or to the private
    folder.
    """
    inbox = context.private / "inbox.jsonl"
    file = context.private / "headless.json"
    resumed = context.resume is not None
    text = {
        "agent": agent,
        "options": dict(options),
        "plugins": [str(path) for path in plugins],
        "context": {
            **{
                field.name: _json_value(getattr(context, field.name))
                for field in fields(context)
                if field.name != "env"
            },
            "private": str(scratch or context.private),
            "allowed": [asdict(permission) for permission in context.allowed],
        },
        "prompt": context.message if resumed else context.task or context.prompt,
        "message": message,
        "inbox": inbox.stat().st_size if inbox.exists() else 0,
    }
    if scratch is not None:
        scratch.mkdir(mode=0o700, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(json.dumps(text, ensure_ascii=False), encoding="utf-8")
    # -P keeps modules of the workspace out of this program; a variable with that effect would be inherited by the agent's commands.
    argv = (sys.executable, "-P", "-u", "-m", "agent_orchestrator.sessions.agents.headless", str(file))
    return AgentLaunch(argv, waits=not text["prompt"], conversation=context.resume or None, inbox=True)


def _json_value(value: object) -> object:
    """Return a path as text, and any other value unchanged."""
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True, slots=True)
class _QueuedMessage:
    """A message whose turn is to be run; typed ones have no id."""

    id: str
    text: str


class HeadlessDriver:
    """The loop that takes messages and runs their turns."""

    def __init__(self, plan: Mapping[str, Any], spool: Path, inbox: Path) -> None:
        self.host = LocalHost()
        registry = PluginRegistry([{"path": path} for path in plan["plugins"]], installed=[("agent", plan["agent"])])
        self.agent: Agent = registry.create("agent", plan["agent"], plan["options"], self.host)
        if not self.agent.has_headless_mode:
            raise AoError(f"{plan['agent']} has no headless mode", "set mode: tui")
        self.context = _parse_context(plan["context"])
        self.conversation: str | None = self.context.resume
        self.spool = spool
        self.initial_message = plan["message"] or ""
        self.first_prompt = plan["prompt"]
        self.reader = SpoolReader(inbox, plan["inbox"], longest=4 << 20)
        self.queue: asyncio.Queue[_QueuedMessage] = asyncio.Queue()
        self.turn: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run turns until the terminal is closed or the process is killed."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        watch = FileWatcher()
        watch.watch_file(self.reader.path, self._read_inbox)
        if self.first_prompt:
            self.queue.put_nowait(_QueuedMessage(self.initial_message, self.first_prompt))
        else:
            self._report(r.ActivityReport(Activity.IDLE))
        self._read_inbox()
        await self._read_typed_lines()
        while True:
            message = await self.queue.get()
            self.turn = loop.create_task(self._run_turn(message))
            try:
                await self.turn
            except asyncio.CancelledError:
                self._show("-- interrupted --")
                self._report(r.ActivityReport(Activity.INTERRUPTED, "a person interrupted its turn"))
            self.turn = None

    def _read_inbox(self) -> None:
        """Queue the new messages of the inbox file."""
        while True:
            try:
                lines = self.reader.read()
            except Temporary:  # no file can be opened at the moment
                asyncio.get_running_loop().call_later(0.5, self._read_inbox)
                return
            for _, text in lines:
                try:
                    data = json.loads(text)
                    message = _QueuedMessage(str(data["message"]), str(data["text"]))
                except (ValueError, KeyError, TypeError):
                    continue
                if message.id != self.initial_message:
                    self.queue.put_nowait(message)
            if not self.reader.has_more:
                return

    async def _read_typed_lines(self) -> None:
        """Queue each line that a person types into the terminal as a message."""
        if not sys.stdin.isatty():
            return
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

        async def read_lines() -> None:
            """Queue lines until the terminal is closed."""
            while line_bytes := await reader.readline():
                if text := clean_text(line_bytes.decode(errors="replace")).strip():
                    self.queue.put_nowait(_QueuedMessage("", text))

        self._keys = loop.create_task(read_lines())

    def _interrupt(self) -> None:
        """Cancel the current turn."""
        if self.turn is not None:
            self.turn.cancel()

    async def _run_turn(self, message: _QueuedMessage) -> None:
        """Run a message's turn, and report its output and how it ended."""
        if message.id:
            self._report(r.AckReport(message.id))
        self._report(r.ActivityReport(Activity.ACTIVE))
        self._show("".join(f"> {item}\n" for item in message.text.splitlines()))
        turn_reports: list[r.TurnReport] = []
        limit_reports: list[r.LimitReport] = []
        last_shown: list[str] = []

        def report(text: str) -> None:
            """Show a line of output, and pass on what it reports."""
            parsed = parse_turn_line(self.agent, text)
            if parsed.show:
                self._show(parsed.show)
                last_shown[:] = [parsed.show]
            for item in parsed.reports:
                if isinstance(item, r.ConversationReport):
                    self.conversation = item.conversation
                if isinstance(item, r.TurnReport):
                    turn_reports.append(item)  # reported when the command has ended, so that "idle" is true
                    continue
                if isinstance(item, r.LimitReport):
                    limit_reports.append(item)
                self._report(item)

        try:
            turn = self.agent.turn(self.context, message.text, self.conversation)
            code = await self.host.stream(
                turn.argv,
                report,
                cwd=self.context.workspace,
                env={**os.environ, **turn.env},
                input=None if turn.stdin is None else turn.stdin.encode(),
                grace=INTERRUPT_TIMEOUT,
            )
        except AoError as error:
            self._show(str(error))
            self._report(r.AskReport(f"The turn could not be run: {error}"))
            return
        if code and not limit_reports:
            reason = (
                last_shown[-1].strip().splitlines()[-1] if last_shown and last_shown[-1].strip() else "it said nothing"
            )
            self._report(r.AskReport(f"The turn failed (exit {code}): {reason}"))
        elif not limit_reports:
            self._report(turn_reports[-1] if turn_reports else r.TurnReport())

    def _report(self, report: r.Report) -> None:
        """Append a report to the spool, and wait until it is on disk."""
        with self.spool.open("ab") as file:
            file.write(to_line(report))
            file.flush()
            os.fsync(file.fileno())

    def _show(self, text: str) -> None:
        """Print text for a person who watches the terminal."""
        sys.stdout.write(clean_text(text).rstrip("\n") + "\n")
        sys.stdout.flush()


def _parse_context(data: dict[str, Any]) -> AgentContext:
    """Return the agent's context from its JSON form."""
    for name in ("workspace", "task_file", "private", "repo"):
        data[name] = Path(data[name])
    data["allowed"] = tuple(Permission(**permission) for permission in data["allowed"])
    data["commands"] = tuple(data["commands"])
    return AgentContext(**data, env=dict(os.environ))


def main() -> int:
    """Run the plan given as the only argument; return the exit code."""
    try:
        plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        driver = HeadlessDriver(plan, Path(os.environ["AO_SPOOL"]), Path(os.environ["AO_INBOX"]))
    except AoError as error:
        sys.stderr.write(f"ao: {error}\n")
        return 1
    asyncio.run(driver.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
