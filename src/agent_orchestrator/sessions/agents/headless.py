"""Runs an agent without a terminal of its own, one turn a message: the program of sessions with `mode: headless`.

    python -m agent_orchestrator.sessions.agents.headless PLAN

`PLAN` is written by `plan` at each launch. Messages come from `$AO_INBOX` (and from whoever types lines into the terminal); each is
one run of the command that the agent's plugin names (`protocols.Headless`). What the command prints is shown as the plugin reads
it; what it means goes to `$AO_SPOOL`. A message is acknowledged before its turn begins, so a turn is never run twice. Ctrl-C ends
the turn, not the session.
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

from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.tolerant import read_line
from agent_orchestrator.config.projects.plugin_registry import Registry
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.plugins.agents.shared.spool import SpoolReader, clean_text, line
from agent_orchestrator.protocols import Activity, AgentContext, AgentLaunch, Headless, Permission
from agent_orchestrator.protocols import reports as r

GRACE = 3.0
"""Seconds that an interrupted turn gets to end by itself."""


def plan(
    context: AgentContext,
    agent: str,
    options: Mapping[str, Any],
    plugins: tuple[Path, ...],
    message: str | None,
    scratch: Path | None = None,
) -> AgentLaunch:
    """How to start this program for a session; `message` is the id of the message it is started for, if it is for one. What its turns
    write goes to `scratch`, else to the private folder.
    """
    inbox = context.private / "inbox.jsonl"
    file = context.private / "headless.json"
    resumed = context.resume is not None
    text = {
        "agent": agent,
        "options": dict(options),
        "plugins": [str(path) for path in plugins],
        "context": {
            **{field.name: _plain(getattr(context, field.name)) for field in fields(context) if field.name != "env"},
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
    # The workspace must not lend modules to this program; a variable that says so would reach what the agent runs.
    argv = (sys.executable, "-P", "-u", "-m", "agent_orchestrator.sessions.agents.headless", str(file))
    return AgentLaunch(argv, waits=not text["prompt"], conversation=context.resume or None, inbox=True)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True, slots=True)
class _Message:
    id: str
    text: str


class Driver:
    """Takes messages, runs turns."""

    def __init__(self, plan: Mapping[str, Any], spool: Path, inbox: Path) -> None:
        self.host = LocalHost()
        registry = Registry([{"path": path} for path in plan["plugins"]], installed=[("agent", plan["agent"])])
        made = registry.make("agent", plan["agent"], plan["options"], self.host)
        if not isinstance(made, Headless):
            raise AoError(f"{plan['agent']} has no headless mode", "set mode: tui")
        self.agent: Headless = made
        self.context = _context(plan["context"])
        self.conversation: str | None = self.context.resume
        self.spool = spool
        self.taken = plan["message"] or ""
        self.first = plan["prompt"]
        self.reader = SpoolReader(inbox, plan["inbox"], longest=4 << 20)
        self.queue: asyncio.Queue[_Message] = asyncio.Queue()
        self.turn: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the terminal is closed or somebody ends it."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        watch = Watch()
        watch.file(self.reader.path, self._look_into_inbox)
        if self.first:
            self.queue.put_nowait(_Message(self.taken, self.first))
        else:
            self._tell(r.ActivityReport(Activity.IDLE))
        self._look_into_inbox()
        await self._listen_to_keys()
        while True:
            message = await self.queue.get()
            self.turn = loop.create_task(self._turn(message))
            try:
                await self.turn
            except asyncio.CancelledError:
                self._show("-- interrupted --")
                self._tell(r.ActivityReport(Activity.INTERRUPTED, "a person interrupted its turn"))
            self.turn = None

    def _look_into_inbox(self) -> None:
        while True:
            try:
                lines = self.reader.read()
            except Temporary:  # nothing can be opened this moment
                asyncio.get_running_loop().call_later(0.5, self._look_into_inbox)
                return
            for _, text in lines:
                try:
                    data = json.loads(text)
                    message = _Message(str(data["message"]), str(data["text"]))
                except (ValueError, KeyError, TypeError):
                    continue
                if message.id != self.taken:
                    self.queue.put_nowait(message)
            if not self.reader.more:
                return

    async def _listen_to_keys(self) -> None:
        """A person at the terminal may type a message as a line."""
        if not sys.stdin.isatty():
            return
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

        async def read() -> None:
            while typed := await reader.readline():
                if text := clean_text(typed.decode(errors="replace")).strip():
                    self.queue.put_nowait(_Message("", text))

        self._keys = loop.create_task(read())

    def _interrupt(self) -> None:
        if self.turn is not None:
            self.turn.cancel()

    async def _turn(self, message: _Message) -> None:
        if message.id:
            self._tell(r.AckReport(message.id))
        self._tell(r.ActivityReport(Activity.ACTIVE))
        self._show("".join(f"> {each}\n" for each in message.text.splitlines()))
        ended: list[r.TurnReport] = []
        limited: list[r.LimitReport] = []
        last: list[str] = []

        def report(text: str) -> None:
            read = read_line(self.agent, text)
            if read.show:
                self._show(read.show)
                last[:] = [read.show]
            for each in read.reports:
                if isinstance(each, r.ConversationReport):
                    self.conversation = each.conversation
                if isinstance(each, r.TurnReport):
                    ended.append(each)  # told when the command has ended, so that "idle" is true
                    continue
                if isinstance(each, r.LimitReport):
                    limited.append(each)
                self._tell(each)

        try:
            turn = self.agent.turn(self.context, message.text, self.conversation)
            code = await self.host.stream(
                turn.argv,
                report,
                cwd=self.context.workspace,
                env={**os.environ, **turn.env},
                input=None if turn.stdin is None else turn.stdin.encode(),
                grace=GRACE,
            )
        except AoError as error:
            self._show(str(error))
            self._tell(r.AskReport(f"The turn could not be run: {error}"))
            return
        if code and not limited:
            why = last[-1].strip().splitlines()[-1] if last and last[-1].strip() else "it said nothing"
            self._tell(r.AskReport(f"The turn failed (exit {code}): {why}"))
        elif not limited:
            self._tell(ended[-1] if ended else r.TurnReport())

    def _tell(self, report: r.Report) -> None:
        with self.spool.open("ab") as file:
            file.write(line(report))
            file.flush()
            os.fsync(file.fileno())

    def _show(self, text: str) -> None:
        sys.stdout.write(clean_text(text).rstrip("\n") + "\n")
        sys.stdout.flush()


def _context(data: dict[str, Any]) -> AgentContext:
    for name in ("workspace", "task_file", "private", "repo"):
        data[name] = Path(data[name])
    data["allowed"] = tuple(Permission(**each) for each in data["allowed"])
    data["commands"] = tuple(data["commands"])
    return AgentContext(**data, env=dict(os.environ))


def main() -> int:
    """Run the plan given as the only argument."""
    try:
        plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        driver = Driver(plan, Path(os.environ["AO_SPOOL"]), Path(os.environ["AO_INBOX"]))
    except AoError as error:
        sys.stderr.write(f"ao: {error}\n")
        return 1
    asyncio.run(driver.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
