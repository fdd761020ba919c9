"""Records of Codex 0.166.0 (trimmed), and a simulated run of it for the listener."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.agents.codex.plugin import Codex
from agent_orchestrator.plugins.agents.codex.rollouts import remember_start
from agent_orchestrator.protocols import ReportBatch, RunningLaunch
from agent_orchestrator.protocols.reports import Report

BEGIN = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC).timestamp()

IDLE = """\
› hello

• hi there

  Worked for <1s • 12:00

› Ask Codex to do anything

  GPT-5.5 medium · ~/app
  ? for shortcuts                                                    ⚠ 1 warning · f2 to view
"""

COMMAND_DIALOG = """\
• Running touch /etc/x && echo one two

  Would you like to run the following command?

  Environment: local

  Reason: Need to write outside. OK?

  $ touch /etc/x && echo one
  two

› 1. Yes, proceed (y)
  2. Yes, and don't ask again for commands that start with `touch /etc/x` (p)
  3. No, and tell Codex what to do differently (esc)

  Press enter to confirm or esc to cancel

"""

EDIT_DIALOG = """\
• Added new.txt (+1 -0)
    1 +hello
    + Show details

  Would you like to make the following edits?

  Description: Apply proposed file edits
  Destination: /work/app/new.txt

› 1. Yes, proceed (y)
  2. Yes, and don't ask again for these files (a)
  3. No, and tell Codex what to do differently (esc)

  Press enter to confirm or esc to cancel
"""

MENU = """\
  Worked for <1s • 12:00

  Where should the new conversation run?


› 1. Use current Git worktree  Keep using the current working directory
  2. Create new Git worktree   Create a separate checkout of this repository in another directory

  enter select · esc back
"""

MODEL_QUESTION = """\

  Meet GPT-6 Sol

  Our latest Sol is more intelligent and more efficient so your usage limits go further.

› 1. Try new model
  2. Use existing model

  enter/esc confirm · ^c quit
"""

LOGIN = """\
  Welcome to Codex, OpenAI's command-line coding agent

  Choose how you want to use Codex.

> 1. Sign in with ChatGPT
     Usage included with Plus, Pro, Business, and Enterprise plans

  2. Sign in with Device Code
     Sign in from another device with a one-time code

  Press enter to continue
"""

RETRYING = """\
› go on

◦ Reconnecting... 1/5 (3s • esc to interrupt)
  └ Unexpected status 529 <unknown status code>: overloaded

› Ask Codex to do anything

  GPT-5.5 medium · ~/app
  ? for shortcuts
"""


def status(state: str) -> bytes:
    """Return the status sequence that Codex writes to its terminal."""
    return f"\x1b]0;⠋ app\x07\x1b]7501;state={state}:app=codex\x1b\\".encode()


def thread_id(number: int, at: float = BEGIN) -> str:
    """Return a conversation's id, which begins with its start time."""
    stamp = f"{int(at * 1000):012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7000-8000-{number:012x}"


def event(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **payload}}


def started() -> dict[str, Any]:
    return event("task_started", turn_id="t", model_context_window=258400)


def context(model: str = "gpt-5.5") -> dict[str, Any]:
    return {"type": "turn_context", "payload": {"turn_id": "t", "cwd": "/work/app", "model": model}}


def user_message(text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text, "text_elements": []}]
    return event("item_completed", turn_id="t", item={"type": "UserMessage", "id": "u", "content": content})


def used(fresh: int = 1500, cached: int = 300, output: int = 50) -> dict[str, Any]:
    counted = {"input_tokens": fresh, "cached_input_tokens": cached, "cache_write_input_tokens": 0}
    counted |= {"output_tokens": output, "reasoning_output_tokens": 10, "total_tokens": fresh + output}
    return {"type": "token_usage_record", "payload": {"usage": counted, "thread_token_usage": counted}}


def called(call: str, name: str, **arguments: Any) -> dict[str, Any]:
    payload = {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": call}
    return {"type": "response_item", "payload": payload}


def answered(call: str) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": "function_call_output", "call_id": call, "output": "ok"}}


def complete(text: str | None, **more: Any) -> dict[str, Any]:
    return event("task_complete", turn_id="t", last_agent_message=text, **more)


class CodexFileChanges:
    """Changes that are reported when the test requests it."""

    def __init__(self, ended: asyncio.Event) -> None:
        self.watched: list[Path] = []
        self.quiet, self.changed = asyncio.Event(), asyncio.Event()
        self._ended = ended

    def watch(self, path: Path) -> None:
        self.watched.append(path)

    async def next(self, within: float | None = None) -> bool:
        self.quiet.set()
        try:
            await asyncio.wait_for(self.changed.wait(), within)
        except TimeoutError:
            return True
        self.changed.clear()
        return not self._ended.is_set()


class CodexWorld:
    """A session's folders, Codex's home, and a scripted terminal."""

    def __init__(self, folder: Path) -> None:
        self.home, self.workspace, self.private = folder / "codex", folder / "app", folder / "private"
        for each in (self.home, self.workspace, self.private):
            each.mkdir()
        self.log = self.private / "terminal.log"
        self.log.touch()
        self.visible = IDLE
        self.screen_reads = 0
        self.batches: list[ReportBatch] = []
        self.cursors: dict[str, int] = {}
        self._second = 0
        remember_start(self.private, self.home, None, BEGIN)

    def rollout(self, lines: Iterable[Mapping[str, Any]], thread: str = "", **meta: Any) -> Path:
        """Begin a rollout, or add to it."""
        thread = thread or thread_id(1)
        folder = self.home / "sessions" / "2026" / "11" / "15"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rollout-2026-11-15T12-00-00-{thread}.jsonl"
        head = {
            "id": thread,
            "session_id": thread,
            "cwd": str(self.workspace),
            "source": "cli",
            "thread_source": "user",
            **meta,
        }
        all_lines = [] if path.exists() else [{"type": "session_meta", "payload": head}]
        with path.open("a") as file:
            for line in [*all_lines, *lines]:
                self._second += 1
                when = datetime.fromtimestamp(BEGIN + self._second / 100, UTC).isoformat().replace("+00:00", "Z")
                file.write(json.dumps({"timestamp": when, **line}, separators=(",", ":")) + "\n")
        return path

    def prints(self, text: bytes, screen_text: str | None = None) -> None:
        self.visible = self.visible if screen_text is None else screen_text
        with self.log.open("ab") as file:
            file.write(text)

    def run(self, **changes: Any) -> RunningLaunch:
        ended = asyncio.Event()

        async def screen() -> str:
            self.screen_reads += 1
            return self.visible

        run = RunningLaunch(
            session="app-x",
            generation=1,
            pid=1,
            started="1",
            workspace=self.workspace,
            private=self.private,
            log=self.log,
            conversation=None,
            plugin_data={"home": str(self.home), "log": "0", "waits": ""},
            cursors=dict(self.cursors),
            changes=CodexFileChanges(ended),
            screen=screen,
            ended=ended,
        )
        return replace(run, **changes)

    def reports(self, since: int = 0) -> list[Report]:
        return [report for heard in self.batches[since:] for report in heard.reports]


class BackgroundListener:
    """A listener in the background; `step` makes it process changes."""

    def __init__(self, world: CodexWorld, run: RunningLaunch) -> None:
        self.world, self.run = world, run
        assert isinstance(run.changes, CodexFileChanges)
        self.changes = run.changes
        self.task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        async for heard in Codex({}, LocalHost()).listen(self.run):
            self.world.batches.append(heard)
            if heard.source_id:
                place = heard.source_id
                self.world.cursors[place] = max(self.world.cursors.get(place, 0), heard.end)

    async def settle(self) -> list[Report]:
        await asyncio.wait_for(self.changes.quiet.wait(), 60)
        return self.world.reports()

    async def step(self) -> list[Report]:
        """Return the reports made after a change."""
        before = len(self.world.batches)
        self.changes.quiet.clear()
        self.changes.changed.set()
        await asyncio.wait_for(self.changes.quiet.wait(), 60)
        return self.world.reports(before)

    async def end(self) -> list[Report]:
        before = len(self.world.batches)
        self.run.ended.set()
        self.changes.changed.set()
        await asyncio.wait_for(self.task, 60)
        return self.world.reports(before)
