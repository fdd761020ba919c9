"""Runs an `AgentPlugin` in its session's terminal: the program that its sessions start.

    python -m agent_orchestrator.client.api.run_plugin PLAN

`PLAN` is written by `AgentPlugin.launch`. What the plugin prints is the terminal's; what it does goes to `$AO_SPOOL`; messages come from
`$AO_INBOX`, each acknowledged before it is handed over, so that none is handed over twice.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_orchestrator.client.api.plugins import AgentConfig, AgentPlugin, AgentStatus, append
from agent_orchestrator.client.api.tasks import Task
from agent_orchestrator.errors import AoError

LOOK = 0.2
"""Seconds between two looks into the inbox."""
ASK = 1.0
"""Seconds between two questions how the plugin is."""
GRACE = 3.0
"""Seconds that its clean-up gets."""

ACTIVITIES = {"working": "active", "idle": "idle", "waiting": "waiting_input", "done": "idle"}


class Failed(Exception):
    """The plugin says that it failed."""


class Runner:
    """One plugin, one session."""

    def __init__(self, plan: Mapping[str, Any], spool: str, inbox: Path) -> None:
        self.plugin = load(plan)
        self.spool, self.inbox, self._read = spool, inbox, int(plan["inbox"])
        text = str(plan["text"])
        self.task = _task(str(plan["context"]["session_id"]), text)
        self.config = AgentConfig(**plan["context"], task=self.task, options=plan["options"])
        self.session = self.config.session_id
        self._carried = text if self.plugin.is_one_shot() or not self.config.resumed else None
        self._waiting: deque[tuple[str, str]] = deque()
        self._turn: asyncio.Task[Any] | None = None
        self._told: tuple[str, str | None] = ("", None)
        self._ending = False

    async def run(self) -> int:
        """Until its task is done, or somebody ends it; returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end)
        try:
            return await (self._once() if self.plugin.is_one_shot() else self._live())
        finally:
            await asyncio.wait_for(_done(self.plugin.stop(self.session)), GRACE)

    # -- a task and its end --------------------------------------------------------------------------------------------

    async def _once(self) -> int:
        """The task, then each message that came meanwhile, as a task of its own."""
        self._look()
        task: Task | None = self.task
        while task is not None:
            self._tell("active", None)
            if not await self._do(self.plugin.execute_task(task, self.config)):
                return 143 if self._ending else 130
            assert self._turn is not None
            self._judge(self._turn.result())
            text = self._next()
            task = None if text is None else _task(self.session, text)
        return 0

    def _judge(self, result: object) -> None:
        summary = result if isinstance(result, str) else str(getattr(result, "summary", None) or "")
        if result is False or getattr(result, "success", True) is False:
            raise Failed(summary or "the task was not done")
        self._report("done", summary=summary)

    # -- a life with messages ------------------------------------------------------------------------------------------

    async def _live(self) -> int:
        self._look()
        self._tell("active", None)
        await self._do(self.plugin.start(self.config))
        loop, due = asyncio.get_running_loop(), 0.0
        while not self._ending:
            while (text := self._next()) is not None:
                self._tell("active", None)
                await self._do(self.plugin.send_message(self.session, text))
                due = 0.0
            if loop.time() >= due:
                due = loop.time() + ASK
                await self._ask()
            await asyncio.sleep(LOOK)
        return 143

    async def _ask(self) -> None:
        status = await _done(self.plugin.get_status(self.session))
        if status is None:
            self._tell("idle", None)
            return
        assert isinstance(status, AgentStatus)
        if status.state == "error":
            raise Failed(status.current_task or "the agent says that it failed")
        if status.state == "done" and self._told[0] != "done":
            self._report("done", summary=status.current_task or "")
        self._tell(ACTIVITIES[status.state], status.current_task, status.state)

    def _tell(self, activity: str, step: str | None, name: str = "") -> None:
        """Report what is another than before."""
        if (name or activity, step) == self._told:
            return
        if step and step != self._told[1] and activity == "active":
            self._report("progress", step=step)
        self._told = (name or activity, step)
        detail = {"detail": step} if step and activity == "waiting_input" else {}
        self._report("activity", state=activity, **detail)

    # -- both ----------------------------------------------------------------------------------------------------------

    async def _do(self, work: Any) -> bool:
        """Have the plugin do something; false: it was interrupted."""
        self._turn = asyncio.ensure_future(_done(work))
        await asyncio.wait([self._turn])
        if self._turn.cancelled():
            if not self._ending:
                self._tell("interrupted", None)
            return False
        self._turn.result()
        return True

    def _next(self) -> str | None:
        """The next message, acknowledged; none: there is none, or it is time to go."""
        self._look()
        if self._ending or not self._waiting:
            return None
        message, text = self._waiting.popleft()
        self._report("ack", message=message)
        return text

    def _look(self) -> None:
        """Read the inbox on; the message that it was started for is its task already."""
        with self.inbox.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                try:
                    data = json.loads(line)
                    message, text = str(data["message"]), str(data["text"])
                except (ValueError, KeyError, TypeError):
                    continue
                if text == self._carried:
                    self._carried = None
                    self._report("ack", message=message)
                else:
                    self._waiting.append((message, text))

    def _interrupt(self) -> None:
        if self._turn is not None:
            self._turn.cancel()

    def _end(self) -> None:
        self._ending = True
        self._interrupt()

    def _report(self, event: str, **data: object) -> None:
        append(self.spool, {"event": event, **data})


def _task(session: str, text: str) -> Task:
    return Task(session, text.partition("\n")[0][:120], text)


async def _done(work: Any) -> Any:
    """What came of a plugin's method, asynchronous or not."""
    return await work if inspect.isawaitable(work) else work


def load(plan: Mapping[str, Any]) -> AgentPlugin:
    """The plugin: the object that its file made of the class, else one that is made with its configuration."""
    module = _import(plan["file"], plan["module"]) if plan["file"] else importlib.import_module(plan["module"])
    declared = getattr(module, "plugin", None)
    for one in declared.values() if isinstance(declared, dict) else (declared,):
        if isinstance(one, AgentPlugin) and type(one).__qualname__ == plan["class"]:
            return one
    kind: Any = module
    for part in str(plan["class"]).split("."):
        kind = getattr(kind, part)
    made = kind.made(plan["options"], None)
    assert isinstance(made, AgentPlugin)
    return made


def _import(file: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run(work: Coroutine[Any, Any, int]) -> int:
    try:
        return asyncio.run(work)
    except (Failed, AoError) as error:
        sys.stderr.write(f"{error}\n")
    except Exception:
        traceback.print_exc()  # its author reads it in the session's terminal
    return 1


def main() -> int:
    """Run the plan given as the only argument."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        runner = Runner(plan, os.environ["AO_SPOOL"], Path(os.environ["AO_INBOX"]))
    except Exception:
        traceback.print_exc()
        return 1
    return _run(runner.run())


if __name__ == "__main__":
    sys.exit(main())
