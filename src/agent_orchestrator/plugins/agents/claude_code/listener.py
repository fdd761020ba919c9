"""Listening to Claude Code: its status record says what it does, its transcript what it took up, said and used, its hooks what it asks.

The record (`sessions/<pid>.json` in its configuration folder) is right about busy, idle and waiting also after Esc, but says nothing
more; the transcript says how a turn ended, some tenths of a second later. A version without the record is heard by the transcript alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePath
from typing import Any

from agent_orchestrator.base.files.safe import plain, read_plain
from agent_orchestrator.base.tolerant import forgiving
from agent_orchestrator.plugins.agents.claude_code import dialogs
from agent_orchestrator.plugins.agents.claude_code.transcript import Ending, Story, unanswered
from agent_orchestrator.plugins.agents.shared.journals import Journal, Line, in_pattern, journals_in, moment
from agent_orchestrator.protocols import Activity, AgentRun, Clock, Heard
from agent_orchestrator.protocols import reports as r

HOOKS = ("SessionStart", "PermissionRequest")
"""What Claude Code tells by hooks: where its transcript is, and what it asks a permission for."""

RECORDS = "claude-records"
"""A session's own folder of status records."""
SETTLES_WITHIN = 0.6
"""Seconds that the transcript gets to say how a turn ended, or a hook to say what is asked, before the record alone counts."""
STARTS_WITHIN = 5.0
"""Seconds after which a start without any word is looked at on the screen: a login or a notice may stand in the way."""
RETRY_PAUSE = 1.0
LOG_STEP = 256 * 1024
PROMPT_WITHIN = 15.0
"""Seconds after its launch in which a prompt on the command line may still be on its way into the first turn."""
LATE_BY = 5.0
"""Seconds that a request may be older than the dialog it belongs to."""

SEVERAL = "several questions at once: answer them in its terminal, or deny with the answers as text"

_ID = re.compile(r"[\w-]{1,200}", re.ASCII)
"""A conversation's: it is part of a file's name."""
_BEFORE = timedelta(milliseconds=1)
_AT_WORK = (Activity.ACTIVE, Activity.RETRYING, Activity.BLOCKED, Activity.WAITING_INPUT)


@dataclass(frozen=True, slots=True)
class Record:
    """What Claude Code says of itself."""

    status: str
    waits_for: str
    session: str
    started: datetime
    at: datetime
    """Since when its status is so."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a dialog asks, as a hook or the transcript told it."""

    tool: str
    given: Mapping[str, Any]
    id: str
    seen: float


class Listener:
    """One launch, heard."""

    def __init__(self, run: AgentRun, folder: Path, clock: Clock = time.time) -> None:
        self.run = run
        self._clock = clock
        self.folder = folder
        self._record_file = record_file(run, folder)
        self._hooks = Journal(run.private / run.memo.get("hooks", "claude-hooks.jsonl"), run, "hooks")
        self._launched = moment(run.memo.get("launched"))
        self._journals: dict[Path, Journal] = {}
        self._story = Story()
        self._subagents: dict[Path, tuple[Journal, Story]] = {}
        self._conversation = run.conversation or ""
        self._transcript: Path | None = None
        self._request: Request | None = None
        self._told: tuple[Activity, str] | None = None
        self._record: Record | None = None
        self._since = self._clock()
        self._fresh = True
        self._waited = False
        self._retrying = ""
        self._log_at = _size(run.log)
        run.changes.watch(self._record_file)
        run.changes.watch(run.log)

    async def listen(self) -> AsyncGenerator[Heard, None]:
        """Everything, until the process has ended."""
        while True:
            for heard in await self._hear():
                yield heard
            self._fresh = False
            if not await self.run.changes.next(self._patience()):
                for heard in [*[one async for one in self._read()], *self._ended()]:
                    yield heard
                return

    async def _hear(self) -> list[Heard]:
        heard = [one async for one in self._read()]
        await self._look_for_retries()
        return heard + await self._state()

    def _patience(self) -> float | None:
        """How long to wait for a change: for ever, unless something is known to be due."""
        if self._waited:
            return 0.1
        if self._retrying:
            return RETRY_PAUSE
        if self._record is None and self._told is None:
            return STARTS_WITHIN / 5
        return None

    # -- what was written ----------------------------------------------------------------------------------------------

    async def _read(self) -> AsyncIterator[Heard]:
        async for line in self._hooks.lines():
            for heard in self._hook(line):
                yield heard
        before, record = self._record, self._look_at_record()
        if record and record != before:
            self._record = record
            if before is None or record.status != before.status:
                self._since = self._clock()
            if before is None or record.session != before.session:
                for heard in self._converses(record.session):
                    yield heard
        async for heard in self._read_transcript():
            yield heard

    def _look_at_record(self) -> Record | None:
        """By its pid; where `claude` is a script around the program, by the conversation."""
        if record := read_record(self._record_file, "" if self.run.inside else self.run.started):
            return record
        if self._told or not self._launched or not self._conversation:
            return None
        for path in self._record_file.parent.glob("*.json"):
            record = read_record(path) if path != self._record_file else None
            if record and record.session == self._conversation and record.started > self._launched:
                self._record_file = path
                self.run.changes.watch(path)
                return record
        return None

    @forgiving
    def _hook(self, line: Line) -> Iterator[Heard]:
        data = line.data
        match data.get("hook_event_name"):
            case "SessionStart":
                session, path = data.get("session_id"), data.get("transcript_path")
                if isinstance(path, str) and path and _may_be(path):
                    self._transcript = Path(path)
                if isinstance(session, str) and _ID.fullmatch(session):
                    self._conversation = session
                    yield self._hooks.heard(line, r.ConversationReport(session))
            case "PermissionRequest":
                given = data.get("tool_input")
                tool = str(data.get("tool_name") or "")
                self._request = Request(
                    tool, given if isinstance(given, dict) else {}, f"{self._hooks.place}@{line.start}", self._clock()
                )

    def _converses(self, session: str) -> Iterator[Heard]:
        """It may go on with another conversation (`/clear`, `/resume`): its hook says where that is, or its folder."""
        if session and session != self._conversation:
            self._conversation, self._transcript = session, None
            yield Heard((r.ConversationReport(session),), "record")

    async def _read_transcript(self) -> AsyncIterator[Heard]:
        path = self._transcript
        if path is None or (self._conversation and path.stem != self._conversation):
            path = self._transcript = self._find_transcript()
        if path is None:
            return
        if path not in self._journals:
            self._journals[path] = Journal(path, self.run)
            self.run.changes.watch(path.with_suffix("") / "subagents")
            self._story = Story()
        journal = self._journals[path]
        async for line in journal.lines():
            if self._is_old(journal, line):
                continue
            reports = self._story.take(line)
            for ending in self._story.over:
                yield self._end(journal, ending)
            self._story.over.clear()
            if reports:
                heard, now = journal.heard(line, *reports), self._story.ending
                # The line is read again after a restart if what it says of the turn's end was not told by then.
                yield replace(heard, end=line.start) if now and now.line is line else heard
        async for heard in self._read_subagents(path.with_suffix("") / "subagents"):
            yield heard

    def _find_transcript(self) -> Path | None:
        if not self._conversation:
            return None
        known = transcript_of(self.folder, self.run.workspace, self._conversation)
        if known.exists():
            return known
        found = (self.folder / "projects").glob(f"*/{in_pattern(self._conversation)}.jsonl")
        return next(iter(found), None) or known

    async def _read_subagents(self, folder: Path) -> AsyncIterator[Heard]:
        known = [path for path in self._subagents if path.parent == folder]
        for path in journals_in(folder, known):
            if path not in self._subagents:
                self._subagents[path] = (Journal(path, self.run), Story())
            journal, story = self._subagents[path]
            async for line in journal.lines():
                if not self._is_old(journal, line) and (reports := story.usage_only(line)):
                    yield journal.heard(line, *reports)

    def _is_old(self, journal: Journal, line: Line) -> bool:
        """Written before this launch, and not by an earlier launch of this session: what a person did by hand."""
        when = moment(line.data.get("timestamp"))
        return bool(self._launched and when and when < self._launched and journal.place not in self.run.cursors)

    # -- what it does --------------------------------------------------------------------------------------------------

    async def _state(self) -> list[Heard]:
        self._waited = False
        record = self._record
        if record is None or not record.status:
            return await self._state_without_record()
        if record.status != "waiting" and self._request and self._told and self._told[1] == self._request.id:
            self._request = None  # it was answered
        if record.status == "busy":
            return self._at_work("record")
        if record.status == "waiting":
            return await self._waiting(record)
        return self._idle(record)

    def _at_work(self, source: str) -> list[Heard]:
        if self._retrying:
            return self._say(Activity.RETRYING, self._retrying, "screen")
        return self._say(Activity.ACTIVE, source=source)

    async def _state_without_record(self) -> list[Heard]:
        if self._story.ending:
            return self._ended()
        if self._story.in_turn:
            return self._at_work("transcript")
        if self._told is None and self._clock() - self._since > STARTS_WITHIN:
            dialog = dialogs.read(await self.run.screen())
            if dialog:
                return self._say(Activity.BLOCKED, dialog.title, source="screen")
        return []

    def _idle(self, record: Record) -> list[Heard]:
        if self._prompt_is_due():
            self._waited = True
            return []
        if self._story.ending:
            return self._ended()
        if self._story.began and self._story.began > record.at:
            return self._say(Activity.ACTIVE, source="transcript")  # the record follows
        if self._story.in_turn or (self._told and self._told[0] in _AT_WORK):
            if not self._settled():
                self._waited = True
                return []
            if self._story.in_turn:  # taken back before the model said anything: nothing is written of that
                self._story.settle()
                return self._say(Activity.INTERRUPTED, "its turn was interrupted")
        if self._told and self._told[0] in (Activity.IDLE, Activity.INTERRUPTED, Activity.LIMITED):
            return []
        return self._say(Activity.IDLE)

    def _prompt_is_due(self) -> bool:
        """It says idle for a moment before it takes up the prompt that it was started with."""
        if self._told or self._story.in_turn or self._story.ending or not self.run.memo.get("prompt"):
            return False
        return self._launched is not None and self._clock() < self._launched.timestamp() + PROMPT_WITHIN

    def _ended(self) -> list[Heard]:
        ending = self._story.settle()
        if ending is None:
            return []
        assert self._transcript is not None
        return [self._end(self._journals[self._transcript], ending)]

    def _end(self, journal: Journal, ending: Ending) -> Heard:
        """How a turn ended; when told late, with the time it happened."""
        self._told = (Activity.IDLE, "")
        self._retrying = ""
        when = None
        if self._fresh:
            when = moment(ending.line.data.get("timestamp"))
            if when and self._record and self._record.status == "idle":
                when = max(when, self._record.at)
        return journal.heard(ending.line, replace(ending.report, time=when))

    async def _waiting(self, record: Record) -> list[Heard]:
        request = self._request
        if request is None or request.seen < record.at.timestamp() - LATE_BY:
            request = self._called()
            if not self._settled():
                self._waited = True
                return []
        if request and request.tool == "AskUserQuestion":
            return self._ask(request)
        if request and record.waits_for in ("", "permission prompt"):
            return self._permission(request, *dialogs.asked(request.given, self.run.workspace))
        dialog = dialogs.read(await self.run.screen())
        return self._say(Activity.BLOCKED, dialog.title if dialog else record.waits_for or "a dialog")

    def _called(self) -> Request | None:
        """The oldest call without a result is the one that waits."""
        return next(
            (Request(tool, given, call, self._clock()) for call, (tool, given) in self._story.asked.items()), None
        )

    def _ask(self, request: Request) -> list[Heard]:
        question = dialogs.question(request.given)
        if not dialogs.can_be_typed(request.given):
            return self._permission(request, question, SEVERAL)
        if self._told == (Activity.WAITING_INPUT, request.id):
            return []
        self._told = (Activity.WAITING_INPUT, request.id)
        return [Heard((r.AskReport(question, self._when()),), "hooks")]

    def _permission(self, request: Request, command: str, reason: str) -> list[Heard]:
        if self._told == (Activity.BLOCKED, request.id):
            return []
        self._told = (Activity.BLOCKED, request.id)
        return [Heard((r.PermissionReport(request.tool, command, reason, request.id, self._when()),), "hooks")]

    def _say(self, state: Activity, detail: str = "", source: str = "record") -> list[Heard]:
        if self._told == (state, detail):
            return []
        self._told = (state, detail)
        return [Heard((r.ActivityReport(state, detail, self._when()),), source)]

    def _when(self) -> datetime | None:
        """At the first look after a restart the state may be long known: said with its own time, it replaces nothing newer."""
        return self._record.at - _BEFORE if self._fresh and self._record else None

    def _settled(self) -> bool:
        return self._clock() - self._since > SETTLES_WITHIN

    # -- the terminal --------------------------------------------------------------------------------------------------

    async def _look_for_retries(self) -> None:
        """API errors are told on the screen alone: it is read when the terminal printed something of the kind, and while it lasts."""
        size = _size(self.run.log)
        looks = bool(self._retrying) or self._fresh
        if size == self._log_at and not looks:
            return
        start, self._log_at = max(self._log_at, size - LOG_STEP), size
        busy = self._record.status == "busy" if self._record else self._story.in_turn
        if not busy:
            self._retrying = ""
        elif looks or _printed_retry(self.run.log, start, size):
            self._retrying = dialogs.retry(await self.run.screen())


def put_back(run: AgentRun, folder: Path) -> str:
    """The message that Escape took back before the model said anything, as far as its files tell."""
    record = read_record(record_file(run, folder), "" if run.inside else run.started)
    if record is None or record.status != "idle":
        return ""
    try:
        with plain(transcript_of(folder, run.workspace, record.session)) as file:
            file.seek(max(0, file.seek(0, 2) - LOG_STEP))
            tail = file.read().splitlines()
    except OSError:
        return ""
    found = []
    for text in tail:
        with contextlib.suppress(ValueError):
            if isinstance(data := json.loads(text), dict):
                found.append(Line(data, 0, 0))
    return unanswered(found)


def record_file(run: AgentRun, folder: Path) -> Path:
    """Its record, named by the pid that it sees itself; where several see the same, in a folder of the session's own."""
    own = run.private / RECORDS
    return (own if run.inside and own.is_dir() else folder / "sessions") / f"{run.inside or run.pid}.json"


def read_record(path: Path, process: str = "") -> Record | None:
    """A status record; none while there is none, or it is of an earlier process with the same pid."""
    try:
        data = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    started = str(data.get("procStart") or "")
    if started.isdigit() and process.isdigit() and started != process:
        return None
    session = str(data.get("sessionId") or "")
    return Record(
        status=str(data.get("status") or ""),
        waits_for=str(data.get("waitingFor") or ""),
        session=session if _ID.fullmatch(session) else "",
        started=_from_milliseconds(data.get("startedAt")),
        at=_from_milliseconds(data.get("statusUpdatedAt")),
    )


def _from_milliseconds(value: object) -> datetime:
    try:
        return datetime.fromtimestamp(value / 1000 if isinstance(value, int) else 0, UTC)
    except (ArithmeticError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _may_be(path: str) -> bool:
    """A file is there, or may come to be."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return True


def transcript_of(folder: Path, workspace: Path, conversation: str) -> Path:
    """Where the transcript of a conversation in this workspace is."""
    return projects_folder(folder, workspace) / f"{PurePath(conversation).name}.jsonl"


def projects_folder(folder: Path, workspace: Path) -> Path:
    """Where Claude Code keeps the conversations of a workspace."""
    return folder / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", str(workspace))


def _printed_retry(log: Path, start: int, end: int) -> bool:
    try:
        with log.open("rb") as file:
            file.seek(max(0, start - 16))
            return b"Retrying in" in file.read(end - start + 16)
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
