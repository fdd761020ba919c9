"""Watches live sessions: what the agent reports, how its process ends, where its branch is, what its screen shows.

Everything is pushed: a spool that grew, a process that ended, a reflog that was written; nothing is polled while nothing happens. What is
read is recorded as events. A spool line is identified by its position in the file, so reading it twice records it once. Look here when an
agent's reports, its end or its commits are recorded late or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from agent_orchestrator.base.git.refs import read_head
from agent_orchestrator.base.text.terminal_output import last_lines
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.keys import launch_end_key, spool_key
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import spool
from agent_orchestrator.plugins.runtimes.single_use_files import remove_one_time_files, remove_with_retry
from agent_orchestrator.protocols import Agent, Exit, Handle, ScreenRules, Timer
from agent_orchestrator.sessions.agents.listener import (
    SCREEN_PAUSE_FACTOR,
    LaunchListener,
    done_event_if_committed,
    event_body_of,
    event_time,
    running_launch,
)
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.session_plugins import handle_of

SCREEN_PAUSE = 0.15
"""Seconds from a screen's change until it is read."""
READ_PAUSE_FACTOR = 4.0
"""The pause after reading a part of a spool, as a multiple of the time that took: an agent that reports without end gets at most
a fifth of the time.
"""
MAX_READ_PAUSE_SECONDS = 1.0
"""Maximum pause in seconds before the rest of a spool is read."""
BRANCH_QUIET_SECONDS = 10.0
"""Seconds without a move after which a branch no longer counts as moving continuously."""
IDLE_SCREEN_SECONDS = 2.0
"""Seconds that a screen must have shown an idle agent before its turn counts as over."""
RETRY_PAUSE = 1.0
"""Seconds until a failed read or write is tried again."""

log = structlog.get_logger()


@dataclass(slots=True)
class _LaunchWatch:
    """What is watched for one launch."""

    generation: int
    reader: spool.SpoolReader
    rules: ScreenRules
    stop_callbacks: list[Callable[[], object]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    spool_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    spool_timer: Timer | None = None
    """The timer of the next read, if the spool has more lines than one burst may record."""
    screen_timer: Timer | None = None
    screen_pause: float = SCREEN_PAUSE
    is_reading_screen: bool = False
    screen_changed: bool = False
    """Whether the screen changed while it was being read."""
    listener: LaunchListener | None = None
    branch_busy: bool = False
    branch_changed: bool = False
    """Whether the branch changed while it was being read, or during the pause after that."""
    branch_timer: Timer | None = None
    branch_pause: float = 0.0
    branch_moved_at: float = float("-inf")

    def close(self) -> None:
        """Stop watching."""
        for stop in self.stop_callbacks:
            stop()
        for task in self.tasks:
            task.cancel()
        for timer in (self.screen_timer, self.spool_timer, self.branch_timer):
            if timer:
                timer.cancel()
        if self.listener:
            self.listener.close()


class Observer(Part):
    """The watcher of all live sessions."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self.prices = Prices(core.home.prices)
        self._watches: dict[str, _LaunchWatch] = {}
        self._heads: dict[str, str] = {}
        self._closed = False

    def start(self) -> None:
        """Watch the sessions that are live now, and those that start later."""
        self.on(self._on_change)
        for facts in self.flow.sessions.values():
            self._update_watch(facts)

    async def close(self) -> None:
        """Stop watching."""
        self._closed = True
        for launch_watch in self._watches.values():
            launch_watch.close()
        self._watches.clear()
        await self.finish(timeout=2.0)
        await super().close()

    def _on_change(self, changes: Sequence[FactsChange]) -> None:
        """Check each changed session."""
        for session in {change.after.id for change in changes if change.after and change.before is not change.after}:
            self._update_watch(self.flow.sessions[session])

    def _update_watch(self, facts: SessionFacts) -> None:
        """Start to watch a session that is live, and stop when its launch is over."""
        launch_watch = self._watches.get(facts.id)
        if launch_watch and (not facts.live or launch_watch.generation != facts.generation):
            if launch_watch.spool_timer:  # its end was recorded elsewhere before this was read
                self.spawn(self._read_remaining(facts.id, launch_watch))
            if launch_watch.branch_changed:
                self.spawn(self.record_head(facts.id))
            launch_watch.close()
            del self._watches[facts.id]
            launch_watch = None
        if facts.live and launch_watch is None and not self.flow.owner_home(facts.id):
            self._open_watch(facts)

    def _open_watch(self, facts: SessionFacts) -> None:
        """Start to watch a launch: its spool, its Git folder, its process, and its screen or its plugin's reports."""
        handle = handle_of(facts)
        assert handle is not None and facts.workspace is not None
        path = self.home.spool(facts.id, facts.generation)
        agent = self._load_agent(facts)
        rules = agent.screen if agent else ScreenRules()
        launch_watch = _LaunchWatch(facts.generation, spool.SpoolReader(path, facts.spool_position), rules)
        self._watches[facts.id] = launch_watch
        launch_watch.stop_callbacks.append(
            self.core.watch.watch_file(path, lambda: self.spawn(self._read_spool(facts.id, launch_watch)))
        )
        git_dir = Path(facts.workspace.git_dir)
        for folder in (git_dir, git_dir / "logs"):
            launch_watch.stop_callbacks.append(
                self.core.watch.watch_folder(folder, lambda: self.spawn(self._read_branch(facts.id, launch_watch)))
            )
        if agent is not None and agent.listens and not (facts.launch and facts.launch.has_inbox):
            run = running_launch(facts, self.core)
            launch_watch.listener = LaunchListener(
                agent, run, self.core, self._record, lambda: self.record_head(facts.id), self.prices
            )
        elif any((rules.ready, rules.busy, rules.blocked)):
            launch_watch.stop_callbacks.append(
                self.core.watch.watch_file(
                    self.home.terminal_log(facts.id), lambda: self._schedule_screen(facts.id, launch_watch)
                )
            )
            self._schedule_screen(facts.id, launch_watch)
        self.spawn(self._read_spool(facts.id, launch_watch))
        self.spawn(self.record_head(facts.id))
        launch_watch.tasks.append(asyncio.get_running_loop().create_task(self._wait_for_end(facts, handle)))

    def _load_agent(self, facts: SessionFacts) -> Agent | None:
        """Return the session's agent plugin, or None if it cannot be loaded."""
        try:
            return self.core.plugins.agent_of(facts)
        except AoError:  # its project or plugin is gone; what it reports to its spool is still read
            return None

    # -- spool ---------------------------------------------------------------------------------------------------------

    async def catch_up(self, session: str) -> None:
        """Record what an agent has reported so far without waiting for a file notification; at most one burst."""
        if launch_watch := self._watches.get(session):
            await self._read_spool(session, launch_watch)

    async def _read_spool(self, session: str, launch_watch: _LaunchWatch) -> None:
        """Read one burst of the spool, and schedule the next after a pause in which other sessions are served."""
        async with launch_watch.spool_lock:
            if launch_watch.spool_timer is not None:
                return
            duration = await self._record_burst(session, launch_watch)
            if duration is None:
                self._schedule_read(session, launch_watch, RETRY_PAUSE)
            elif launch_watch.reader.has_more:
                self._schedule_read(session, launch_watch, min(MAX_READ_PAUSE_SECONDS, READ_PAUSE_FACTOR * duration))

    def _schedule_read(self, session: str, launch_watch: _LaunchWatch, pause: float) -> None:
        """Schedule the next read of a spool; read all of it if its launch is not watched any more."""

        def resume() -> None:
            """Read the spool again."""
            launch_watch.spool_timer = None
            self.spawn(self._read_spool(session, launch_watch))

        if self._closed:
            return
        if self._watches.get(session) is not launch_watch:
            self.spawn(self._read_remaining(session, launch_watch))
        else:
            launch_watch.spool_timer = self.clock.call_later(pause, resume)

    async def _read_remaining(self, session: str, launch_watch: _LaunchWatch) -> None:
        """Read everything that an ended agent left in its spool, in bursts with pauses of the same length between them."""
        async with launch_watch.spool_lock:
            end: int | None = None
            while True:
                duration = await self._record_burst(session, launch_watch, final=True)
                if duration is not None:
                    end = launch_watch.reader.end if end is None else end
                    if not launch_watch.reader.has_more or launch_watch.reader.offset >= end:
                        return
                await asyncio.sleep(RETRY_PAUSE if duration is None else min(MAX_READ_PAUSE_SECONDS, duration))

    async def _record_burst(self, session: str, launch_watch: _LaunchWatch, *, final: bool = False) -> float | None:
        """Read some lines and record them; return how long that took, or None if it must be tried again."""
        start = launch_watch.reader.offset
        started_at = self.clock.monotonic()
        try:
            events = self._events(session, launch_watch, final=final)
        except AoError as error:
            log.warning("what an agent says cannot be read; trying again", session=session, error=str(error))
            return None
        if any(isinstance(event.body, e.AgentDone | e.AgentTurnEnded) for event in events):
            await self.record_head(session)  # what it reports as done was committed before
        if events and not await self._record(events):
            launch_watch.reader = spool.SpoolReader(launch_watch.reader.path, start)
            return None
        await self._record_done(session, events)
        return self.clock.monotonic() - started_at

    async def _record_done(self, session: str, events: Sequence[Event]) -> None:
        """Record that the work is done, after each turn that left everything committed."""
        for event in events:
            if isinstance(event.body, e.AgentTurnEnded):
                key = f"{event.key}:done"
                done_event = await done_event_if_committed(self.core, session, "spool", key, event.body.text)
                if done_event is not None:
                    await self._record([done_event])

    async def _record(self, events: Sequence[Event]) -> bool:
        """Append events; return False, after logging why, if that failed."""
        try:
            await self.flow.append(*events)
        except AoError as error:
            log.warning("what was seen could not be recorded; it is read again", error=str(error))
            return False
        return True

    def _events(self, session: str, launch_watch: _LaunchWatch, *, final: bool) -> list[Event]:
        """Return the events of the spool's next lines."""
        facts = self.flow.sessions[session]
        lines = launch_watch.reader.read(final=final)
        ends = [*[offset for offset, _ in lines[1:]], launch_watch.reader.offset][: len(lines)]
        events = []
        for (start, line), end in zip(lines, ends, strict=True):
            report, now = spool.parse(line), self.clock()
            key = spool_key(session, launch_watch.generation, start, end)
            body = event_body_of(report, facts, key, self.prices)
            if body is not None:
                when = event_time(report, facts, now)
                events.append(Event(body, when, "spool", key, facts.project, session, launch_watch.generation))
        for problem in launch_watch.reader.take_problems():
            log.warning("the spool is not as it should be", session=session, problem=problem)
        return events

    # -- process -------------------------------------------------------------------------------------------------------

    async def _wait_for_end(self, facts: SessionFacts, handle: Handle) -> None:
        """Wait until the launch's process has ended, then record its end."""
        while True:
            try:
                end = await self.core.plugins.runtime_of(facts).ended(handle)
                break
            except Exception as error:  # a third-party runtime may raise anything, and an end must not be missed
                log.warning("the end of an agent cannot be watched; trying again", session=facts.id, error=str(error))
                await asyncio.sleep(RETRY_PAUSE)
        lost = "its terminal is gone" if end.lost else ""
        if end.exit.reason == "lease":
            lost = f"node {facts.node} was cut off for longer than the agent's lease"
        self.spawn(self.record_end(facts.id, handle, end.exit, lost=lost))

    async def record_end(self, session: str, handle: Handle, end: Exit, *, lost: str = "") -> None:
        """Record a launch's end after everything it still reported; retry until that succeeds."""
        while True:
            try:
                return await self._record_end(session, handle, end, lost)
            except (AoError, OSError) as error:
                log.warning("the end of an agent cannot be told; trying again", session=session, error=str(error))
                await asyncio.sleep(RETRY_PAUSE)

    async def _record_end(self, session: str, handle: Handle, end: Exit, lost: str) -> None:
        """Read what the launch still reported, then record its end."""
        launch_watch = self._watches.get(session)
        facts = self.flow.sessions[session]
        if launch_watch is None or launch_watch.generation != handle.generation:
            path = self.home.spool(session, handle.generation)
            launch_watch = _LaunchWatch(handle.generation, spool.SpoolReader(path, facts.spool_position), ScreenRules())
        if launch_watch.listener:
            await launch_watch.listener.finish()
        await self._read_remaining(session, launch_watch)
        await self.record_head(session)
        facts = self.flow.sessions[session]
        body: e.Body
        if lost:
            body = e.AgentLost(lost)
        elif facts.requested_state == "stop" or facts.move_reason:
            body = e.AgentStopped(end.code, end.signal)
        else:
            body = e.AgentExited(end.code, end.signal, last_lines(self.home.terminal_log(session)), end.reason)
        key = launch_end_key(session, handle.generation)
        event = Event(body, self.clock(), "process", key, facts.project, session, handle.generation)
        while True:
            remaining = remove_one_time_files(
                self.home.session(session)
            )  # before recording: then a new launch may begin
            if await self._record([event]):
                break
            await asyncio.sleep(RETRY_PAUSE)  # the disk is full: no event signals when it is free
        remove_with_retry(remaining)

    # -- branch --------------------------------------------------------------------------------------------------------

    async def _read_branch(self, session: str, launch_watch: _LaunchWatch) -> None:
        """Record the branch's head, unless it is being read or was read very recently.

        The first move is recorded at once. When moves follow each other, each pause is twice as long as the one before, up to a second.
        """
        if launch_watch.branch_busy:
            launch_watch.branch_changed = True
            return
        previous_head, pause = self._heads.get(session), 0.0
        launch_watch.branch_busy, launch_watch.branch_changed, started_at = True, False, self.clock.monotonic()
        try:
            await self.record_head(session)
        finally:
            if self._heads.get(session) != previous_head:
                doubled_pause = (
                    2 * launch_watch.branch_pause
                    if started_at - launch_watch.branch_moved_at < BRANCH_QUIET_SECONDS
                    else 0.0
                )
                pause = min(
                    MAX_READ_PAUSE_SECONDS,
                    max(READ_PAUSE_FACTOR * (self.clock.monotonic() - started_at), doubled_pause),
                )
                launch_watch.branch_moved_at, launch_watch.branch_pause = started_at, pause
            if not self._closed and self._watches.get(session) is launch_watch:
                launch_watch.branch_timer = self.clock.call_later(
                    pause, lambda: self._end_branch_pause(session, launch_watch)
                )

    def _end_branch_pause(self, session: str, launch_watch: _LaunchWatch) -> None:
        """End the pause, and read the branch if it has changed meanwhile."""
        launch_watch.branch_busy = False
        if launch_watch.branch_changed:
            self.spawn(self._read_branch(session, launch_watch))

    async def record_head(self, session: str) -> None:
        """Record the head of a session's branch if it has moved."""
        facts = self.flow.sessions[session]
        if facts.workspace is None:
            return
        try:
            head = read_head(Path(facts.workspace.git_dir))
        except AoError as error:
            log.warning("a branch could not be looked at; trying again", session=session, error=str(error))
            self.clock.call_later(RETRY_PAUSE, lambda: self.spawn(self.record_head(session)))
            return
        if head and head != self._heads.get(session, facts.head):
            self._heads[session] = head
            now = self.clock()
            await self._record(
                [Event(e.HeadMoved(head), now, "git", f"head:{session}:{head}:{now:.6f}", facts.project, session)]
            )

    # -- screen --------------------------------------------------------------------------------------------------------

    def _schedule_screen(self, session: str, launch_watch: _LaunchWatch) -> None:
        """Schedule a read of the screen, unless the agent reports to us directly."""
        if self.flow.sessions[session].has_reported:
            return
        if launch_watch.is_reading_screen:
            launch_watch.screen_changed = True
        elif launch_watch.screen_timer is None:
            launch_watch.screen_timer = self.clock.call_later(
                launch_watch.screen_pause, lambda: self.spawn(self._read_screen_once(session, launch_watch))
            )

    async def _read_screen_once(self, session: str, launch_watch: _LaunchWatch) -> None:
        """Read the screen, one read at a time: reading takes long if much was printed."""
        launch_watch.screen_timer, launch_watch.is_reading_screen, launch_watch.screen_changed, started_at = (
            None,
            True,
            False,
            self.clock.monotonic(),
        )
        try:
            await self._read_screen(session, launch_watch)
        finally:
            launch_watch.is_reading_screen, launch_watch.screen_pause = (
                False,
                max(SCREEN_PAUSE, SCREEN_PAUSE_FACTOR * (self.clock.monotonic() - started_at)),
            )
        if launch_watch.screen_changed and self._watches.get(session) is launch_watch:
            self._schedule_screen(session, launch_watch)

    async def _read_screen(self, session: str, launch_watch: _LaunchWatch) -> None:
        """Record the agent's activity as its screen shows it."""
        facts = self.flow.sessions[session]
        handle = handle_of(facts)
        if handle is None or not facts.live or facts.has_reported or launch_watch.generation != facts.generation:
            return
        try:
            text = await self.core.plugins.runtime_of(facts).screen(handle)
        except AoError as error:
            log.debug("a screen could not be read", session=session, error=str(error))
            return
        state, detail = screen_state(text, launch_watch.rules)
        facts = self.flow.sessions[session]
        if (
            not state
            and facts.activity.state == "blocked"
            and not (launch_watch.rules.ready or launch_watch.rules.busy)
        ):
            state = "active"  # the dialog is gone, and no other rule of the agent would show that
        if state and (state, detail) != (facts.activity.state, facts.activity.detail):
            now = self.clock()
            key = f"screen:{session}:{launch_watch.generation}:{now:.6f}"
            activity = e.AgentActivity(state, detail)
            await self._record([Event(activity, now, "screen", key, facts.project, session, launch_watch.generation)])
            if state == "idle" and facts.activity.state == "active":
                self.clock.call_later(
                    IDLE_SCREEN_SECONDS, lambda: self.spawn(self._record_done_by_screen(session, launch_watch, now))
                )

    async def _record_done_by_screen(self, session: str, launch_watch: _LaunchWatch, idle_since: float) -> None:
        """Record that the work is done if the screen still shows the same idle agent and everything is committed."""
        facts = self.flow.sessions[session]
        if not facts.live or facts.has_reported or (facts.activity.state, facts.activity.at) != ("idle", idle_since):
            return
        await self.record_head(session)
        key = f"screen:{session}:{launch_watch.generation}:{idle_since:.6f}:done"
        done_event = await done_event_if_committed(self.core, session, "screen", key, "")
        if done_event is not None:
            await self._record([done_event])


def screen_state(text: str, rules: ScreenRules) -> tuple[str, str]:
    """Return the agent's state and its detail as the visible text shows them, or two empty strings if no rule matches."""
    for pattern, state in ((rules.blocked, "blocked"), (rules.busy, "active"), (rules.ready, "idle")):
        if pattern and (match := pattern.search(text)):
            line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0].strip()
            return state, line if state == "blocked" else ""
    return "", ""
