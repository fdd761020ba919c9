"""Turns what an agent's plugin reports into events.

The plugin knows where its agent writes its records (`Agent.listen`). Here is what all agents have in common: a message that the agent
started on is identified by its text, a finished turn that left everything committed counts as done, and what was read once is not recorded
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from agent_orchestrator.base.files.watch import LaunchFileChanges
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.base.text.text_trees import map_texts
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.keys import record_key
from agent_orchestrator.core.pull_request import MAX_REPLIES
from agent_orchestrator.core.turn_text.questions import find_question
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Agent, ReportBatch, RunningLaunch
from agent_orchestrator.protocols import reports as r
from agent_orchestrator.protocols.text import make_visible, replace_lone_surrogates
from agent_orchestrator.sessions.part import Core
from agent_orchestrator.sessions.permissions.rules import normalize_command
from agent_orchestrator.sessions.session_plugins import handle_of

RETRY_PAUSE = 1.0
"""Seconds until a failed listener is started again."""
FINISH_TIMEOUT = 3.0
"""Seconds that a plugin gets to read what an ended agent left."""
SCREEN_PAUSE_FACTOR = 4.0
"""The pause after reading a screen, as a multiple of the time that took: an agent that prints without end gets at most a fifth of
the time.
"""
MAX_SCREEN_PAUSE_SECONDS = 1.0
"""Maximum pause in seconds, because nothing else of the agent is read during it."""

log = structlog.get_logger()

Recorder = Callable[[Sequence[Event]], Awaitable[bool]]
"""Records events; returns False if that failed."""


class LaunchListener:
    """The listener of one launch."""

    def __init__(
        self,
        agent: Agent,
        run: RunningLaunch,
        core: Core,
        record: Recorder,
        look_at_head: Callable[[], Awaitable[None]],
        prices: Prices,
    ) -> None:
        self.agent = agent
        self.run = replace(run, screen=throttle_screen_reads(run.screen, run.ended))
        self.core = core
        self.flow = core.flow
        self.prices = prices
        self._record = record
        self._record_head = look_at_head
        self._task = asyncio.get_running_loop().create_task(self._listen_until_ended())

    def close(self) -> None:
        """Stop listening."""
        self._task.cancel()
        self._file_changes.close()

    @property
    def _file_changes(self) -> LaunchFileChanges:
        """The file changes that the plugin waits for."""
        changes = self.run.changes
        assert isinstance(changes, LaunchFileChanges)
        return changes

    async def finish(self) -> None:
        """Read what the ended agent still left, then stop listening."""
        self.run.ended.set()
        self._file_changes.wake()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(self._task), FINISH_TIMEOUT)
        self.close()

    async def _listen_until_ended(self) -> None:
        """Record what the plugin reports, and start the plugin's listener again if it fails."""
        while True:
            try:
                async for batch in self.agent.listen(self.run):
                    await self._record_reports(batch)
                return
            except asyncio.CancelledError:
                raise
            except Exception as error:  # a plugin's error must not end the reading of its session
                log.warning("listening to an agent failed; trying again", session=self.run.session, error=repr(error))
            if self.run.ended.is_set():
                return
            await asyncio.sleep(RETRY_PAUSE)

    async def _record_reports(self, batch: ReportBatch) -> None:
        """Record a batch of reports, and that the work is done if a turn left everything committed."""
        if any(isinstance(report, r.TurnReport | r.DoneReport) for report in batch.reports):
            await self._record_head()  # what a turn reports as done was committed before
        events = self._events_of(batch)
        while events and not await self._record(events):  # noqa: ASYNC110 - the disk is full: no event signals when it is free
            await asyncio.sleep(RETRY_PAUSE)
        for number, report in enumerate(batch.reports):
            if isinstance(report, r.TurnReport) and (event := await self._done_event(batch, report, number)):
                await self._record([event])

    def _events_of(self, batch: ReportBatch) -> list[Event]:
        """Return the events of a batch of reports."""
        facts, now, run = self.flow.sessions[self.run.session], self.flow.clock(), self.run
        events: list[Event] = []
        matched_ids: set[str] = set()
        for number, report in enumerate(map_texts(batch.reports, replace_lone_surrogates)):
            if not batch.source_id and _is_recorded(report, facts):
                continue
            key = self._event_key(batch, now, number)
            body: e.Body | None
            if isinstance(report, r.MessageTakenReport):
                message = find_message_id(facts, report.text, matched_ids)
                matched_ids.add(message)
                body = e.AgentAck(message) if message else None
            else:
                body = event_body_of(report, facts, key, self.prices)
            if body is not None:
                happened_at = event_time(report, facts, now)
                events.append(Event(body, happened_at, batch.source, key, facts.project, facts.id, run.generation))
        return events

    def _event_key(self, batch: ReportBatch, now: float, number: int) -> str:
        """Return the key of a report's event: by its position in the agent's records, or by time if it has none."""
        if batch.source_id:
            return record_key(
                self.run.session, replace_lone_surrogates(batch.source_id), batch.start, batch.end, number
            )
        return f"now:{self.run.session}:{self.run.generation}:{batch.source}:{now:.6f}:{number}"

    async def _done_event(self, batch: ReportBatch, report: r.TurnReport, number: int) -> Event | None:
        """Return the event that a finished turn completed the work, or None."""
        key = f"{self._event_key(batch, self.flow.clock(), number)}:done"
        return await done_event_if_committed(self.core, self.run.session, batch.source, key, report.text)


def throttle_screen_reads(
    read_screen: Callable[[], Awaitable[str]], ended: asyncio.Event
) -> Callable[[], Awaitable[str]]:
    """Return a function that reads a screen, with a pause between two reads while the agent lives."""
    next_at = 0.0

    async def read_after_pause() -> str:
        """Read the screen, after the pause that the last read requires."""
        nonlocal next_at
        loop = asyncio.get_running_loop()
        if (pause := next_at - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), pause)
        started_at = loop.time()
        try:
            return await read_screen()
        finally:
            next_at = loop.time() + min(MAX_SCREEN_PAUSE_SECONDS, SCREEN_PAUSE_FACTOR * (loop.time() - started_at))

    return read_after_pause


async def done_event_if_committed(core: Core, session: str, source: str, key: str, final_text: str) -> Event | None:
    """Return the event that the work is done if the finished turn asks nothing and left everything committed, or None."""

    def is_unfinished() -> bool:
        """Return whether the session is idle with commits, and not done yet."""
        facts = core.flow.sessions[session]
        return facts.activity.state == "idle" and facts.has_commits and facts.done_summary is None

    facts = core.flow.sessions[session]
    if find_question(final_text) or not is_unfinished():
        return None
    try:
        git = Git(core.sites.for_session(facts).host, Path(facts.spec.path))
        status = await git.run("status", "--porcelain", ok=(0, 128))
    except AoError:  # its node cannot be reached
        return None
    if status.code or status.out.strip() or not is_unfinished():
        return None
    body = e.AgentDone(replace_lone_surrogates(_first_line(final_text)))
    return Event(body, core.flow.clock(), source, key, facts.project, session, facts.generation)


def running_launch(facts: SessionFacts, core: Core) -> RunningLaunch:
    """Return a session's live launch, for its agent plugin."""
    handle = handle_of(facts)
    assert handle is not None and facts.launch is not None
    home, ended = core.sites.for_session(facts).home, asyncio.Event()
    return RunningLaunch(
        session=facts.id,
        generation=facts.generation,
        pid=handle.pid,
        started=handle.started,
        workspace=Path(facts.spec.path),
        private=home.session(facts.id),
        log=home.terminal_log(facts.id),
        conversation=facts.conversation,
        plugin_data=facts.launch.plugin_data,
        cursors=facts.cursors,
        changes=LaunchFileChanges(core.watch, ended),
        screen=lambda: core.plugins.runtime_of(facts).screen(handle),
        ended=ended,
        container_pid=int(handle.address.get("inside", 0)),
    )


def find_message_id(facts: SessionFacts, text: str, but: set[str]) -> str:
    """Return the id of the oldest message with this text that the agent has not started on, or "" if a person typed the text.

    `but` are ids to leave out. A message that was typed behind text in the prompt matches as the end of the whole text.
    """
    squeezed_text = _squeeze_spaces(text)
    for message in facts.messages:
        is_open = message.state in ("queued", "held", "delivered")
        if is_open and message.id not in but and _squeeze_spaces(message.text) == squeezed_text:
            return message.id
    for message in facts.messages:
        if (
            message.state == "delivered"
            and message.id not in but
            and squeezed_text.endswith(_squeeze_spaces(message.text))
        ):
            return message.id
    return ""


def _squeeze_spaces(text: str) -> str:
    """Return the text with each run of white space as one space."""
    return re.sub(r"\s+", " ", text).strip()


def _is_recorded(report: r.Report, facts: SessionFacts) -> bool:
    """Return whether a report of a current state repeats what is recorded already."""
    match report:
        case r.ActivityReport():
            activity = facts.activity
            return facts.has_reported and (activity.state, activity.detail) == (
                str(report.state),
                REDACTOR.redact_text(report.detail),
            )
        case r.ConversationReport():
            return facts.conversation == report.conversation
        case r.PermissionReport():
            permission = facts.permission
            return permission is not None and (permission.tool, permission.command, permission.request) == (
                make_visible(report.tool),
                REDACTOR.redact_text(normalize_command(report.command)),
                report.request,
            )
    return False


def _first_line(text: str) -> str:
    """Return the first line with text, up to 300 characters."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first[:300]


def event_time(report: r.Report, facts: SessionFacts, now: float) -> float:
    """Return when a report's event happened by the agent's clock, but not before its launch and not in the future."""
    reported_at = getattr(report, "time", None)
    launched_at = facts.launch.at if facts.launch else 0.0
    return min(now, max(launched_at, reported_at.timestamp())) if reported_at else now


def _usage_event(report: r.UsageReport, prices: Prices) -> e.AgentUsage:
    """Return the event of a usage report; without a reported cost, the cost is computed from the price list."""
    tokens = (report.input, report.output, report.cache_read, report.cache_write)
    if report.usd is not None and math.isfinite(report.usd):
        return e.AgentUsage(report.model, *tokens, report.usd, forge=report.forge)
    usd = prices.cost_usd(report.model, *tokens) if any(tokens) else None
    return e.AgentUsage(report.model, *tokens, usd, by_list=usd is not None, forge=report.forge)


def _reply_event(report: r.ReplyReport, facts: SessionFacts, key: str) -> e.Body:
    """Return the comment that an agent's reply adds to the thread of the comment it answers; too many replies are refused."""
    if facts.pr and facts.pr.reply_count >= MAX_REPLIES:
        return e.AgentReportInvalid(f"it has replied {MAX_REPLIES} times already", report.text[:200])
    comments = facts.pr.comments if facts.pr and report.comment else ()
    answered_comment = next((comment for comment in comments if comment.id == report.comment), None)
    return e.CommentAdded(
        comment=f"c-{hashlib.sha256(key.encode()).hexdigest()[:12]}",
        body=report.text,
        author=facts.spec.agent,
        path=answered_comment.path if answered_comment else None,
        line=answered_comment.line if answered_comment else None,
        thread=(answered_comment.thread or answered_comment.id) if answered_comment else None,
        by_agent=True,
        head=facts.head or "",
    )


def event_body_of(report: r.Report, facts: SessionFacts, key: str, prices: Prices) -> e.Body | None:
    """Return the event body of a report, or None if the report does not become an event directly."""
    report = map_texts(report, replace_lone_surrogates)
    match report:
        case r.ActivityReport():
            return e.AgentActivity(str(report.state), report.detail)
        case r.AckReport():
            return e.AgentAck(report.message or "")
        case r.ProgressReport():
            return e.AgentProgress(report.done, report.total, report.step or None, report.tests_passed)
        case r.UsageReport():
            return _usage_event(report, prices)
        case r.LimitReport():
            return e.AgentLimit(report.resets_at.timestamp() if report.resets_at else None, report.model)
        case r.AskReport():
            return e.AgentAsk(report.question)
        case r.DoneReport():
            return e.AgentDone(report.summary)
        case r.ReplyReport():
            return _reply_event(report, facts, key)
        case r.ReviewReport():
            return e.AgentReview(report.verdict, report.body, report.comments)
        case r.OtherReport():
            return e.AgentReport(report.event, report.data)
        case r.InvalidReport():
            return e.AgentReportInvalid(report.reason, report.excerpt)
        case r.TurnReport():
            return e.AgentTurnEnded(report.text)
        case r.PermissionReport():
            return e.PermissionAsked(
                make_visible(report.tool), normalize_command(report.command), report.reason, report.request
            )
        case r.ConversationReport(conversation) if conversation.startswith("-"):  # its CLI would parse it as an option
            return e.AgentReportInvalid("`conversation` begins with a dash", conversation[:200])
        case r.ConversationReport():
            return e.AgentConversation(report.conversation)
        case r.MessageTakenReport():
            return None
