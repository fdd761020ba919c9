"""Listening to an agent through its plugin: what the plugin hears becomes events.

The plugin knows where its agent speaks (`protocols.Listens`); here is what is the same for all: a message that was taken up is found by
its text, a finished turn that left everything committed counts as done, and what was read once is not told again.
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

from agent_orchestrator.base.files.watch import FileChanges, Watch
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.text.redaction import KNOWN, with_texts
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import heard_key
from agent_orchestrator.core.pull_request import MOST_REPLIES
from agent_orchestrator.core.questions import question_in
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import AgentRun, Heard, Listens
from agent_orchestrator.protocols import reports as r
from agent_orchestrator.protocols.text import visible, writable
from agent_orchestrator.sessions.permissions.rules import told
from agent_orchestrator.sessions.plugins import Plugins, handle_of

RETRY_PAUSE = 1.0
FINISH_WITHIN = 3.0
"""Seconds that a plugin gets to read what an ended agent still left."""
SCREEN_REST = 4.0
"""How many times as long as a look at a screen took is waited before the next one: who prints without end has no more than a fifth."""
LONGEST_REST = 1.0
"""But no longer: meanwhile nothing else is heard of it."""

log = structlog.get_logger()

Told = Callable[[Sequence[Event]], Awaitable[bool]]


class Hearing:
    """Listens to one launch."""

    def __init__(
        self,
        agent: Listens,
        run: AgentRun,
        flow: Flow,
        told: Told,
        look_at_head: Callable[[], Awaitable[None]],
        plugins: Plugins,
        prices: Prices,
    ) -> None:
        self.agent = agent
        self.run = replace(run, screen=rested(run.screen, run.ended))
        self.flow = flow
        self.plugins = plugins
        self.prices = prices
        self._told = told
        self._look_at_head = look_at_head
        self._task = asyncio.get_running_loop().create_task(self._listen())

    def close(self) -> None:
        """Listen no more."""
        self._task.cancel()
        self._changes.close()

    @property
    def _changes(self) -> FileChanges:
        changes = self.run.changes
        assert isinstance(changes, FileChanges)
        return changes

    async def finish(self) -> None:
        """The agent has ended: hear what it still left, then no more."""
        self.run.ended.set()
        self._changes.wake()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(self._task), FINISH_WITHIN)
        self.close()

    async def _listen(self) -> None:
        while True:
            try:
                async for heard in self.agent.listen(self.run):
                    await self._hear(heard)
                return
            except asyncio.CancelledError:
                raise
            except Exception as error:  # a plugin's fault must not leave the session deaf
                log.warning("listening to an agent failed; trying again", session=self.run.session, error=repr(error))
            if self.run.ended.is_set():
                return
            await asyncio.sleep(RETRY_PAUSE)

    async def _hear(self, heard: Heard) -> None:
        if any(isinstance(report, r.TurnReport | r.DoneReport) for report in heard.reports):
            await self._look_at_head()  # what a turn is said to have done is what it committed before
        events = self._events(heard)
        while events and not await self._told(events):  # noqa: ASYNC110 - the disk is full: there is nothing to wait on
            await asyncio.sleep(RETRY_PAUSE)
        for number, report in enumerate(heard.reports):
            if isinstance(report, r.TurnReport) and (event := await self._done(heard, report, number)):
                await self._told([event])

    def _events(self, heard: Heard) -> list[Event]:
        facts, now, run = self.flow.sessions[self.run.session], self.flow.clock(), self.run
        events: list[Event] = []
        taken: set[str] = set()
        for number, report in enumerate(with_texts(heard.reports, writable)):
            if not heard.place and _known(report, facts):
                continue
            key = self._key(heard, now, number)
            body: e.Body | None
            if isinstance(report, r.TookReport):
                message = message_with(facts, report.text, taken)
                taken.add(message)
                body = e.AgentAck(message) if message else None
            else:
                body = body_of(report, facts, key, self.prices)
            if body is not None:
                when = happened(report, facts, now)
                events.append(Event(body, when, heard.source, key, facts.project, facts.id, run.generation))
        return events

    def _key(self, heard: Heard, now: float, number: int) -> str:
        if heard.place:
            return heard_key(self.run.session, writable(heard.place), heard.start, heard.end, number)
        return f"now:{self.run.session}:{self.run.generation}:{heard.source}:{now:.6f}:{number}"

    async def _done(self, heard: Heard, report: r.TurnReport, number: int) -> Event | None:
        key = f"{self._key(heard, self.flow.clock(), number)}:done"
        return await done_if_all_is_committed(self.flow, self.plugins, self.run.session, heard.source, key, report.text)


def rested(look: Callable[[], Awaitable[str]], ended: asyncio.Event) -> Callable[[], Awaitable[str]]:
    """Looks at a screen, with a rest between one and the next, while the agent lives."""
    due = 0.0

    async def looked() -> str:
        nonlocal due
        loop = asyncio.get_running_loop()
        if (rest := due - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), rest)
        began = loop.time()
        try:
            return await look()
        finally:
            due = loop.time() + min(LONGEST_REST, SCREEN_REST * (loop.time() - began))

    return looked


async def done_if_all_is_committed(
    flow: Flow, plugins: Plugins, session: str, source: str, key: str, said: str
) -> Event | None:
    """A finished turn that asks nothing and left everything committed is work that is ready to be looked at."""

    def waits() -> bool:
        facts = flow.sessions[session]
        return facts.activity.state == "idle" and facts.committed and facts.done is None

    facts = flow.sessions[session]
    if question_in(said) or not waits():
        return None
    try:
        git = Git(plugins.site_of(facts).host, Path(facts.spec.path))
        status = await git.run("status", "--porcelain", ok=(0, 128))
    except AoError:  # its node cannot be asked
        return None
    if status.code or status.out.strip() or not waits():
        return None
    body = e.AgentDone(writable(_summary(said)))
    return Event(body, flow.clock(), source, key, facts.project, session, facts.generation)


def agent_run(facts: SessionFacts, plugins: Plugins, watch: Watch) -> AgentRun:
    """A session's live launch, for its agent plugin."""
    handle = handle_of(facts)
    assert handle is not None and facts.launch is not None
    home, ended = plugins.site_of(facts).home, asyncio.Event()
    return AgentRun(
        session=facts.id,
        generation=facts.generation,
        pid=handle.pid,
        started=handle.started,
        workspace=Path(facts.spec.path),
        private=home.session(facts.id),
        log=home.terminal_log(facts.id),
        conversation=facts.conversation,
        memo=facts.launch.memo,
        cursors=facts.cursors,
        changes=FileChanges(watch, ended),
        screen=lambda: plugins.runtime_of(facts).screen(handle),
        ended=ended,
        inside=int(handle.address.get("inside", 0)),
    )


def message_with(facts: SessionFacts, text: str, but: set[str]) -> str:
    """The id of the oldest message with this text that was not taken up yet; none: somebody typed it.

    A message that was typed behind what stood in the prompt already is taken up as the end of both.
    """
    taken = _squeezed(text)
    for message in facts.messages:
        open_ = message.state in ("queued", "held", "delivered")
        if open_ and message.id not in but and _squeezed(message.text) == taken:
            return message.id
    for message in facts.messages:
        if message.state == "delivered" and message.id not in but and taken.endswith(_squeezed(message.text)):
            return message.id
    return ""


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _known(report: r.Report, facts: SessionFacts) -> bool:
    """What is so just now was so before: nothing new."""
    match report:
        case r.ActivityReport():
            current = facts.activity
            return facts.spoke and (current.state, current.detail) == (str(report.state), KNOWN.text(report.detail))
        case r.ConversationReport():
            return facts.conversation == report.conversation
        case r.PermissionReport():
            asked = facts.permission
            return asked is not None and (asked.tool, asked.command, asked.request) == (
                visible(report.tool),
                KNOWN.text(told(report.command)),
                report.request,
            )
    return False


def _summary(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first[:300]


def happened(report: r.Report, facts: SessionFacts, now: float) -> float:
    """When it happened by the agent's own word, as far as that can be: not before its launch, not in the future."""
    told = getattr(report, "time", None)
    begun = facts.launch.at if facts.launch else 0.0
    return min(now, max(begun, told.timestamp())) if told else now


def _usage(report: r.UsageReport, prices: Prices) -> e.AgentUsage:
    tokens = (report.input, report.output, report.cache_read, report.cache_write)
    if report.usd is not None and math.isfinite(report.usd):
        return e.AgentUsage(report.model, *tokens, report.usd, forge=report.forge)
    usd = prices.usd(report.model, *tokens) if any(tokens) else None
    return e.AgentUsage(report.model, *tokens, usd, by_list=usd is not None, forge=report.forge)


def _reply(report: r.ReplyReport, facts: SessionFacts, key: str) -> e.Body:
    """An answer stands in the thread of what it answers."""
    if facts.pr and facts.pr.replies >= MOST_REPLIES:
        return e.AgentReportInvalid(f"it has replied {MOST_REPLIES} times already", report.text[:200])
    said = facts.pr.comments if facts.pr and report.comment else ()
    answered = next((comment for comment in said if comment.id == report.comment), None)
    return e.CommentAdded(
        comment=f"c-{hashlib.sha256(key.encode()).hexdigest()[:12]}",
        body=report.text,
        author=facts.spec.agent,
        path=answered.path if answered else None,
        line=answered.line if answered else None,
        thread=(answered.thread or answered.id) if answered else None,
        by_agent=True,
        head=facts.head or "",
    )


def body_of(report: r.Report, facts: SessionFacts, key: str, prices: Prices) -> e.Body | None:
    """A report as an event's body; none where it is no event by itself."""
    report = with_texts(report, writable)
    match report:
        case r.ActivityReport():
            return e.AgentActivity(str(report.state), report.detail)
        case r.AckReport():
            return e.AgentAck(report.message or "")
        case r.ProgressReport():
            return e.AgentProgress(report.done, report.total, report.step or None, report.tests_passed)
        case r.UsageReport():
            return _usage(report, prices)
        case r.LimitReport():
            return e.AgentLimit(report.resets_at.timestamp() if report.resets_at else None, report.model)
        case r.AskReport():
            return e.AgentAsk(report.question)
        case r.DoneReport():
            return e.AgentDone(report.summary)
        case r.ReplyReport():
            return _reply(report, facts, key)
        case r.ReviewReport():
            return e.AgentReview(report.verdict, report.body, report.comments)
        case r.OtherReport():
            return e.AgentReport(report.event, report.data)
        case r.InvalidReport():
            return e.AgentReportInvalid(report.reason, report.excerpt)
        case r.TurnReport():
            return e.AgentTurnEnded(report.text)
        case r.PermissionReport():
            return e.PermissionAsked(visible(report.tool), told(report.command), report.reason, report.request)
        case r.ConversationReport(conversation) if conversation.startswith("-"):  # its CLI would take it for an option
            return e.AgentReportInvalid("`conversation` begins with a dash", conversation[:200])
        case r.ConversationReport():
            return e.AgentConversation(report.conversation)
        case r.TookReport():
            return None
