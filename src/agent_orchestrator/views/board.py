"""How things stand, for everybody who looks: all of it once, then what changed.

One broadcaster for all viewers. What changes within a moment is one frame, written once and handed to everybody. A viewer that was
away says which frame it saw last, and gets what changed since; if that is not known any more, all of it. Nothing is worked out while
nobody looks.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.base.text.terminal_output import last_lines, readable
from agent_orchestrator.changes.merge_queue import MergeQueue
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.status import IN_TURN, Status
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.sessions.session_view import Views, session_json
from agent_orchestrator.views.overview import Overviews

MOMENT = 0.05
"""Seconds that changes are gathered for, after one that went out at once."""
SOON = 0.5
"""Seconds that something fleeting is gathered for before it is told."""
LONGEST_SLEEP = 60.0
"""Seconds after which the clock is looked at again: it may have been set, or the machine may have slept."""
BACKLOG = 200
"""Frames that a viewer may be behind before it is cut off; it comes back with the last number it saw."""
REMEMBERED = 5000
"""Events of which it is known whom they were about."""
LONGEST_LINE = 200
"""Characters of what an agent says."""

_UNTOLD = (e.AgentOutput,)
"""Events that are but a sign of life: no viewer need look closer."""


@dataclass(frozen=True)
class Frame:
    """What every viewer gets, as JSON; `seq` is the last event that is in it."""

    seq: int
    data: bytes

    @cached_property
    def sent(self) -> bytes:
        """As a server-sent event; the same bytes for everybody."""
        return b"id: %d\nevent: live\ndata: %b\n\n" % (self.seq, self.data)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A session as it was last sent."""

    facts: SessionFacts
    text: str
    column: str
    questions: tuple[dict[str, Any], ...]
    due: float | None
    """When it changes by time alone."""
    apart: int
    """The frame in which it changed without an event of its own; -1: none."""


class Live:
    """Tells viewers how things stand."""

    def __init__(
        self, flow: Flow, home: Home, views: Views, inbox: Inbox, queue: MergeQueue, overviews: Overviews
    ) -> None:
        self.flow = flow
        self.home = home
        self.views = views
        self.inbox = inbox
        self.queue = queue
        self.overviews = overviews
        self._shown: dict[str, _Shown] = {}
        self._parts: dict[str, str] = {"questions": "", "queue": "", "overview": ""}
        self._parts_due = float("-inf")
        self._dirty: set[str] = set()
        self._stale = True
        self._news: list[tuple[int, str, str]] = []
        self._past: deque[tuple[int, str, str]] = deque(maxlen=REMEMBERED)
        self._since = 0
        self._kept: dict[int | None, Frame] = {}
        self._viewers: set[asyncio.Queue[Frame | None]] = set()
        self._flush_due: asyncio.TimerHandle | None = None
        self._flushed_at = float("-inf")
        self._clock_due: asyncio.TimerHandle | None = None
        self._telling: set[str] = set()
        self._closed = False

    def start(self) -> None:
        """Listen to what happens."""
        self._since = self.flow.seq
        self._dirty.update(self.flow.sessions)
        self.flow.on_change.append(self._on_change)

    def close(self) -> None:
        """Send every viewer home."""
        self._closed = True
        for timer in (self._flush_due, self._clock_due):
            if timer:
                timer.cancel()
        for viewer in self._viewers:
            _end(viewer)

    async def follow(self, after: int | None = None) -> AsyncIterator[bytes]:
        """How things stand, or what changed after a frame, then each change; ends when the viewer is too slow or the daemon stops."""
        viewer: asyncio.Queue[Frame | None] = asyncio.Queue(BACKLOG + 1)
        first = self.frame(after)
        self._viewers.add(viewer)
        self._wait_for_clock()
        try:
            yield first.sent
            while not self._closed:
                frame = await viewer.get()
                if frame is None:
                    return
                yield frame.sent
        finally:
            self._viewers.discard(viewer)

    def frame(self, after: int | None = None) -> Frame:
        """How things stand this moment: all of it, or what changed after a frame."""
        self.flush()
        if after is not None and not self._since <= after <= self.flow.seq:
            after = None
        if after not in self._kept:
            self._kept[after] = self._whole() if after is None else self._rest(after)
        return self._kept[after]

    def overview(self) -> dict[str, Any]:
        """The fleet in one line."""
        self.flush()
        found: dict[str, Any] = json.loads(self._parts["overview"])
        return found

    def look(self) -> None:
        """Something that no event tells of may have changed: the queue's plan, what is known of a base."""
        self._flush_soon()

    def tell(self, kind: str) -> None:
        """Something is another that is neither an event nor on the board: who looks closer asks again, soon but not all the time."""
        if self._viewers and not self._closed and kind not in self._telling:
            self._telling.add(kind)
            asyncio.get_running_loop().call_later(SOON, self._tell, kind)

    def _tell(self, kind: str) -> None:
        self._telling.discard(kind)
        if self._viewers:
            self._news.append((self.flow.seq, "", kind))
            self._flush_soon()

    def forget(self) -> None:
        """Something that no event tells of changed for all: rules, projects."""
        self.overviews.forget()
        self._dirty.update(self.flow.sessions)
        self._flush_soon()

    # -- what changed --------------------------------------------------------------------------------------------------

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            before, after = change.before, change.after
            if isinstance(change.event.body, e.ProjectRegistered | e.ProjectRemoved):
                self.overviews.forget()
            if not isinstance(change.event.body, _UNTOLD):
                self._remember((change.event.seq, change.event.session or "", change.event.type))
            if after is None or after is before:
                continue
            self._dirty.add(after.id)
            known = before.collisions if before else {}
            if known is not after.collisions:
                self._dirty.update(known.keys() | after.collisions.keys())
        if changes:
            self._flush_soon()

    def _remember(self, news: tuple[int, str, str]) -> None:
        if len(self._past) == REMEMBERED:
            self._since = max(self._since, self._past[0][0])
        self._past.append(news)
        if self._viewers:
            self._news.append(news)

    def _flush_soon(self) -> None:
        """The first change goes out at once, those that follow closely go out together."""
        self._stale = True
        if self._flush_due is None and self._viewers and not self._closed:
            loop = asyncio.get_running_loop()
            self._flush_due = loop.call_at(max(loop.time(), self._flushed_at + MOMENT), self.flush)

    def flush(self) -> None:
        """Work out what changed, and hand it to everybody."""
        if self._flush_due:
            self._flush_due.cancel()
            self._flush_due = None
        self._flushed_at = asyncio.get_running_loop().time()
        now = self.flow.clock()
        due = {session for session, shown in self._shown.items() if shown.due is not None and shown.due <= now}
        if not (self._stale or self._dirty or due or now >= self._parts_due):
            self._wait_for_clock()
            return
        self._stale, self._parts_due = False, self.overviews.changes_at(now)
        changed = [session for session in sorted(self._dirty | due) if self._show(session, now)]
        self._dirty.clear()
        parts = {name: text for name, text in self._made() if text != self._parts[name]}
        self._parts.update(parts)
        news, self._news = self._news, []
        if changed or parts or news:
            self._kept.clear()
            self._hand_out(self._frame(False, changed, parts, news))
        self._wait_for_clock()

    def _show(self, session: str, now: float) -> bool:
        """Work a session out anew; is it another?"""
        facts = self.flow.sessions.get(session)
        if facts is None:
            return False
        known = self._shown.get(session)
        status = self.views.status(facts, now)
        says = self._says(facts, status)
        text = _json({**session_json(facts, status, self.views.met(facts)), "says": says})
        questions = known.questions if known and known.facts is facts else tuple(self.inbox.questions_of(facts))
        is_new = known is None or known.text != text
        apart = known.apart if known else -1
        if known and is_new and known.facts.seq == facts.seq:
            apart = self.flow.seq
        due = self.views.changes_at(facts, now)
        self._shown[session] = _Shown(facts, text, status.column, questions, due, apart)
        return is_new

    def _says(self, facts: SessionFacts, status: Status) -> str | None:
        """An agent that never spoke itself is quoted by its terminal."""
        words = own_words(facts, status)
        if words is None and facts.live and not facts.spoke:
            words = last_line(last_lines(self.home.terminal_log(facts.id), 1))
        return words

    def _made(self) -> Iterable[tuple[str, str]]:
        """What is not a session's alone, as text."""
        questions = [question for shown in self._shown.values() for question in shown.questions]
        yield "questions", _json(sorted(questions, key=lambda question: question["since"]))
        yield "queue", _json(self.queue.entries(None))
        yield "overview", _json(self._overview())

    def _overview(self) -> dict[str, Any]:
        return self.overviews.now({session: shown.column for session, shown in self._shown.items()})

    # -- frames --------------------------------------------------------------------------------------------------------

    def _whole(self) -> Frame:
        in_order = sorted(self._shown, key=lambda session: self._shown[session].facts.created_at)
        return self._frame(True, in_order, self._parts, ())

    def _rest(self, after: int) -> Frame:
        """What changed after a frame. Sessions that changed in it by time alone are told once more: who knows whether that was seen."""
        changed = [session for session, shown in self._shown.items() if shown.facts.seq > after or shown.apart >= after]
        return self._frame(False, changed, self._parts, [news for news in self._past if news[0] > after])

    def _frame(
        self, complete: bool, sessions: Iterable[str], parts: dict[str, str], news: Iterable[tuple[int, str, str]]
    ) -> Frame:
        touched: dict[str, list[str]] = {}
        for _, session, kind in news:
            kinds = touched.setdefault(session, [])
            if kind not in kinds:
                kinds.append(kind)
        fields = {
            "seq": str(self.flow.seq),
            "complete": _json(complete),
            "sessions": f"[{','.join(self._shown[session].text for session in sessions)}]",
            **{name: parts.get(name, "null") for name in self._parts},
            "touched": _json(touched),
        }
        text = ",".join(f'"{name}":{value}' for name, value in fields.items())
        return Frame(self.flow.seq, KNOWN.data(f"{{{text}}}".encode(errors="replace")))

    def _hand_out(self, frame: Frame) -> None:
        for viewer in list(self._viewers):
            if viewer.qsize() >= BACKLOG:
                self._viewers.discard(viewer)
                _end(viewer)
            else:
                viewer.put_nowait(frame)

    def _wait_for_clock(self) -> None:
        """Look again when something changes by time alone."""
        if self._clock_due:
            self._clock_due.cancel()
            self._clock_due = None
        if not self._viewers or self._closed:
            return
        now = self.flow.clock()
        moments = [shown.due for shown in self._shown.values() if shown.due is not None]
        wait = min([*moments, self._parts_due]) - now
        delay = min(max(wait, 0.001), LONGEST_SLEEP)
        self._clock_due = asyncio.get_running_loop().call_later(delay, self.flush)


def own_words(facts: SessionFacts, status: Status) -> str | None:
    """The last line of an agent's own newest words, as far as it spoke: what it asks, what it does, what it said last."""
    in_turn = facts.live and facts.activity.state in IN_TURN
    asks = status.waiting_for if status.name in ("needs_input", "blocked") else None
    said = [facts.done, facts.said]
    spoken = [asks, facts.progress.step, *said] if in_turn else [asks, *said, facts.progress.step]
    ended = facts.launch.output if facts.launch and facts.launch.ended else None
    return next((line for words in (*spoken, ended) if words and (line := last_line(words))), None)


def last_line(text: str) -> str | None:
    """The last line that says something, without what a terminal would obey, not too long."""
    if "\x1b" in text:
        text = readable(text.encode(errors="replace"))
    lines = ("".join(c for c in line if c.isprintable()).strip() for line in reversed(text.splitlines()))
    found = next((line for line in lines if line), None)
    return found if found is None or len(found) <= LONGEST_LINE else found[: LONGEST_LINE - 1] + "…"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _end(viewer: asyncio.Queue[Frame | None]) -> None:
    while viewer.full():
        viewer.get_nowait()
    viewer.put_nowait(None)
