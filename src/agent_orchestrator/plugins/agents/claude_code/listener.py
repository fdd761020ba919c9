"""Reports on one launch of Claude Code: state from its status record, messages and usage from its transcript, requests from its
hooks.

The record (`sessions/<pid>.json` in its configuration folder) is right about busy, idle and waiting also after Esc, but holds
nothing more; the transcript says how a turn ended, some tenths of a second later. A version without the record is read by its
transcript alone. Look here when the state of a Claude Code session is wrong or late.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePath
from typing import Any

from agent_orchestrator.base.files.safe import open_regular_file, read_regular_file
from agent_orchestrator.base.malformed_records import skip_malformed
from agent_orchestrator.plugins.agents.claude_code import dialogs
from agent_orchestrator.plugins.agents.claude_code.transcript import TranscriptState, TurnEnding, unanswered_message
from agent_orchestrator.plugins.agents.shared.journals import (
    Journal,
    JournalLine,
    escape_for_glob,
    journals_in,
    parse_time,
)
from agent_orchestrator.protocols import Activity, ReportBatch, RunningLaunch
from agent_orchestrator.protocols import reports as r

HOOK_EVENTS = ("SessionStart", "PermissionRequest")
"""The hooks of Claude Code that are used: where its transcript is, and what it asks permission for."""

RECORDS_FOLDER = "claude-records"
"""The name of a session's own folder of status records."""
SETTLE_SECONDS = 0.6
"""Seconds to wait for the transcript's end of turn, or for a hook's request, before the record alone counts."""
SILENT_START_SECONDS = 5.0
"""Seconds without any report after which the screen of a starting agent is read: a login or a notice may block it."""
RETRY_RECHECK_SECONDS = 1.0
MAX_LOG_READ_BYTES = 256 * 1024
FIRST_TURN_SECONDS = 15.0
"""Seconds after the launch in which a prompt on the command line may not have become a turn yet."""
MAX_REQUEST_LAG_SECONDS = 5.0
"""Seconds that a request may be older than its dialog."""

SEVERAL_QUESTIONS_REASON = "several questions at once: answer them in its terminal, or deny with the answers as text"

_CONVERSATION_ID = re.compile(r"[\w-]{1,200}", re.ASCII)
"""A conversation's id, which becomes part of a file name."""
_ONE_MILLISECOND = timedelta(milliseconds=1)
_WORKING_STATES = (Activity.ACTIVE, Activity.RETRYING, Activity.BLOCKED, Activity.WAITING_INPUT)


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """The status that Claude Code records of itself."""

    status: str
    waits_for: str
    session: str
    started: datetime
    changed_at: datetime
    """The time at which the status became so."""


@dataclass(frozen=True, slots=True)
class DialogRequest:
    """A request of a dialog, from a hook or the transcript."""

    tool: str
    arguments: Mapping[str, Any]
    id: str
    received_at: float


class ClaudeListener:
    """A reader of one launch, which yields its reports."""

    def __init__(self, run: RunningLaunch, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.run = run
        self._clock = clock
        self.folder = folder
        self._record_file = record_file(run, folder)
        self._hooks = Journal(run.private / run.plugin_data.get("hooks", "claude-hooks.jsonl"), run, "hooks")
        self._launched_at = parse_time(run.plugin_data.get("launched"))
        self._journals: dict[Path, Journal] = {}
        self._transcript_state = TranscriptState()
        self._subagents: dict[Path, tuple[Journal, TranscriptState]] = {}
        self._conversation = run.conversation or ""
        self._transcript: Path | None = None
        self._request: DialogRequest | None = None
        self._last_report: tuple[Activity, str] | None = None
        self._record: StatusRecord | None = None
        self._record_changed_at = self._clock()
        self._is_first_read = True
        self._is_settling = False
        self._retried_error = ""
        self._log_offset = _size(run.log)
        run.changes.watch(self._record_file)
        run.changes.watch(run.log)

    async def listen(self) -> AsyncGenerator[ReportBatch, None]:
        """Yield reports until the process has ended."""
        while True:
            for heard in await self._read_all():
                yield heard
            self._is_first_read = False
            if not await self.run.changes.next(self._wait_time()):
                for heard in [*[report async for report in self._read_files()], *self._report_end()]:
                    yield heard
                return

    async def _read_all(self) -> list[ReportBatch]:
        """Return the reports of everything new, the state last."""
        heard = [report async for report in self._read_files()]
        await self._find_retries()
        return heard + await self._state_reports()

    def _wait_time(self) -> float | None:
        """Return the seconds to wait for a change, or None to wait without limit since nothing is due."""
        if self._is_settling:
            return 0.1
        if self._retried_error:
            return RETRY_RECHECK_SECONDS
        if self._record is None and self._last_report is None:
            return SILENT_START_SECONDS / 5
        return None

    # -- files ---------------------------------------------------------------------------------------------------------

    async def _read_files(self) -> AsyncIterator[ReportBatch]:
        """Yield the reports of new hook lines, a changed record and new transcript lines."""
        async for line in self._hooks.lines():
            for heard in self._read_hook_line(line):
                yield heard
        earlier, record = self._record, self._current_record()
        if record and record != earlier:
            self._record = record
            if earlier is None or record.status != earlier.status:
                self._record_changed_at = self._clock()
            if earlier is None or record.session != earlier.session:
                for heard in self._switch_conversation(record.session):
                    yield heard
        async for heard in self._read_transcript():
            yield heard

    def _current_record(self) -> StatusRecord | None:
        """Return the record of the process, or None. Where `claude` is a wrapper script with another pid, it is found by the
        conversation.
        """
        if record := read_record(self._record_file, "" if self.run.container_pid else self.run.started):
            return record
        if self._last_report or not self._launched_at or not self._conversation:
            return None
        for path in self._record_file.parent.glob("*.json"):
            record = read_record(path) if path != self._record_file else None
            if record and record.session == self._conversation and record.started > self._launched_at:
                self._record_file = path
                self.run.changes.watch(path)
                return record
        return None

    @skip_malformed
    def _read_hook_line(self, line: JournalLine) -> Iterator[ReportBatch]:
        """Yield the conversation that a hook reports, or remember its permission request."""
        data = line.data
        match data.get("hook_event_name"):
            case "SessionStart":
                session, path = data.get("session_id"), data.get("transcript_path")
                if isinstance(path, str) and path and _is_possible_path(path):
                    self._transcript = Path(path)
                if isinstance(session, str) and _CONVERSATION_ID.fullmatch(session):
                    self._conversation = session
                    yield self._hooks.make_batch(line, r.ConversationReport(session))
            case "PermissionRequest":
                arguments = data.get("tool_input")
                tool = str(data.get("tool_name") or "")
                self._request = DialogRequest(
                    tool,
                    arguments if isinstance(arguments, dict) else {},
                    f"{self._hooks.cursor_name}@{line.start}",
                    self._clock(),
                )

    def _switch_conversation(self, session: str) -> Iterator[ReportBatch]:
        """Switch to another conversation (after `/clear` or `/resume`); a hook or the folder will give its transcript."""
        if session and session != self._conversation:
            self._conversation, self._transcript = session, None
            yield ReportBatch((r.ConversationReport(session),), "record")

    async def _read_transcript(self) -> AsyncIterator[ReportBatch]:
        """Yield the reports of new lines in the transcript and in those of the subagents."""
        path = self._transcript
        if path is None or (self._conversation and path.stem != self._conversation):
            path = self._transcript = self._find_transcript()
        if path is None:
            return
        if path not in self._journals:
            self._journals[path] = Journal(path, self.run)
            self.run.changes.watch(path.with_suffix("") / "subagents")
            self._transcript_state = TranscriptState()
        journal = self._journals[path]
        async for line in journal.lines():
            if self._predates_session(journal, line):
                continue
            reports = self._transcript_state.read_line(line)
            for finished in self._transcript_state.ended_turns:
                yield self._end_report(journal, finished)
            self._transcript_state.ended_turns.clear()
            if reports:
                heard, ending = journal.make_batch(line, *reports), self._transcript_state.ending
                # The line is read again after a restart if the end of the turn was not reported by then.
                yield replace(heard, end=line.start) if ending and ending.line is line else heard
        async for heard in self._read_subagents(path.with_suffix("") / "subagents"):
            yield heard

    def _find_transcript(self) -> Path | None:
        """Return the path of the conversation's transcript, in another folder if it is there; None without a conversation."""
        if not self._conversation:
            return None
        expected = transcript_path(self.folder, self.run.workspace, self._conversation)
        if expected.exists():
            return expected
        matches = (self.folder / "projects").glob(f"*/{escape_for_glob(self._conversation)}.jsonl")
        return next(iter(matches), None) or expected

    async def _read_subagents(self, folder: Path) -> AsyncIterator[ReportBatch]:
        """Yield the usage of subagents from their transcripts."""
        followed = [path for path in self._subagents if path.parent == folder]
        for path in journals_in(folder, followed):
            if path not in self._subagents:
                self._subagents[path] = (Journal(path, self.run), TranscriptState())
            journal, story = self._subagents[path]
            async for line in journal.lines():
                if not self._predates_session(journal, line) and (reports := story.read_usage(line)):
                    yield journal.make_batch(line, *reports)

    def _predates_session(self, journal: Journal, line: JournalLine) -> bool:
        """Return whether a line is from before this launch and not of an earlier launch of the session, so from a person's own use."""
        timestamp = parse_time(line.data.get("timestamp"))
        return bool(
            self._launched_at
            and timestamp
            and timestamp < self._launched_at
            and journal.cursor_name not in self.run.cursors
        )

    # -- state ---------------------------------------------------------------------------------------------------------

    async def _state_reports(self) -> list[ReportBatch]:
        """Return the report of the current state, if it changed."""
        self._is_settling = False
        record = self._record
        if record is None or not record.status:
            return await self._state_by_transcript()
        if (
            record.status != "waiting"
            and self._request
            and self._last_report
            and self._last_report[1] == self._request.id
        ):
            self._request = None  # the request was answered
        if record.status == "busy":
            return self._report_working("record")
        if record.status == "waiting":
            return await self._report_waiting(record)
        return self._report_idle(record)

    def _report_working(self, source: str) -> list[ReportBatch]:
        """Report that the agent works, or retries."""
        if self._retried_error:
            return self._report_state(Activity.RETRYING, self._retried_error, "screen")
        return self._report_state(Activity.ACTIVE, source=source)

    async def _state_by_transcript(self) -> list[ReportBatch]:
        """Return the state by transcript, or by screen if nothing was reported at the start."""
        if self._transcript_state.ending:
            return self._report_end()
        if self._transcript_state.is_in_turn:
            return self._report_working("transcript")
        if self._last_report is None and self._clock() - self._record_changed_at > SILENT_START_SECONDS:
            dialog = dialogs.parse_dialog(await self.run.screen())
            if dialog:
                return self._report_state(Activity.BLOCKED, dialog.title, source="screen")
        return []

    def _report_idle(self, record: StatusRecord) -> list[ReportBatch]:
        """Report what an idle record means: the end of a turn, an interruption, or idle; nothing while that may still change."""
        if self._is_prompt_due():
            self._is_settling = True
            return []
        if self._transcript_state.ending:
            return self._report_end()
        if self._transcript_state.turn_began_at and self._transcript_state.turn_began_at > record.changed_at:
            return self._report_state(Activity.ACTIVE, source="transcript")  # the record will follow
        if self._transcript_state.is_in_turn or (self._last_report and self._last_report[0] in _WORKING_STATES):
            if not self._is_settled():
                self._is_settling = True
                return []
            if self._transcript_state.is_in_turn:  # Escape before the model answered leaves nothing in the transcript
                self._transcript_state.end_turn()
                return self._report_state(Activity.INTERRUPTED, "its turn was interrupted")
        if self._last_report and self._last_report[0] in (Activity.IDLE, Activity.INTERRUPTED, Activity.LIMITED):
            return []
        return self._report_state(Activity.IDLE)

    def _is_prompt_due(self) -> bool:
        """Return whether the first prompt may still be on its way: the record says idle for a moment before it is taken."""
        if (
            self._last_report
            or self._transcript_state.is_in_turn
            or self._transcript_state.ending
            or not self.run.plugin_data.get("prompt")
        ):
            return False
        return self._launched_at is not None and self._clock() < self._launched_at.timestamp() + FIRST_TURN_SECONDS

    def _report_end(self) -> list[ReportBatch]:
        """Report the end of the turn, if the transcript has it."""
        ending = self._transcript_state.end_turn()
        if ending is None:
            return []
        assert self._transcript is not None
        return [self._end_report(self._journals[self._transcript], ending)]

    def _end_report(self, journal: Journal, ending: TurnEnding) -> ReportBatch:
        """Report how a turn ended; with the time of the event if this is the first read after a restart."""
        self._last_report = (Activity.IDLE, "")
        self._retried_error = ""
        timestamp = None
        if self._is_first_read:
            timestamp = parse_time(ending.line.data.get("timestamp"))
            if timestamp and self._record and self._record.status == "idle":
                timestamp = max(timestamp, self._record.changed_at)
        return journal.make_batch(ending.line, replace(ending.report, time=timestamp))

    async def _report_waiting(self, record: StatusRecord) -> list[ReportBatch]:
        """Report the request or dialog that the agent waits on."""
        request = self._request
        if request is None or request.received_at < record.changed_at.timestamp() - MAX_REQUEST_LAG_SECONDS:
            request = self._waiting_call()
            if not self._is_settled():
                self._is_settling = True
                return []
        if request and request.tool == "AskUserQuestion":
            return self._report_question(request)
        if request and record.waits_for in ("", "permission prompt"):
            return self._report_permission(request, *dialogs.permission_subject(request.arguments, self.run.workspace))
        dialog = dialogs.parse_dialog(await self.run.screen())
        return self._report_state(Activity.BLOCKED, dialog.title if dialog else record.waits_for or "a dialog")

    def _waiting_call(self) -> DialogRequest | None:
        """Return the oldest tool call without a result, which is the one that waits, or None."""
        return next(
            (
                DialogRequest(tool, arguments, call, self._clock())
                for call, (tool, arguments) in self._transcript_state.open_calls.items()
            ),
            None,
        )

    def _report_question(self, request: DialogRequest) -> list[ReportBatch]:
        """Report a question; one that cannot be answered by typing is reported as a permission request."""
        question = dialogs.render_questions(request.arguments)
        if not dialogs.can_be_typed(request.arguments):
            return self._report_permission(request, question, SEVERAL_QUESTIONS_REASON)
        if self._last_report == (Activity.WAITING_INPUT, request.id):
            return []
        self._last_report = (Activity.WAITING_INPUT, request.id)
        return [ReportBatch((r.AskReport(question, self._state_time()),), "hooks")]

    def _report_permission(self, request: DialogRequest, command: str, reason: str) -> list[ReportBatch]:
        """Report a permission request, once."""
        if self._last_report == (Activity.BLOCKED, request.id):
            return []
        self._last_report = (Activity.BLOCKED, request.id)
        return [
            ReportBatch((r.PermissionReport(request.tool, command, reason, request.id, self._state_time()),), "hooks")
        ]

    def _report_state(self, state: Activity, detail: str = "", source: str = "record") -> list[ReportBatch]:
        """Report a state, if it changed."""
        if self._last_report == (state, detail):
            return []
        self._last_report = (state, detail)
        return [ReportBatch((r.ActivityReport(state, detail, self._state_time()),), source)]

    def _state_time(self) -> datetime | None:
        """Return the time of the state at the first read after a restart: it may be long known, and must replace nothing newer."""
        return self._record.changed_at - _ONE_MILLISECOND if self._is_first_read and self._record else None

    def _is_settled(self) -> bool:
        """Return whether the record has been the same for long enough."""
        return self._clock() - self._record_changed_at > SETTLE_SECONDS

    # -- the terminal --------------------------------------------------------------------------------------------------

    async def _find_retries(self) -> None:
        """Read the screen for an API error that is retried, when the terminal printed one and while it lasts; only the screen
        shows these.
        """
        size = _size(self.run.log)
        is_due = bool(self._retried_error) or self._is_first_read
        if size == self._log_offset and not is_due:
            return
        start, self._log_offset = max(self._log_offset, size - MAX_LOG_READ_BYTES), size
        is_busy = self._record.status == "busy" if self._record else self._transcript_state.is_in_turn
        if not is_busy:
            self._retried_error = ""
        elif is_due or _has_printed_retry(self.run.log, start, size):
            self._retried_error = dialogs.retried_error(await self.run.screen())


def put_back_message(run: RunningLaunch, folder: Path) -> str:
    """Return the message that Escape put back into the prompt before the model answered, as far as the files show, or ""."""
    record = read_record(record_file(run, folder), "" if run.container_pid else run.started)
    if record is None or record.status != "idle":
        return ""
    try:
        with open_regular_file(transcript_path(folder, run.workspace, record.session)) as file:
            file.seek(max(0, file.seek(0, 2) - MAX_LOG_READ_BYTES))
            tail = file.read().splitlines()
    except OSError:
        return ""
    lines = []
    for text in tail:
        with contextlib.suppress(ValueError):
            if isinstance(data := json.loads(text), dict):
                lines.append(JournalLine(data, 0, 0))
    return unanswered_message(lines)


def record_file(run: RunningLaunch, folder: Path) -> Path:
    """Return the path of the status record, named by the pid that the process sees; sandboxed processes may share a pid, so
    each has a folder.
    """
    own_folder = run.private / RECORDS_FOLDER
    return (
        own_folder if run.container_pid and own_folder.is_dir() else folder / "sessions"
    ) / f"{run.container_pid or run.pid}.json"


def read_record(path: Path, process: str = "") -> StatusRecord | None:
    """Return a status record, or None if it cannot be read or is of an earlier process with the same pid."""
    try:
        data = json.loads(read_regular_file(path))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    started = str(data.get("procStart") or "")
    if started.isdigit() and process.isdigit() and started != process:
        return None
    session = str(data.get("sessionId") or "")
    return StatusRecord(
        status=str(data.get("status") or ""),
        waits_for=str(data.get("waitingFor") or ""),
        session=session if _CONVERSATION_ID.fullmatch(session) else "",
        started=_from_milliseconds(data.get("startedAt")),
        changed_at=_from_milliseconds(data.get("statusUpdatedAt")),
    )


def _from_milliseconds(value: object) -> datetime:
    """Return a time given in milliseconds since the epoch, or the epoch if it is not one."""
    try:
        return datetime.fromtimestamp(value / 1000 if isinstance(value, int) else 0, UTC)
    except (ArithmeticError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _is_possible_path(path: str) -> bool:
    """Return whether a path exists, or could exist."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return True


def transcript_path(folder: Path, workspace: Path, conversation: str) -> Path:
    """Return the path of a conversation's transcript in this workspace."""
    return projects_folder(folder, workspace) / f"{PurePath(conversation).name}.jsonl"


def projects_folder(folder: Path, workspace: Path) -> Path:
    """Return the folder in which Claude Code keeps the conversations of a workspace."""
    return folder / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", str(workspace))


def _has_printed_retry(log: Path, start: int, end: int) -> bool:
    """Return whether the terminal printed a retry in this part of its log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, start - 16))
            return b"Retrying in" in file.read(end - start + 16)
    except OSError:
        return False


def _size(path: Path) -> int:
    """Return the size of a file in bytes, 0 if it cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
