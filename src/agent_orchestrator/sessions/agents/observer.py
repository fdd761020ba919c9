"""Watching live sessions: what the agent reports, how its process ends, where its branch is, what its screen says.

Everything here is pushed: a spool that grew, a process that ended, a reflog that was written. Nothing is asked while nothing
happens. What was seen goes into the flow as events; a line of the spool is named by its place in the file, so reading it twice
tells it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.git.refs import read_head
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.text.terminal_output import last_lines
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import ended_key, spool_key
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared import spool
from agent_orchestrator.plugins.runtimes.launch_checks import forget_ended, remove_surely
from agent_orchestrator.protocols import Agent, Exit, Handle, Listens, ScreenRules
from agent_orchestrator.sessions.agents.listener import (
    SCREEN_REST,
    Hearing,
    agent_run,
    body_of,
    done_if_all_is_committed,
    happened,
)
from agent_orchestrator.sessions.plugins import Plugins, handle_of

SCREEN_PAUSE = 0.15
"""Seconds that a screen must have been left alone before it is read."""
SPOOL_REST = 4.0
"""How many times as long as a turn of a spool took is waited before the next one: who reports without end has no more than a fifth."""
LONGEST_REST = 1.0
BRANCH_QUIET = 10.0
"""Seconds after which a branch that moves again has not been moving all the time."""
SETTLED = 2.0
"""Seconds that a screen must have shown an idle agent until its turn counts as over."""
RETRY_PAUSE = 1.0

log = structlog.get_logger()


@dataclass(slots=True)
class _Eye:
    """What is watched for one launch."""

    generation: int
    reader: spool.SpoolReader
    rules: ScreenRules
    stops: list[Callable[[], None]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    rest: asyncio.TimerHandle | None = None
    """Its spool has more than others can wait for: read on then."""
    screen_timer: asyncio.TimerHandle | None = None
    screen_pause: float = SCREEN_PAUSE
    looking: bool = False
    changed: bool = False
    """The screen changed while it was looked at."""
    hearing: Hearing | None = None
    branch_busy: bool = False
    branch_changed: bool = False
    """Something happened to its branch while that was looked at, or rested from."""
    branch_rest: asyncio.TimerHandle | None = None
    branch_pause: float = 0.0
    branch_moved: float = float("-inf")

    def close(self) -> None:
        """Look no more."""
        for stop in self.stops:
            stop()
        for task in self.tasks:
            task.cancel()
        for timer in (self.screen_timer, self.rest, self.branch_rest):
            if timer:
                timer.cancel()
        if self.hearing:
            self.hearing.close()


class Observer:
    """Keeps an eye on every live session."""

    def __init__(self, flow: Flow, home: Home, plugins: Plugins, watch: Watch) -> None:
        self.flow = flow
        self.home = home
        self.plugins = plugins
        self.watch = watch
        self.prices = Prices(home.prices)
        self._eyes: dict[str, _Eye] = {}
        self._heads: dict[str, str] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        """Watch the sessions that live, and those to come."""
        self.flow.on_change.append(self._on_change)
        for facts in self.flow.sessions.values():
            self._look_at(facts)

    async def close(self) -> None:
        """Look no more."""
        self._closed = True
        for eye in self._eyes.values():
            eye.close()
        self._eyes.clear()
        if self._background:
            await asyncio.wait(self._background, timeout=2.0)

    def _on_change(self, changes: Sequence[Change]) -> None:
        for session in {change.after.id for change in changes if change.after and change.before is not change.after}:
            self._look_at(self.flow.sessions[session])

    def _look_at(self, facts: SessionFacts) -> None:
        eye = self._eyes.get(facts.id)
        if eye and (not facts.live or eye.generation != facts.generation):
            if eye.rest:  # somebody else told its end before it was read
                self._spawn(self._read_to_the_end(facts.id, eye))
            if eye.branch_changed:
                self._spawn(self.look_at_head(facts.id))
            eye.close()
            del self._eyes[facts.id]
            eye = None
        if facts.live and eye is None and not self.flow.elsewhere(facts.id):
            self._open(facts)

    def _open(self, facts: SessionFacts) -> None:
        handle = handle_of(facts)
        assert handle is not None and facts.place is not None
        path = self.home.spool(facts.id, facts.generation)
        agent = self._agent(facts)
        rules = agent.screen if agent else ScreenRules()
        eye = _Eye(facts.generation, spool.SpoolReader(path, facts.spool), rules)
        self._eyes[facts.id] = eye
        eye.stops.append(self.watch.file(path, lambda: self._spawn(self._read_spool(facts.id, eye))))
        git_dir = Path(facts.place.git_dir)
        for folder in (git_dir, git_dir / "logs"):
            eye.stops.append(self.watch.folder(folder, lambda: self._spawn(self._look_at_branch(facts.id, eye))))
        if isinstance(agent, Listens) and not (facts.launch and facts.launch.inbox):
            run = agent_run(facts, self.plugins, self.watch)
            eye.hearing = Hearing(
                agent, run, self.flow, self._told, lambda: self.look_at_head(facts.id), self.plugins, self.prices
            )
        elif any((rules.ready, rules.busy, rules.blocked)):
            eye.stops.append(
                self.watch.file(self.home.terminal_log(facts.id), lambda: self._screen_changed(facts.id, eye))
            )
            self._screen_changed(facts.id, eye)
        self._spawn(self._read_spool(facts.id, eye))
        self._spawn(self.look_at_head(facts.id))
        eye.tasks.append(asyncio.get_running_loop().create_task(self._await_end(facts, handle)))

    def _agent(self, facts: SessionFacts) -> Agent | None:
        try:
            return self.plugins.agent_of(facts)
        except AoError:  # its project or its plugin is gone; what it reports by itself is still heard
            return None

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- spool ---------------------------------------------------------------------------------------------------------

    async def catch_up(self, session: str) -> None:
        """Hear what an agent has said up to now, whether the file system has told of it or not; of a flood no more than its turn."""
        if eye := self._eyes.get(session):
            await self._read_spool(session, eye)

    async def _read_spool(self, session: str, eye: _Eye) -> None:
        """One turn: a burst. Whoever says more is read on after a rest, in which others are served."""
        async with eye.reading:
            if eye.rest is not None:
                return
            took = await self._turn(session, eye)
            if took is None:
                self._read_on(session, eye, RETRY_PAUSE)
            elif eye.reader.more:
                self._read_on(session, eye, min(LONGEST_REST, SPOOL_REST * took))

    def _read_on(self, session: str, eye: _Eye, pause: float) -> None:
        def awake() -> None:
            eye.rest = None
            self._spawn(self._read_spool(session, eye))

        if self._closed:
            return
        if self._eyes.get(session) is not eye:
            self._spawn(self._read_to_the_end(session, eye))
        else:
            eye.rest = asyncio.get_running_loop().call_later(pause, awake)

    async def _read_to_the_end(self, session: str, eye: _Eye) -> None:
        """All that its agent, which has ended, left there. Turn by turn too; in between others have as much time."""
        async with eye.reading:
            end: int | None = None
            while True:
                took = await self._turn(session, eye, final=True)
                if took is not None:
                    end = eye.reader.end if end is None else end
                    if not eye.reader.more or eye.reader.offset >= end:
                        return
                await asyncio.sleep(RETRY_PAUSE if took is None else min(LONGEST_REST, took))

    async def _turn(self, session: str, eye: _Eye, *, final: bool = False) -> float | None:
        """Read some lines and record them: how long that took; none: it is to be tried again."""
        loop, start = asyncio.get_running_loop(), eye.reader.offset
        began = loop.time()
        try:
            events = self._events(session, eye, final=final)
        except AoError as error:
            log.warning("what an agent says cannot be read; trying again", session=session, error=str(error))
            return None
        if any(isinstance(event.body, e.AgentDone | e.AgentTurnEnded) for event in events):
            await self.look_at_head(session)  # what it says is done is what it committed before
        if events and not await self._told(events):
            eye.reader = spool.SpoolReader(eye.reader.path, start)
            return None
        await self._done_after(session, events)
        return loop.time() - began

    async def _done_after(self, session: str, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event.body, e.AgentTurnEnded):
                key = f"{event.key}:done"
                done = await done_if_all_is_committed(self.flow, self.plugins, session, "spool", key, event.body.text)
                if done is not None:
                    await self._told([done])

    async def _told(self, events: Sequence[Event]) -> bool:
        try:
            await self.flow.append(*events)
        except AoError as error:
            log.warning("what was seen could not be recorded; it is read again", error=str(error))
            return False
        return True

    def _events(self, session: str, eye: _Eye, *, final: bool) -> list[Event]:
        facts = self.flow.sessions[session]
        lines = eye.reader.read(final=final)
        ends = [*[offset for offset, _ in lines[1:]], eye.reader.offset][: len(lines)]
        events = []
        for (start, line), end in zip(lines, ends, strict=True):
            report, now = spool.parse(line), self.flow.clock()
            key = spool_key(session, eye.generation, start, end)
            body = body_of(report, facts, key, self.prices)
            if body is not None:
                when = happened(report, facts, now)
                events.append(Event(body, when, "spool", key, facts.project, session, eye.generation))
        for problem in eye.reader.take_problems():
            log.warning("the spool is not as it should be", session=session, problem=problem)
        return events

    # -- process -------------------------------------------------------------------------------------------------------

    async def _await_end(self, facts: SessionFacts, handle: Handle) -> None:
        while True:
            try:
                gone = await self.plugins.runtime_of(facts).ended(handle)
                break
            except Exception as error:  # the runtime may be anybody's, and an end that is not watched for is never told
                log.warning("the end of an agent cannot be watched; trying again", session=facts.id, error=str(error))
                await asyncio.sleep(RETRY_PAUSE)
        lost = "its terminal is gone" if gone.lost else ""
        if gone.exit.reason == "lease":
            lost = f"node {facts.node} was cut off for longer than the agent's lease"
        self._spawn(self.tell_end(facts.id, handle, gone.exit, lost=lost))

    async def tell_end(self, session: str, handle: Handle, end: Exit, *, lost: str = "") -> None:
        """Record a launch's end, after everything that it still reported, however often that is in vain at first."""
        while True:
            try:
                return await self._tell_end(session, handle, end, lost)
            except (AoError, OSError) as error:
                log.warning("the end of an agent cannot be told; trying again", session=session, error=str(error))
                await asyncio.sleep(RETRY_PAUSE)

    async def _tell_end(self, session: str, handle: Handle, end: Exit, lost: str) -> None:
        eye = self._eyes.get(session)
        facts = self.flow.sessions[session]
        if eye is None or eye.generation != handle.generation:
            path = self.home.spool(session, handle.generation)
            eye = _Eye(handle.generation, spool.SpoolReader(path, facts.spool), ScreenRules())
        if eye.hearing:
            await eye.hearing.finish()
        await self._read_to_the_end(session, eye)
        await self.look_at_head(session)
        facts = self.flow.sessions[session]
        body: e.Body
        if lost:
            body = e.AgentLost(lost)
        elif facts.wanted == "stop" or facts.moving:
            body = e.AgentStopped(end.code, end.signal)
        else:
            body = e.AgentExited(end.code, end.signal, last_lines(self.home.terminal_log(session)), end.reason)
        key = ended_key(session, handle.generation)
        event = Event(body, self.flow.clock(), "process", key, facts.project, session, handle.generation)
        while True:
            left = forget_ended(self.home.session(session))  # before it is told: then the next launch may begin
            if await self._told([event]):
                break
            await asyncio.sleep(RETRY_PAUSE)  # the disk is full, and there is nothing to wait on
        remove_surely(left)

    # -- branch --------------------------------------------------------------------------------------------------------

    async def _look_at_branch(self, session: str, eye: _Eye) -> None:
        """A move is told at once; one that comes soon after another waits, each twice as long as the one before, up to a second."""
        if eye.branch_busy:
            eye.branch_changed = True
            return
        loop, before, rest = asyncio.get_running_loop(), self._heads.get(session), 0.0
        eye.branch_busy, eye.branch_changed, began = True, False, loop.time()
        try:
            await self.look_at_head(session)
        finally:
            if self._heads.get(session) != before:
                twice = 2 * eye.branch_pause if began - eye.branch_moved < BRANCH_QUIET else 0.0
                rest = min(LONGEST_REST, max(SPOOL_REST * (loop.time() - began), twice))
                eye.branch_moved, eye.branch_pause = began, rest
            if not self._closed and self._eyes.get(session) is eye:
                eye.branch_rest = loop.call_later(rest, self._branch_rested, session, eye)

    def _branch_rested(self, session: str, eye: _Eye) -> None:
        eye.branch_busy = False
        if eye.branch_changed:
            self._spawn(self._look_at_branch(session, eye))

    async def look_at_head(self, session: str) -> None:
        """Record where its branch is, if it has moved."""
        facts = self.flow.sessions[session]
        if facts.place is None:
            return
        try:
            head = read_head(Path(facts.place.git_dir))
        except AoError as error:
            log.warning("a branch could not be looked at; trying again", session=session, error=str(error))
            loop = asyncio.get_running_loop()
            loop.call_later(RETRY_PAUSE, lambda: self._spawn(self.look_at_head(session)))
            return
        if head and head != self._heads.get(session, facts.head):
            self._heads[session] = head
            now = self.flow.clock()
            await self._told(
                [Event(e.HeadMoved(head), now, "git", f"head:{session}:{head}:{now:.6f}", facts.project, session)]
            )

    # -- screen --------------------------------------------------------------------------------------------------------

    def _screen_changed(self, session: str, eye: _Eye) -> None:
        if self.flow.sessions[session].spoke:
            return
        if eye.looking:
            eye.changed = True
        elif eye.screen_timer is None:
            loop = asyncio.get_running_loop()
            eye.screen_timer = loop.call_later(
                eye.screen_pause, lambda: self._spawn(self._look_at_screen(session, eye))
            )

    async def _look_at_screen(self, session: str, eye: _Eye) -> None:
        """One look at a time, however quickly it changes: to read it takes long where much was printed."""
        loop = asyncio.get_running_loop()
        eye.screen_timer, eye.looking, eye.changed, began = None, True, False, loop.time()
        try:
            await self._read_screen(session, eye)
        finally:
            eye.looking, eye.screen_pause = False, max(SCREEN_PAUSE, SCREEN_REST * (loop.time() - began))
        if eye.changed and self._eyes.get(session) is eye:
            self._screen_changed(session, eye)

    async def _read_screen(self, session: str, eye: _Eye) -> None:
        facts = self.flow.sessions[session]
        handle = handle_of(facts)
        if handle is None or not facts.live or facts.spoke or eye.generation != facts.generation:
            return
        try:
            text = await self.plugins.runtime_of(facts).screen(handle)
        except AoError as error:
            log.debug("a screen could not be read", session=session, error=str(error))
            return
        state, detail = screen_state(text, eye.rules)
        facts = self.flow.sessions[session]
        if not state and facts.activity.state == "blocked" and not (eye.rules.ready or eye.rules.busy):
            state = "active"  # its question is gone, and nothing else would say so
        if state and (state, detail) != (facts.activity.state, facts.activity.detail):
            now = self.flow.clock()
            key = f"screen:{session}:{eye.generation}:{now:.6f}"
            activity = e.AgentActivity(state, detail)
            await self._told([Event(activity, now, "screen", key, facts.project, session, eye.generation)])
            if state == "idle" and facts.activity.state == "active":
                loop = asyncio.get_running_loop()
                loop.call_later(SETTLED, lambda: self._spawn(self._done_by_screen(session, eye, now)))

    async def _done_by_screen(self, session: str, eye: _Eye, since: float) -> None:
        """A turn is over for good, as far as the screen tells."""
        facts = self.flow.sessions[session]
        if not facts.live or facts.spoke or (facts.activity.state, facts.activity.at) != ("idle", since):
            return
        await self.look_at_head(session)
        key = f"screen:{session}:{eye.generation}:{since:.6f}:done"
        done = await done_if_all_is_committed(self.flow, self.plugins, session, "screen", key, "")
        if done is not None:
            await self._told([done])


def screen_state(text: str, rules: ScreenRules) -> tuple[str, str]:
    """What visible text says about the agent; nothing where no rule speaks."""
    for pattern, state in ((rules.blocked, "blocked"), (rules.busy, "active"), (rules.ready, "idle")):
        if pattern and (found := pattern.search(text)):
            line = text[text.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()
            return state, line if state == "blocked" else ""
    return "", ""
