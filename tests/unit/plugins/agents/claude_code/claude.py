"""Records of Claude Code 2.1.325, and a simulated run of it for the listener."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_orchestrator.plugins.agents.claude_code.listener import ClaudeListener, projects_folder
from agent_orchestrator.protocols import ReportBatch, RunningLaunch
from agent_orchestrator.protocols.reports import Report

SESSION = "0b8f2f5e-3c1d-4f8e-9a52-6f1d2c3b4a59"
BEGIN = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC).timestamp()

PERMISSION_DIALOG = """\
❯ go on

● Running rm -f foo.txt && curl http://x
  ⎿  $ rm -f foo.txt && curl http://x

────────────────────────────────────────────────────────────────────────────────
 Bash command
 Tip: auto mode handles these prompts for you — choose "switch to auto mode" below
 Run shell command
╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌
 rm -f foo.txt && curl http://x
╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌
 This command requires approval

 Do you want to proceed?
 ❯ 1. Yes
   2. Yes, and don’t ask again for: curl http://x
   3. Yes, and switch to auto mode · auto mode handles these prompts for you
   4. No

 Esc to cancel · Tab to amend



"""

FILE_DIALOG = """\
● Write(n.txt)

────────────────────────────────────────────────────────────────────────────────
 Create file
 ../home/plans/n.txt
╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌
  1 # Plan
  2 1. do a
╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌
 Auto mode can't check actions in this session, so this one needs your approval

 Do you want to create n.txt?
 ❯ No
   Yes

 Esc to cancel · Tab to amend
"""

PLAN_DIALOG = """\
▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔ ◐ medium · /effort ▔

  ──────────────────────────────────────────────────────────────────────────────
   Exit plan mode?

    Claude wants to exit plan mode

    ❯ 1. Yes, and switch to default (ask each time) for this session
      2. No
"""

QUESTION_DIALOG = """\
❯ go
────────────────────────────────────────────────────────────────────────────────
←  ☐ DB  ☐ C  ✔ Submit  →

Which database?

❯ 1. PostgreSQL
     big
  2. SQLite
     small
  3. Type something.
────────────────────────────────────────────────────────────────────────────────
  4. Chat about this

Enter to select · Tab/Arrow keys to navigate · Esc to cancel
"""

PROMPT = """\
❯ hello

● hi there

✻ Cooked for 0s · done 11:28 AM

                                                            ◐ medium · /effort
────────────────────────────────────────────────────────────────────────────────
❯ 1. this is being typed
────────────────────────────────────────────────────────────────────────────────
  ⏵⏵ accept edits on (shift+tab to cycle) · ← for agents
"""

RETRYING = """\
❯ try

✻ 529 scripted error 529 · Retrying in 6s · attempt 5/10
  ⎿  If it persists, check your inference gateway (127.0.0.1:36577).
────────────────────────────────────────────────────────────────────────────────
❯
────────────────────────────────────────────────────────────────────────────────
"""


class ClaudeFileChanges:
    """Changes that are reported when the test requests it."""

    def __init__(self, ended: asyncio.Event) -> None:
        self.watched: list[Path] = []
        self.patience: float | None = None
        self.quiet, self.changed = asyncio.Event(), asyncio.Event()
        self._ended = ended

    def watch(self, path: Path) -> None:
        self.watched.append(path)

    async def next(self, within: float | None = None) -> bool:
        self.patience = within
        self.quiet.set()
        await self.changed.wait()
        self.changed.clear()
        return not self._ended.is_set()


class SimulatedClaude:
    """A simulated Claude Code: it writes files as a test demands, and collects the reports about them."""

    def __init__(self, folder: Path, *, memo: Mapping[str, str] | None = None, now: float = BEGIN) -> None:
        self.folder, self.now, self.visible = folder / "config", now, PROMPT
        self.workspace, self.private = folder / "workspace", folder / "private"
        for path in (self.workspace, self.private, self.folder / "sessions"):
            path.mkdir(parents=True, exist_ok=True)
        self.log = self.private / "terminal.log"
        self.log.touch()
        self.transcript = projects_folder(self.folder, self.workspace) / f"{SESSION}.jsonl"
        self.transcript.parent.mkdir(parents=True, exist_ok=True)
        self.plugin_data = {"hooks": "hooks.jsonl", "launched": self.iso(), **(memo or {})}
        self.cursors: dict[str, int] = {}
        self._begin()

    async def restart(self) -> None:
        """Start another listener, as a restarted daemon does."""
        await self.close()
        self._begin()

    async def close(self) -> None:
        """Stop listening."""
        if self._next is not None:
            self._next.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await self._next
        await self._heard.aclose()

    def _begin(self) -> None:
        ended = asyncio.Event()
        self.changes = ClaudeFileChanges(ended)

        async def screen() -> str:
            return self.visible

        self.run = RunningLaunch(
            session="app-s",
            generation=1,
            pid=4711,
            started="1180535",
            workspace=self.workspace,
            private=self.private,
            log=self.log,
            conversation=SESSION,
            plugin_data=self.plugin_data,
            cursors=dict(self.cursors),
            changes=self.changes,
            screen=screen,
            ended=ended,
        )
        self.changes.changed.set()
        self._heard: AsyncGenerator[ReportBatch, None] = ClaudeListener(
            self.run, self.folder, lambda: self.now
        ).listen()
        self._next: asyncio.Task[ReportBatch] | None = None

    def iso(self) -> str:
        return datetime.fromtimestamp(self.now, UTC).isoformat()

    # -- what it writes ------------------------------------------------------------------------------------------------

    def record(self, status: str, waits_for: str = "", **more: Any) -> None:
        data = {
            "pid": 4711,
            "sessionId": SESSION,
            "procStart": "1180535",
            "startedAt": int(BEGIN * 1000) + 5,
            "status": status,
            "statusUpdatedAt": int(self.now * 1000),
            **({"waitingFor": waits_for} if waits_for else {}),
            **more,
        }
        (self.folder / "sessions" / f"{data['pid']}.json").write_text(json.dumps(data))

    def hook(self, event: str, **data: Any) -> None:
        line = {"session_id": SESSION, "transcript_path": str(self.transcript), "hook_event_name": event, **data}
        with (self.private / "hooks.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def write(self, *lines: Mapping[str, Any], to: Path | None = None) -> None:
        path = to or self.transcript
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            for line in lines:
                file.write(json.dumps({"timestamp": self.iso(), "isSidechain": False, **line}) + "\n")

    def user(self, text: str, **more: Any) -> dict[str, Any]:
        content: Any = [{"type": "text", "text": text}] if text.startswith("[Request") else text
        return {"type": "user", "message": {"role": "user", "content": content}, "origin": {"kind": "human"}, **more}

    def answer_line(
        self, text: str, identity: str = "msg_1", stop: str | None = "end_turn", **more: Any
    ) -> dict[str, Any]:
        return assistant([{"type": "text", "text": text}], identity, stop, **more)

    def called(self, tool: str, arguments: Mapping[str, Any], call: str = "toolu_1") -> dict[str, Any]:
        return assistant(
            [{"type": "tool_use", "id": call, "name": tool, "input": dict(arguments)}], "msg_2", "tool_use"
        )

    def result(self, call: str = "toolu_1", outcome: Any = "ok", **more: Any) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": call, "content": "ok"}
        return {"type": "user", "message": {"role": "user", "content": [block]}, "toolUseResult": outcome, **more}

    # -- what is heard -------------------------------------------------------------------------------------------------

    async def read_reports(self, seconds: float = 0.0) -> list[Report]:
        """Return all reports that are available now, or after some time."""
        self.now += seconds
        return [report for heard in await self.read_batches() for report in heard.reports]

    async def read_batches(self) -> list[ReportBatch]:
        batches: list[ReportBatch] = []
        self.changes.quiet.clear()
        self.changes.changed.set()
        while True:
            self._next = self._next or asyncio.ensure_future(anext(self._heard))
            quiet = asyncio.ensure_future(self.changes.quiet.wait())
            await asyncio.wait([self._next, quiet], return_when=asyncio.FIRST_COMPLETED)
            quiet.cancel()
            if not self._next.done():
                return batches
            task, self._next = self._next, None
            try:
                batches.append(task.result())
            except StopAsyncIteration:
                return batches
            if (last := batches[-1]).source_id:
                self.cursors[last.source_id] = max(self.cursors.get(last.source_id, 0), last.end)

    async def end(self) -> list[Report]:
        """End its process, and return the remaining reports."""
        self.run.ended.set()
        return await self.read_reports()


def assistant(content: list[Any], identity: str, stop: str | None, **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 1000,
        "output_tokens": 50,
        "cache_read_input_tokens": 300,
        "cache_creation_input_tokens": 200,
    }
    message = {"id": identity, "role": "assistant", "model": "claude-opus-5-5", "content": content}
    return {"type": "assistant", "message": {**message, "stop_reason": stop, "usage": usage}, **more}


def api_error(text: str, **more: Any) -> dict[str, Any]:
    message = {
        "id": "9d8dd0bf",
        "role": "assistant",
        "model": "<synthetic>",
        "stop_reason": "stop_sequence",
        "content": [{"type": "text", "text": text}],
    }
    return {"type": "assistant", "message": message, "isApiErrorMessage": True, **more}
