"""Reads Codex's rollouts: one file of JSON lines per conversation, in `$CODEX_HOME/sessions/<year>/<month>/<day>/`.

Look here when turns, usage, plans or pending tool calls of a Codex session are missing or wrong.
"""

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

from agent_orchestrator.base.files.safe import open_regular_file
from agent_orchestrator.base.malformed_records import skip_malformed
from agent_orchestrator.plugins.agents.shared.forge_commands import forge_calls
from agent_orchestrator.plugins.agents.shared.journals import (
    MAX_JOURNALS,
    Journal,
    JournalLine,
    escape_for_glob,
    parse_time,
    past_lines,
    size_of,
)
from agent_orchestrator.protocols import Activity, ReportBatch, RunningLaunch
from agent_orchestrator.protocols import reports as r

MAX_HEAD_BYTES = 1 << 20
_FILES_PER_STEP = 50
"""The number of files that are opened before other tasks of the event loop run."""
MESSAGE_PREFIX = "Message: "
"""A prefix for a message that Codex would take for a command."""

_START_FILE = "codex.json"
_FILE_NAME = re.compile(r"rollout-[\d-]+T[\d-]+-(?P<id>[0-9a-f-]{36})\.jsonl")
_PATCHED_FILE = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
_RESET_TODAY = re.compile(r"try again at (\d{1,2}:\d{2} [AP]M)")
_RESET_LATER = re.compile(r"try again at (\w{3}) (\d{1,2})\w{2}, (\d{4}) (\d{1,2}:\d{2} [AP]M)")


def find_rollout(home: Path, conversation: str) -> Path | None:
    """Return the rollout file of a conversation, or None."""
    return next(iter(sorted(home.glob(f"sessions/*/*/*/rollout-*-{escape_for_glob(conversation)}.jsonl"))), None)


def remember_start(private: Path, home: Path, conversation: str | None, now: float) -> None:
    """Record the time of a session's first launch, and the size of a rollout that was begun elsewhere; no effect at later launches."""
    file = private / _START_FILE
    if file.exists():
        return
    path = find_rollout(home, conversation) if conversation else None
    sizes = {path.name: size_of(path)} if path else {}
    new_file = file.with_suffix(".new")
    new_file.write_text(json.dumps({"since": now, "said": sizes}), encoding="utf-8")
    new_file.replace(file)


@dataclass(frozen=True, slots=True)
class RolloutHead:
    """The first line of a rollout: its conversation, its root conversation, its folder, and where it came from."""

    id: str
    root: str
    cwd: str
    is_interactive: bool
    """Whether it is a conversation in a terminal; otherwise it is of a subagent, or a thread without a user."""


class Rollouts:
    """The rollouts of one session: its own conversations and those of its subagents."""

    def __init__(self, home: Path, run: RunningLaunch) -> None:
        self._sessions = home / "sessions"
        self._run = run
        self._workspace = os.path.realpath(run.workspace)
        self._since, self._earlier_sizes = _read_start(run.private)
        self._folder_times: dict[Path, int] = {}
        self._known_names: set[str] = set()
        self._rollouts: dict[str, Rollout] = {}
        if run.conversation and (path := find_rollout(home, run.conversation)):
            self._follow(path)

    async def read(self) -> AsyncIterator[tuple[Rollout, JournalLine]]:
        """Yield the new lines of all rollouts."""
        await self._find_new_files()
        for thread in list(self._rollouts.values()):
            async for line in thread.journal.lines():
                yield thread, line

    def pending_calls(self) -> list[CodexToolCall]:
        """Return the tools that were called and have no result yet, the last one first."""
        return [call for thread in self._rollouts.values() for call in reversed(thread.pending_calls.values())]

    async def _find_new_files(self) -> None:
        """Find new files in the newest folders, and let other tasks run in between."""
        for folder in self._folders():
            self._run.changes.watch(folder)
            try:
                modified = folder.stat().st_mtime_ns
                if self._folder_times.get(folder) == modified:
                    continue
                names = [entry.name for entry in folder.iterdir()]
            except OSError:
                continue
            is_incomplete = False
            for number, name in enumerate(sorted(set(names) - self._known_names), 1):
                if number % _FILES_PER_STEP == 0:
                    await asyncio.sleep(0)
                if not self._follow(folder / name):
                    is_incomplete = True
            if not is_incomplete:
                self._folder_times[folder] = modified

    def _folders(self) -> list[Path]:
        """Return the newest day, month and year folder and their parent, where new files or folders can appear; they are named
        by local date.
        """
        year = _newest_subfolder(self._sessions)
        month = _newest_subfolder(year) if year else None
        day = _newest_subfolder(month) if month else None
        return [folder for folder in (day, month, year, self._sessions) if folder]

    def _follow(self, path: Path) -> bool:
        """Follow a file if it belongs to this session; return False if its first line is not complete yet."""
        name = _FILE_NAME.fullmatch(path.name)
        if name is None or (_creation_time(name["id"]) < self._since - 1 and name["id"] != self._run.conversation):
            self._known_names.add(path.name)
            return True
        head = _read_head(path)
        if head is None:
            return False
        self._known_names.add(path.name)
        is_own = head.is_interactive and _is_same_folder(head.cwd, self._workspace)
        is_main = is_own or head.id == self._run.conversation
        if len(self._rollouts) < MAX_JOURNALS and (is_main or (head.root != head.id and head.root in self._rollouts)):
            run = replace(self._run, cursors={**self._earlier_sizes, **self._run.cursors})
            self._rollouts[head.id] = Rollout(head.id, Journal(path, run), is_main, run.cursors.get(path.name, 0))
        return True


@dataclass(frozen=True, slots=True)
class CodexToolCall:
    """A tool call of the agent."""

    id: str
    tool: str
    typed_command: str
    """The command as its dialog shows it."""
    command: str
    """The command with what the dialog leaves out: another folder, another shell. For an edit, the files that it changes."""


class Rollout:
    """One rollout that is followed."""

    def __init__(self, conversation: str, journal: Journal, main: bool, offset: int) -> None:
        self.id = conversation
        self.journal = journal
        self.is_main = main
        self.pending_calls: dict[str, CodexToolCall] = {}
        self._model, self._cwd = "", ""
        for data in _context_records(journal.path, offset):
            for _ in self._reports(data, None):
                pass

    def read_line(self, line: JournalLine, after: datetime | None) -> ReportBatch:
        """Return the reports of a line; their time is at least `after`, when another state was observed."""
        time = parse_time(line.data.get("timestamp"))
        if time is not None and after is not None:
            time = max(time, after)
        return self.journal.make_batch(line, *self._reports(line.data, time))

    @skip_malformed
    def _reports(self, data: Mapping[str, Any], time: datetime | None) -> Iterator[r.Report]:
        """Yield the reports of one record."""
        payload = data.get("payload")
        if not isinstance(payload, dict):
            return
        kind = data.get("type")
        if kind == "turn_context":
            self._model = str(payload.get("model") or self._model)
            self._cwd = str(payload.get("cwd") or self._cwd)
        elif kind == "token_usage_record":
            yield parse_usage(payload.get("usage"), self._model, time)
        elif kind == "response_item":
            reports = list(self._read_item(payload, time))
            yield from reports if self.is_main else ()
        elif kind == "event_msg" and self.is_main:
            yield from _event_reports(payload, time)

    def _read_item(self, item: Mapping[str, Any], time: datetime | None) -> Iterator[r.Report]:
        """Note tool calls and their results; yield forge calls and the progress of the plan."""
        call = str(item.get("call_id") or "")
        match item.get("type"):
            case "function_call":
                arguments = _parse_object(item.get("arguments"))
                typed = str(arguments.get("cmd") or "")
                self.pending_calls[call] = CodexToolCall(
                    call, str(item.get("name")), typed, _complete_command(typed, arguments, self._cwd)
                )
                if calls := forge_calls(typed):
                    yield r.UsageReport(self._model, time=time, forge=calls)
                if item.get("name") == "update_plan" and (progress := _progress(arguments.get("plan"), time)):
                    yield progress
            case "custom_tool_call":
                files = _PATCHED_FILE.findall(str(item.get("input") or ""))
                self.pending_calls[call] = CodexToolCall(call, str(item.get("name")), "", ", ".join(files))
            case "function_call_output" | "custom_tool_call_output":
                self.pending_calls.pop(call, None)


def _is_same_folder(folder: str, workspace: str) -> bool:
    """Return whether a folder is the workspace, after symlinks."""
    try:
        return os.path.realpath(folder) == workspace
    except ValueError:  # no path can contain a null byte
        return False


def _complete_command(typed: str, arguments: Mapping[str, Any], cwd: str) -> str:
    """Return a command with `cd` if it runs outside of the workspace, and with its shell if one is named."""
    shell, folder = str(arguments.get("shell") or ""), str(arguments.get("workdir") or "")
    command = f"{shell} -c {shlex.quote(typed)}" if shell and typed else typed
    if not folder or not typed:
        return command
    target, current = os.path.realpath(Path(cwd) / folder), os.path.realpath(cwd)
    is_inside = bool(cwd) and (target == current or target.startswith(current + os.sep))
    return command if is_inside else f"cd {shlex.quote(folder)} && {command}"


def _event_reports(event: Mapping[str, Any], time: datetime | None) -> Iterator[r.Report]:
    """Yield the report of one event message."""
    match event.get("type"):
        case "task_started":
            yield r.ActivityReport(Activity.ACTIVE, time=time)
        case "item_completed" if (item := event.get("item") or {}).get("type") == "UserMessage":
            parts = [part.get("text") or "" for part in item.get("content") or () if isinstance(part, dict)]
            yield r.MessageTakenReport("\n".join(part for part in parts if part).removeprefix(MESSAGE_PREFIX), time)
        case "user_message":
            yield r.MessageTakenReport(str(event.get("message") or "").removeprefix(MESSAGE_PREFIX), time)
        case "task_complete" if isinstance(event.get("error"), dict):
            yield failure(event["error"], time)
        case "task_complete":
            yield r.TurnReport(str(event.get("last_agent_message") or ""), time)
        case "turn_aborted" if event.get("reason") != "replaced":
            yield r.ActivityReport(Activity.INTERRUPTED, "its turn was interrupted", time)


def failure(error: Mapping[str, Any], when: datetime | None) -> r.Report:
    """Return the report for a failed turn: a usage limit with its end, or an interruption."""
    message = str(error.get("message") or "it does not say why")
    if error.get("codex_error_info") == "usage_limit_exceeded" or "hit your usage limit" in message:
        return r.LimitReport(resets_at(message, when or datetime.now(UTC)), when)
    return r.ActivityReport(Activity.INTERRUPTED, f"API error: {message}", when)


def resets_at(message: str, now: datetime) -> datetime | None:
    """Return when a usage limit ends, by the local time in its message, or None."""
    local = now.astimezone()
    try:
        if later := _RESET_LATER.search(message):
            day = datetime.strptime(" ".join(later.groups()), "%b %d %Y %I:%M %p")
            return day.astimezone()
        if today := _RESET_TODAY.search(message):
            time = datetime.strptime(today[1], "%I:%M %p")
            at = local.replace(hour=time.hour, minute=time.minute, second=0, microsecond=0)
            return at if at >= local.replace(second=0, microsecond=0) else at + timedelta(days=1)
    except ValueError:
        pass
    return None


def parse_usage(counted: object, model: str, when: datetime | None) -> r.UsageReport:
    """Return the usage with each token counted once: Codex's input count includes tokens read from and written to the cache."""
    data = counted if isinstance(counted, dict) else {}
    input_tokens, cache_read, cache_write, output = (
        int(data.get(key) or 0)
        for key in ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
    )
    return r.UsageReport(
        model, max(0, input_tokens - cache_read - cache_write), output, cache_read, cache_write, time=when
    )


def _progress(plan: object, time: datetime | None) -> r.ProgressReport | None:
    """Return the progress of a plan, or None if it has no steps."""
    steps = [step for step in plan if isinstance(step, dict)] if isinstance(plan, list) else []
    if not steps:
        return None
    done = sum(step.get("status") == "completed" for step in steps)
    current = next((str(step.get("step")) for step in steps if step.get("status") == "in_progress"), "")
    return r.ProgressReport(done, len(steps), current, time=time)


def model_of(home: Path, conversation: str) -> str:
    """Return the model of a conversation's last turn, or ""."""
    path = find_rollout(home, conversation) if conversation else None
    contexts = (
        [data.get("payload") for data in _context_records(path) if data.get("type") == "turn_context"] if path else []
    )
    turns = [turn for turn in contexts if isinstance(turn, dict)]
    return str(turns[-1].get("model") or "") if turns else ""


def tokens_used(home: Path, conversation: str) -> dict[str, int]:
    """Return the tokens that a conversation has used so far, by kind."""
    path = find_rollout(home, conversation)
    total: dict[str, int] = {}
    for line in _lines(path) if path else ():
        if b'"type":"token_usage_record"' in line[:200]:
            payload = _parse_object(line).get("payload")
            usage_total = payload.get("thread_token_usage") if isinstance(payload, dict) else None
            total = usage_total if isinstance(usage_total, dict) else total
    return total


def _lines(path: Path, end: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a rollout up to `end`; none if it cannot be read."""
    try:
        yield from past_lines(path, 0, end)
    except OSError:
        return


def _context_records(path: Path, end: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the records before an offset that still matter after it: the model, and which tools were called."""
    for line in _lines(path, end):
        if b'"turn_context"' in line[:200] or b'"response_item"' in line[:200]:
            yield _parse_object(line)


def _parse_object(text: object) -> dict[str, Any]:
    """Return a JSON object, or an empty one if the text is not one."""
    try:
        data = json.loads(text) if isinstance(text, str | bytes) else text
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _read_head(path: Path) -> RolloutHead | None:
    """Read the first line of a rollout; None if it cannot be read or is not complete."""
    try:
        with open_regular_file(path) as file:
            line = file.readline(MAX_HEAD_BYTES)
    except OSError:
        return None
    if not line.endswith(b"\n"):
        return None
    meta = _parse_object(line).get("payload")
    if not isinstance(meta, dict):
        return RolloutHead("", "", "", is_interactive=False)
    conversation = str(meta.get("id") or "")
    return RolloutHead(
        conversation,
        str(meta.get("session_id") or conversation),
        str(meta.get("cwd") or ""),
        meta.get("source") == "cli",
    )


def _read_start(private: Path) -> tuple[float, dict[str, int]]:
    """Read what `remember_start` wrote: the time of the first launch, and the sizes by file name."""
    try:
        data = _parse_object((private / _START_FILE).read_text(encoding="utf-8"))
    except OSError:
        data = {}
    sizes = data.get("said")
    return float(data.get("since") or 0.0), dict(sizes) if isinstance(sizes, dict) else {}


def _creation_time(conversation: str) -> float:
    """Return when a conversation was begun, in seconds since the epoch; its id (UUID version 7) contains it."""
    try:
        return (uuid.UUID(conversation).int >> 80) / 1000
    except ValueError:
        return 0.0


def _newest_subfolder(folder: Path) -> Path | None:
    """Return the subfolder with the greatest numeric name, or None."""
    try:
        numbered = [entry for entry in folder.iterdir() if entry.name.isdigit()]
    except OSError:
        return None
    return max(numbered, default=None)
