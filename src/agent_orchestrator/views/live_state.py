"""The live state for all viewers: everything once, then what changed.

One broadcaster serves all viewers. Changes of one moment become one frame, serialized once and sent to every viewer. A
viewer that reconnects names the last frame it saw and gets what changed since; if that is no longer known, it gets
everything. Nothing is computed while there is no viewer.

Look here when the dashboard shows old state or frames are too large.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.base.text.terminal_output import last_lines, to_plain_text
from agent_orchestrator.changes.merge_queue import MergeQueue
from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.signals import (
    BaseStateChanged,
    ConfigurationReloaded,
    FixProgressed,
    PlanProgressed,
    QueuePlanned,
)
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES, Status
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.session_view import SessionViews, session_json
from agent_orchestrator.views.overview import FleetOverview

GATHER_SECONDS = 0.05
"""Seconds that changes are gathered, after one that was sent at once."""
ANNOUNCE_DELAY = 0.5
"""Seconds that short-lived changes are gathered before viewers are informed."""
MAX_CLOCK_WAIT_SECONDS = 60.0
"""Seconds after which the clock is checked again: it may have been set, or the machine may have slept."""
MAX_QUEUED_FRAMES = 200
"""Frames that a viewer may lag behind before it is disconnected; it reconnects with the last number it saw."""
MAX_RECENT_EVENTS = 5000
"""The number of past events whose sessions are remembered."""
MAX_QUOTE_LENGTH = 200
"""The most characters of an agent's quoted line."""

_NOT_ANNOUNCED = (e.AgentOutput,)
"""Events that are only signs of life, so that no viewer has to read more."""


@dataclass(frozen=True)
class LiveFrame:
    """What every viewer gets, as JSON; `seq` is the number of the last event in it."""

    seq: int
    data: bytes

    @cached_property
    def sse_bytes(self) -> bytes:
        """Return the frame as a server-sent event; the bytes are shared by all viewers."""
        return b"id: %d\nevent: live\ndata: %b\n\n" % (self.seq, self.data)


@dataclass(frozen=True, slots=True)
class _SentSession:
    """A session as it was last sent."""

    facts: SessionFacts
    text: str
    column: str
    questions: tuple[dict[str, Any], ...]
    changes_at: float | None
    """The time at which it changes without an event."""
    changed_in_frame: int
    """The frame in which it changed without an event; -1: none."""


class LiveState(Part):
    """Sends the live state to viewers."""

    def __init__(
        self, core: Core, views: SessionViews, inbox: Inbox, queue: MergeQueue, overviews: FleetOverview
    ) -> None:
        super().__init__(core)
        self.views = views
        self.inbox = inbox
        self.queue = queue
        self.fleet_overview = overviews
        self._sent_sessions: dict[str, _SentSession] = {}
        self._parts: dict[str, str] = {"questions": "", "queue": "", "overview": ""}
        self._parts_due = float("-inf")
        self._dirty: set[str] = set()
        self._stale = True
        self._news: list[tuple[int, str, str]] = []
        self._recent_news: deque[tuple[int, str, str]] = deque(maxlen=MAX_RECENT_EVENTS)
        self._oldest_known = 0
        self._frames: dict[int | None, LiveFrame] = {}
        self._viewers: set[asyncio.Queue[LiveFrame | None]] = set()
        self._flush_due: Timer | None = None
        self._flushed_at = float("-inf")
        self._clock_due: Timer | None = None
        self._pending_kinds: set[str] = set()
        self._closed = False
        self.on_signal(QueuePlanned, lambda _signal: self._flush_soon())
        self.on_signal(BaseStateChanged, lambda _signal: self._flush_soon())
        self.on_signal(PlanProgressed, lambda _signal: self._announce_later("plan-progress"))
        self.on_signal(FixProgressed, lambda _signal: self._announce_later("fix-progress"))
        self.on_signal(ConfigurationReloaded, lambda _signal: self._compute_all())

    def start(self) -> None:
        """Start to observe the events."""
        self._oldest_known = self.flow.seq
        self._dirty.update(self.flow.sessions)
        self.on(self._note_changed)

    async def close(self) -> None:
        """Close all viewer streams."""
        self._closed = True
        for timer in (self._flush_due, self._clock_due):
            if timer:
                timer.cancel()
        for viewer in self._viewers:
            _disconnect(viewer)
        await super().close()

    async def follow(self, after: int | None = None) -> AsyncIterator[bytes]:
        """Yield the live state, or what changed after a frame, then each change; ends if the viewer is too slow or the daemon stops."""
        viewer: asyncio.Queue[LiveFrame | None] = asyncio.Queue(MAX_QUEUED_FRAMES + 1)
        first = self.frame(after)
        self._viewers.add(viewer)
        self._schedule_next_change()
        try:
            yield first.sse_bytes
            while not self._closed:
                frame = await viewer.get()
                if frame is None:
                    return
                yield frame.sse_bytes
        finally:
            self._viewers.discard(viewer)

    def frame(self, after: int | None = None) -> LiveFrame:
        """Return the live state at this moment: everything, or what changed after a frame."""
        self.flush()
        if after is not None and not self._oldest_known <= after <= self.flow.seq:
            after = None
        if after not in self._frames:
            self._frames[after] = self._full_frame() if after is None else self._frame_since(after)
        return self._frames[after]

    def overview(self) -> dict[str, Any]:
        """Return the overview of the fleet."""
        self.flush()
        overview: dict[str, Any] = json.loads(self._parts["overview"])
        return overview

    def _announce_later(self, kind: str) -> None:
        """Inform viewers soon that something changed which is neither an event nor on the board, so that they read it again."""
        if self._viewers and not self._closed and kind not in self._pending_kinds:
            self._pending_kinds.add(kind)
            self.clock.call_later(ANNOUNCE_DELAY, lambda: self._announce(kind))

    def _announce(self, kind: str) -> None:
        self._pending_kinds.discard(kind)
        if self._viewers:
            self._news.append((self.flow.seq, "", kind))
            self._flush_soon()

    def _compute_all(self) -> None:
        """Compute everything again, because rules or projects changed without an event."""
        self.fleet_overview.drop_cached_settings()
        self._dirty.update(self.flow.sessions)
        self._flush_soon()

    # -- changes -------------------------------------------------------------------------------------------------------

    def _note_changed(self, changes: Sequence[FactsChange]) -> None:
        for change in changes:
            before, after = change.before, change.after
            if isinstance(change.event.body, e.ProjectRegistered | e.ProjectRemoved):
                self.fleet_overview.drop_cached_settings()
            if not isinstance(change.event.body, _NOT_ANNOUNCED):
                self._add_news((change.event.seq, change.event.session or "", change.event.type))
            if after is None or after is before:
                continue
            self._dirty.add(after.id)
            conflicts_before = before.predicted_conflicts if before else {}
            if conflicts_before is not after.predicted_conflicts:
                self._dirty.update(conflicts_before.keys() | after.predicted_conflicts.keys())
        if changes:
            self._flush_soon()

    def _add_news(self, news: tuple[int, str, str]) -> None:
        if len(self._recent_news) == MAX_RECENT_EVENTS:
            self._oldest_known = max(self._oldest_known, self._recent_news[0][0])
        self._recent_news.append(news)
        if self._viewers:
            self._news.append(news)

    def _flush_soon(self) -> None:
        """Schedule a flush: the first change is sent at once, those that follow closely are sent together."""
        self._stale = True
        if self._flush_due is None and self._viewers and not self._closed:
            pause = max(0.0, self._flushed_at + GATHER_SECONDS - self.clock.monotonic())
            self._flush_due = self.clock.call_later(pause, self.flush)

    def flush(self) -> None:
        """Compute what changed and send it to all viewers."""
        if self._flush_due:
            self._flush_due.cancel()
            self._flush_due = None
        self._flushed_at = self.clock.monotonic()
        now = self.clock()
        due = {
            session
            for session, sent in self._sent_sessions.items()
            if sent.changes_at is not None and sent.changes_at <= now
        }
        if not (self._stale or self._dirty or due or now >= self._parts_due):
            self._schedule_next_change()
            return
        self._stale, self._parts_due = False, self.fleet_overview.changes_at(now)
        changed = [session for session in sorted(self._dirty | due) if self._update_session(session, now)]
        self._dirty.clear()
        parts = {name: text for name, text in self._shared_parts() if text != self._parts[name]}
        self._parts.update(parts)
        news, self._news = self._news, []
        if changed or parts or news:
            self._frames.clear()
            self._broadcast(self._frame(False, changed, parts, news))
        self._schedule_next_change()

    def _update_session(self, session: str, now: float) -> bool:
        """Compute a session's JSON again; return whether it changed."""
        facts = self.flow.sessions.get(session)
        if facts is None:
            return False
        previous = self._sent_sessions.get(session)
        status = self.views.status(facts, now)
        quote = self._quote_of(facts, status)
        text = _json({**session_json(facts, status, self.views.conflicts_of(facts)), "says": quote})
        questions = (
            previous.questions if previous and previous.facts is facts else tuple(self.inbox.questions_of(facts))
        )
        is_new = previous is None or previous.text != text
        frame_without_event = previous.changed_in_frame if previous else -1
        if previous and is_new and previous.facts.seq == facts.seq:
            frame_without_event = self.flow.seq
        due = self.views.next_status_change_at(facts, now)
        self._sent_sessions[session] = _SentSession(facts, text, status.column, questions, due, frame_without_event)
        return is_new

    def _quote_of(self, facts: SessionFacts, status: Status) -> str | None:
        """Return the agent's last line; of an agent that never reported itself, the last line of its terminal."""
        quote = agent_quote(facts, status)
        if quote is None and facts.live and not facts.has_reported:
            quote = last_line(last_lines(self.home.terminal_log(facts.id), 1))
        return quote

    def _shared_parts(self) -> Iterable[tuple[str, str]]:
        """Return the JSON text of each part that does not belong to one session."""
        questions = [question for sent in self._sent_sessions.values() for question in sent.questions]
        yield "questions", _json(sorted(questions, key=lambda question: question["since"]))
        yield "queue", _json(self.queue.entries(None))
        yield "overview", _json(self._overview())

    def _overview(self) -> dict[str, Any]:
        return self.fleet_overview.current_json({session: sent.column for session, sent in self._sent_sessions.items()})

    # -- frames --------------------------------------------------------------------------------------------------------

    def _full_frame(self) -> LiveFrame:
        in_order = sorted(self._sent_sessions, key=lambda session: self._sent_sessions[session].facts.created_at)
        return self._frame(True, in_order, self._parts, ())

    def _frame_since(self, after: int) -> LiveFrame:
        """Return what changed after a frame, including sessions that changed in that frame without an event: the viewer
        may not have seen it.
        """
        changed = [
            session
            for session, sent in self._sent_sessions.items()
            if sent.facts.seq > after or sent.changed_in_frame >= after
        ]
        return self._frame(False, changed, self._parts, [news for news in self._recent_news if news[0] > after])

    def _frame(
        self, complete: bool, sessions: Iterable[str], parts: dict[str, str], news: Iterable[tuple[int, str, str]]
    ) -> LiveFrame:
        touched: dict[str, list[str]] = {}
        for _, session, kind in news:
            kinds = touched.setdefault(session, [])
            if kind not in kinds:
                kinds.append(kind)
        fields = {
            "seq": str(self.flow.seq),
            "complete": _json(complete),
            "sessions": f"[{','.join(self._sent_sessions[session].text for session in sessions)}]",
            **{name: parts.get(name, "null") for name in self._parts},
            "touched": _json(touched),
        }
        text = ",".join(f'"{name}":{value}' for name, value in fields.items())
        return LiveFrame(self.flow.seq, REDACTOR.redact_bytes(f"{{{text}}}".encode(errors="replace")))

    def _broadcast(self, frame: LiveFrame) -> None:
        for viewer in list(self._viewers):
            if viewer.qsize() >= MAX_QUEUED_FRAMES:
                self._viewers.discard(viewer)
                _disconnect(viewer)
            else:
                viewer.put_nowait(frame)

    def _schedule_next_change(self) -> None:
        """Schedule the next flush for when something changes without an event."""
        if self._clock_due:
            self._clock_due.cancel()
            self._clock_due = None
        if not self._viewers or self._closed:
            return
        now = self.clock()
        moments = [sent.changes_at for sent in self._sent_sessions.values() if sent.changes_at is not None]
        wait = min([*moments, self._parts_due]) - now
        delay = min(max(wait, 0.001), MAX_CLOCK_WAIT_SECONDS)
        self._clock_due = self.clock.call_later(delay, self.flush)


def agent_quote(facts: SessionFacts, status: Status) -> str | None:
    """Return the last line of an agent's own newest text: its question, current step or last statement; None if it reported nothing."""
    in_turn = facts.live and facts.activity.state in IN_TURN_ACTIVITIES
    asks = status.waiting_for if status.name in ("needs_input", "blocked") else None
    statements = [facts.done_summary, facts.last_turn_text]
    texts = [asks, facts.progress.step, *statements] if in_turn else [asks, *statements, facts.progress.step]
    final_output = facts.launch.output if facts.launch and facts.launch.ended else None
    return next((line for text in (*texts, final_output) if text and (line := last_line(text))), None)


def last_line(text: str) -> str | None:
    """Return the last line that is not empty, without terminal control sequences and of limited length, or None."""
    if "\x1b" in text:
        text = to_plain_text(text.encode(errors="replace"))
    lines = ("".join(c for c in line if c.isprintable()).strip() for line in reversed(text.splitlines()))
    last = next((line for line in lines if line), None)
    return last if last is None or len(last) <= MAX_QUOTE_LENGTH else last[: MAX_QUOTE_LENGTH - 1] + "…"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _disconnect(viewer: asyncio.Queue[LiveFrame | None]) -> None:
    while viewer.full():
        viewer.get_nowait()
    viewer.put_nowait(None)
