"""Codex's rollouts: one file of JSON lines a conversation, below `$CODEX_HOME/sessions/<year>/<month>/<day>/`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import plain
from agent_orchestrator.base.tolerant import forgiving
from agent_orchestrator.plugins.agents.shared.forge_commands import forge_calls
from agent_orchestrator.plugins.agents.shared.journals import (
    MOST_BESIDE,
    Journal,
    Line,
    in_pattern,
    moment,
    past_lines,
    size_of,
)
from agent_orchestrator.protocols import Activity, AgentRun, Heard
from agent_orchestrator.protocols import reports as r

LONGEST_HEAD = 1 << 20
_AT_ONCE = 50
"""Files that are looked at in one turn of the event loop."""
GUARD = "Message: "
"""Put before a message that Codex would take for a command of its own."""

_START = "codex.json"
_NAME = re.compile(r"rollout-[\d-]+T[\d-]+-(?P<id>[0-9a-f-]{36})\.jsonl")
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
_TODAY = re.compile(r"try again at (\d{1,2}:\d{2} [AP]M)")
_LATER = re.compile(r"try again at (\w{3}) (\d{1,2})\w{2}, (\d{4}) (\d{1,2}:\d{2} [AP]M)")


def find(home: Path, conversation: str) -> Path | None:
    """A conversation's rollout."""
    return next(iter(sorted(home.glob(f"sessions/*/*/*/rollout-*-{in_pattern(conversation)}.jsonl"))), None)


def remember_start(private: Path, home: Path, conversation: str | None, now: float) -> None:
    """Note when a session's first launch was, and how much of a conversation begun elsewhere was there before it."""
    file = private / _START
    if file.exists():
        return
    path = find(home, conversation) if conversation else None
    said = {path.name: size_of(path)} if path else {}
    part = file.with_suffix(".new")
    part.write_text(json.dumps({"since": now, "said": said}), encoding="utf-8")
    part.replace(file)


@dataclass(frozen=True, slots=True)
class Head:
    """Who wrote a rollout, where."""

    id: str
    root: str
    cwd: str
    typed: bool
    """A conversation in a terminal; otherwise an agent's agent, or a thread that nobody sees."""


class Rollouts:
    """The rollouts of one session: its conversations, and those of the agents that they started."""

    def __init__(self, home: Path, run: AgentRun) -> None:
        self._sessions = home / "sessions"
        self._run = run
        self._workspace = os.path.realpath(run.workspace)
        self._since, self._said = _start(run.private)
        self._seen: dict[Path, int] = {}
        self._known: set[str] = set()
        self._threads: dict[str, Thread] = {}
        if run.conversation and (path := find(home, run.conversation)):
            self._take(path)

    async def read(self) -> AsyncIterator[tuple[Thread, Line]]:
        """The lines that came since, of all of them."""
        await self._look()
        for thread in list(self._threads.values()):
            async for line in thread.journal.lines():
                yield thread, line

    def pending(self) -> list[Call]:
        """Tools that were called and have not answered, the last one first."""
        return [call for thread in self._threads.values() for call in reversed(thread.pending.values())]

    async def _look(self) -> None:
        """Find files that are new in the folder of the day; of many, others have their turn in between."""
        for folder in self._folders():
            self._run.changes.watch(folder)
            try:
                changed = folder.stat().st_mtime_ns
                if self._seen.get(folder) == changed:
                    continue
                names = [entry.name for entry in folder.iterdir()]
            except OSError:
                continue
            waits = False
            for number, name in enumerate(sorted(set(names) - self._known), 1):
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                if not self._take(folder / name):
                    waits = True
            if not waits:
                self._seen[folder] = changed

    def _folders(self) -> list[Path]:
        """The folders in which new files may appear, and those whose next one may be made; they are named by local days."""
        year = _newest(self._sessions)
        month = _newest(year) if year else None
        day = _newest(month) if month else None
        return [folder for folder in (day, month, year, self._sessions) if folder]

    def _take(self, path: Path) -> bool:
        """Follow a file if it is ours; False: it does not say yet."""
        name = _NAME.fullmatch(path.name)
        if name is None or (_made(name["id"]) < self._since - 1 and name["id"] != self._run.conversation):
            self._known.add(path.name)
            return True
        head = _head(path)
        if head is None:
            return False
        self._known.add(path.name)
        own = head.typed and _is(head.cwd, self._workspace)
        main = own or head.id == self._run.conversation
        if len(self._threads) < MOST_BESIDE and (main or (head.root != head.id and head.root in self._threads)):
            run = replace(self._run, cursors={**self._said, **self._run.cursors})
            self._threads[head.id] = Thread(head.id, Journal(path, run), main, run.cursors.get(path.name, 0))
        return True


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that it called."""

    id: str
    tool: str
    typed: str
    """A command as its dialog shows it."""
    command: str
    """The command with what the dialog keeps to itself: another folder, another shell. The files that an edit is about."""


class Thread:
    """One rollout that is followed."""

    def __init__(self, conversation: str, journal: Journal, main: bool, offset: int) -> None:
        self.id = conversation
        self.journal = journal
        self.main = main
        self.pending: dict[str, Call] = {}
        self._model, self._cwd = "", ""
        for data in _before(journal.path, offset):
            for _ in self._reports(data, None):
                pass

    def heard(self, line: Line, after: datetime | None) -> Heard:
        """What a line says. What became so cannot have been before `after`, when something else was seen to be so."""
        when = moment(line.data.get("timestamp"))
        if when is not None and after is not None:
            when = max(when, after)
        return self.journal.heard(line, *self._reports(line.data, when))

    @forgiving
    def _reports(self, data: Mapping[str, Any], when: datetime | None) -> Iterator[r.Report]:
        payload = data.get("payload")
        if not isinstance(payload, dict):
            return
        kind = data.get("type")
        if kind == "turn_context":
            self._model = str(payload.get("model") or self._model)
            self._cwd = str(payload.get("cwd") or self._cwd)
        elif kind == "token_usage_record":
            yield usage(payload.get("usage"), self._model, when)
        elif kind == "response_item":
            told = list(self._item(payload, when))
            yield from told if self.main else ()
        elif kind == "event_msg" and self.main:
            yield from _event(payload, when)

    def _item(self, item: Mapping[str, Any], when: datetime | None) -> Iterator[r.Report]:
        call = str(item.get("call_id") or "")
        match item.get("type"):
            case "function_call":
                arguments = _object(item.get("arguments"))
                typed = str(arguments.get("cmd") or "")
                self.pending[call] = Call(call, str(item.get("name")), typed, _whole(typed, arguments, self._cwd))
                if calls := forge_calls(typed):
                    yield r.UsageReport(self._model, time=when, forge=calls)
                if item.get("name") == "update_plan" and (told := _progress(arguments.get("plan"), when)):
                    yield told
            case "custom_tool_call":
                files = _PATCHED.findall(str(item.get("input") or ""))
                self.pending[call] = Call(call, str(item.get("name")), "", ", ".join(files))
            case "function_call_output" | "custom_tool_call_output":
                self.pending.pop(call, None)


def _is(folder: str, workspace: str) -> bool:
    try:
        return os.path.realpath(folder) == workspace
    except ValueError:  # no folder has such a name
        return False


def _whole(typed: str, arguments: Mapping[str, Any], cwd: str) -> str:
    """A command with the folder it is run in, where that is not the workspace, and with the shell that is to read it."""
    shell, folder = str(arguments.get("shell") or ""), str(arguments.get("workdir") or "")
    command = f"{shell} -c {shlex.quote(typed)}" if shell and typed else typed
    if not folder or not typed:
        return command
    there, here = os.path.realpath(Path(cwd) / folder), os.path.realpath(cwd)
    inside = bool(cwd) and (there == here or there.startswith(here + os.sep))
    return command if inside else f"cd {shlex.quote(folder)} && {command}"


def _event(event: Mapping[str, Any], when: datetime | None) -> Iterator[r.Report]:
    match event.get("type"):
        case "task_started":
            yield r.ActivityReport(Activity.ACTIVE, time=when)
        case "item_completed" if (item := event.get("item") or {}).get("type") == "UserMessage":
            parts = [part.get("text") or "" for part in item.get("content") or () if isinstance(part, dict)]
            yield r.TookReport("\n".join(part for part in parts if part).removeprefix(GUARD), when)
        case "user_message":
            yield r.TookReport(str(event.get("message") or "").removeprefix(GUARD), when)
        case "task_complete" if isinstance(event.get("error"), dict):
            yield failure(event["error"], when)
        case "task_complete":
            yield r.TurnReport(str(event.get("last_agent_message") or ""), when)
        case "turn_aborted" if event.get("reason") != "replaced":
            yield r.ActivityReport(Activity.INTERRUPTED, "its turn was interrupted", when)


def failure(error: Mapping[str, Any], when: datetime | None) -> r.Report:
    """How a turn ended that failed: nothing goes on by itself."""
    message = str(error.get("message") or "it does not say why")
    if error.get("codex_error_info") == "usage_limit_exceeded" or "hit your usage limit" in message:
        return r.LimitReport(resets_at(message, when or datetime.now(UTC)), when)
    return r.ActivityReport(Activity.INTERRUPTED, f"API error: {message}", when)


def resets_at(message: str, now: datetime) -> datetime | None:
    """When a usage limit ends, by the local time that its message names."""
    local = now.astimezone()
    try:
        if later := _LATER.search(message):
            day = datetime.strptime(" ".join(later.groups()), "%b %d %Y %I:%M %p")
            return day.astimezone()
        if today := _TODAY.search(message):
            time = datetime.strptime(today[1], "%I:%M %p")
            at = local.replace(hour=time.hour, minute=time.minute, second=0, microsecond=0)
            return at if at >= local.replace(second=0, microsecond=0) else at + timedelta(days=1)
    except ValueError:
        pass
    return None


def usage(counted: object, model: str, when: datetime | None) -> r.UsageReport:
    """Tokens, each counted once: what was read from the cache, or written to it, is part of its input."""
    data = counted if isinstance(counted, dict) else {}
    whole, read, written, output = (
        int(data.get(key) or 0)
        for key in ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
    )
    return r.UsageReport(model, max(0, whole - read - written), output, read, written, time=when)


def _progress(plan: object, when: datetime | None) -> r.ProgressReport | None:
    steps = [step for step in plan if isinstance(step, dict)] if isinstance(plan, list) else []
    if not steps:
        return None
    done = sum(step.get("status") == "completed" for step in steps)
    now = next((str(step.get("step")) for step in steps if step.get("status") == "in_progress"), "")
    return r.ProgressReport(done, len(steps), now, time=when)


def model_of(home: Path, conversation: str) -> str:
    """The model of a conversation's last turn."""
    path = find(home, conversation) if conversation else None
    said = [data.get("payload") for data in _before(path) if data.get("type") == "turn_context"] if path else []
    turns = [turn for turn in said if isinstance(turn, dict)]
    return str(turns[-1].get("model") or "") if turns else ""


def counted(home: Path, conversation: str) -> dict[str, int]:
    """The tokens that a conversation has used so far."""
    path = find(home, conversation)
    total: dict[str, int] = {}
    for line in _lines(path) if path else ():
        if b'"type":"token_usage_record"' in line[:200]:
            payload = _object(line).get("payload")
            whole = payload.get("thread_token_usage") if isinstance(payload, dict) else None
            total = whole if isinstance(whole, dict) else total
    return total


def _lines(path: Path, end: int | None = None) -> Iterator[bytes]:
    try:
        yield from past_lines(path, 0, end)
    except OSError:
        return


def _before(path: Path, end: int | None = None) -> Iterator[dict[str, Any]]:
    """The lines before a place that say what still holds after it: the model, and which tools were called."""
    for line in _lines(path, end):
        if b'"turn_context"' in line[:200] or b'"response_item"' in line[:200]:
            yield _object(line)


def _object(text: object) -> dict[str, Any]:
    try:
        data = json.loads(text) if isinstance(text, str | bytes) else text
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _head(path: Path) -> Head | None:
    try:
        with plain(path) as file:
            line = file.readline(LONGEST_HEAD)
    except OSError:
        return None
    if not line.endswith(b"\n"):
        return None
    meta = _object(line).get("payload")
    if not isinstance(meta, dict):
        return Head("", "", "", typed=False)
    own = str(meta.get("id") or "")
    return Head(own, str(meta.get("session_id") or own), str(meta.get("cwd") or ""), meta.get("source") == "cli")


def _start(private: Path) -> tuple[float, dict[str, int]]:
    try:
        data = _object((private / _START).read_text(encoding="utf-8"))
    except OSError:
        data = {}
    said = data.get("said")
    return float(data.get("since") or 0.0), dict(said) if isinstance(said, dict) else {}


def _made(conversation: str) -> float:
    """When a conversation was begun: its id says so."""
    try:
        return (uuid.UUID(conversation).int >> 80) / 1000
    except ValueError:
        return 0.0


def _newest(folder: Path) -> Path | None:
    try:
        numbered = [entry for entry in folder.iterdir() if entry.name.isdigit()]
    except OSError:
        return None
    return max(numbered, default=None)
