"""The program that a session of an `AgentPlugin` runs in its terminal.

    python -m agent_orchestrator.client.api.run_plugin PLAN

`PLAN` is written by `AgentPlugin.launch`. The plugin prints to the terminal; its reports go to `$AO_SPOOL`; messages come from
`$AO_INBOX`, each acknowledged before the plugin gets it, so that none is delivered twice.
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

from agent_orchestrator.client.api.plugins import AgentConfig, AgentPlugin, AgentStatus, append_record
from agent_orchestrator.client.api.tasks import Task
from agent_orchestrator.errors import AoError

INBOX_INTERVAL = 0.2
"""Seconds between two reads of the inbox."""
STATUS_INTERVAL = 1.0
"""Seconds between two queries of the plugin's status."""
STOP_TIMEOUT = 3.0
"""Seconds that the plugin's `stop` may take."""

ACTIVITIES = {"working": "active", "idle": "idle", "waiting": "waiting_input", "done": "idle"}


class PluginFailed(Exception):
    """Raised when the plugin reports a failure."""


class PluginRunner:
    """Runs one plugin for one session."""

    def __init__(self, plan: Mapping[str, Any], spool: str, inbox: Path) -> None:
        self.plugin = load_plugin(plan)
        self.spool, self.inbox, self._read = spool, inbox, int(plan["inbox"])
        text = str(plan["text"])
        self.task = _task_from_message(str(plan["context"]["session_id"]), text)
        self.config = AgentConfig(**plan["context"], task=self.task, options=plan["options"])
        self.session = self.config.session_id
        self._launch_message = text if self.plugin.is_one_shot() or not self.config.resumed else None
        self._queued_messages: deque[tuple[str, str]] = deque()
        self._turn: asyncio.Task[Any] | None = None
        self._last_activity: tuple[str, str | None] = ("", None)
        self._is_ending = False

    async def run(self) -> int:
        """Run until the task is done or the process is asked to end; return the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for signal_number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(signal_number, self._terminate)
        try:
            return await (self._run_tasks() if self.plugin.is_one_shot() else self._run_until_ended())
        finally:
            await asyncio.wait_for(_await_if_needed(self.plugin.stop(self.session)), STOP_TIMEOUT)

    # -- a task and its end --------------------------------------------------------------------------------------------

    async def _run_tasks(self) -> int:
        """Do the task, then each message that arrived meanwhile, as a separate task; return the exit code."""
        self._read_inbox()
        task: Task | None = self.task
        while task is not None:
            self._report_activity("active", None)
            if not await self._await_turn(self.plugin.execute_task(task, self.config)):
                return 143 if self._is_ending else 130
            assert self._turn is not None
            self._report_result(self._turn.result())
            text = self._next_message()
            task = None if text is None else _task_from_message(self.session, text)
        return 0

    def _report_result(self, result: object) -> None:
        """Report a task's result as done, or raise Failed."""
        summary = result if isinstance(result, str) else str(getattr(result, "summary", None) or "")
        if result is False or getattr(result, "success", True) is False:
            raise PluginFailed(summary or "the task was not done")
        self._report("done", summary=summary)

    # -- a long-running plugin -----------------------------------------------------------------------------------------

    async def _run_until_ended(self) -> int:
        """Start the plugin, deliver messages and report its status until the process is asked to end; return the exit code."""
        self._read_inbox()
        self._report_activity("active", None)
        await self._await_turn(self.plugin.start(self.config))
        loop, next_report = asyncio.get_running_loop(), 0.0
        while not self._is_ending:
            while (text := self._next_message()) is not None:
                self._report_activity("active", None)
                await self._await_turn(self.plugin.send_message(self.session, text))
                next_report = 0.0
            if loop.time() >= next_report:
                next_report = loop.time() + STATUS_INTERVAL
                await self._report_status()
            await asyncio.sleep(INBOX_INTERVAL)
        return 143

    async def _report_status(self) -> None:
        """Query the plugin's status and report it; raise Failed for the state `error`."""
        status = await _await_if_needed(self.plugin.get_status(self.session))
        if status is None:
            self._report_activity("idle", None)
            return
        assert isinstance(status, AgentStatus)
        if status.state == "error":
            raise PluginFailed(status.current_task or "the agent says that it failed")
        if status.state == "done" and self._last_activity[0] != "done":
            self._report("done", summary=status.current_task or "")
        self._report_activity(ACTIVITIES[status.state], status.current_task, status.state)

    def _report_activity(self, activity: str, step: str | None, name: str = "") -> None:
        """Report the activity and the step if they differ from the last report."""
        if (name or activity, step) == self._last_activity:
            return
        if step and step != self._last_activity[1] and activity == "active":
            self._report("progress", step=step)
        self._last_activity = (name or activity, step)
        detail = {"detail": step} if step and activity == "waiting_input" else {}
        self._report("activity", state=activity, **detail)

    # -- both ----------------------------------------------------------------------------------------------------------

    async def _await_turn(self, call: Any) -> bool:
        """Wait for a call of the plugin, which `_interrupt` may cancel; return whether it finished."""
        self._turn = asyncio.ensure_future(_await_if_needed(call))
        await asyncio.wait([self._turn])
        if self._turn.cancelled():
            if not self._is_ending:
                self._report_activity("interrupted", None)
            return False
        self._turn.result()
        return True

    def _next_message(self) -> str | None:
        """Acknowledge and return the next message, or None if there is none or the process is ending."""
        self._read_inbox()
        if self._is_ending or not self._queued_messages:
            return None
        message, text = self._queued_messages.popleft()
        self._report("ack", message=message)
        return text

    def _read_inbox(self) -> None:
        """Read the new lines of the inbox; the message that the launch was started with is acknowledged only: it is the task already."""
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
                if text == self._launch_message:
                    self._launch_message = None
                    self._report("ack", message=message)
                else:
                    self._queued_messages.append((message, text))

    def _interrupt(self) -> None:
        """Cancel the current turn."""
        if self._turn is not None:
            self._turn.cancel()

    def _terminate(self) -> None:
        """Cancel the current turn and end."""
        self._is_ending = True
        self._interrupt()

    def _report(self, event: str, **data: object) -> None:
        """Append a report to the spool."""
        append_record(self.spool, {"event": event, **data})


def _task_from_message(session: str, text: str) -> Task:
    """Make a task of a message, titled with its first line."""
    return Task(session, text.partition("\n")[0][:120], text)


async def _await_if_needed(value: Any) -> Any:
    """Return a value, awaited if it is awaitable: a plugin's methods may be asynchronous or not."""
    return await value if inspect.isawaitable(value) else value


def load_plugin(plan: Mapping[str, Any]) -> AgentPlugin:
    """Return the plugin: the object that its file made of the class, else a new one with its configuration."""
    module = _import(plan["file"], plan["module"]) if plan["file"] else importlib.import_module(plan["module"])
    declared = getattr(module, "plugin", None)
    for candidate in declared.values() if isinstance(declared, dict) else (declared,):
        if isinstance(candidate, AgentPlugin) and type(candidate).__qualname__ == plan["class"]:
            return candidate
    kind: Any = module
    for part in str(plan["class"]).split("."):
        kind = getattr(kind, part)
    plugin = kind.from_config(plan["options"], None)
    assert isinstance(plugin, AgentPlugin)
    return plugin


def _import(file: str, name: str) -> ModuleType:
    """Import a Python file under this module name."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run_and_print_errors(coroutine: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine and return its exit code, printing errors to the terminal."""
    try:
        return asyncio.run(coroutine)
    except (PluginFailed, AoError) as error:
        sys.stderr.write(f"{error}\n")
    except Exception:
        traceback.print_exc()  # the plugin's author reads it in the session's terminal
    return 1


def main() -> int:
    """Run the plan given as the only argument."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        runner = PluginRunner(plan, os.environ["AO_SPOOL"], Path(os.environ["AO_INBOX"]))
    except Exception:
        traceback.print_exc()
        return 1
    return _run_and_print_errors(runner.run())


if __name__ == "__main__":
    sys.exit(main())
