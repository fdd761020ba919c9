"""A simulated environment for the engine: a manual clock, terminals that outlive crashes, effects that fail on demand."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, EffectRunner, RetryLater
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.testing.memory_store import MemoryStore

SESSION = "app-x"
LIFECYCLE = ("prepare", "launch", "deliver", "stop", "clean-up")


def created(session: str = SESSION, at: float = 1000.0, **more: object) -> Event:
    """Return the event that creates a session."""
    spec: dict[str, object] = {
        "task": "T1",
        "name": session.removeprefix("app-"),
        "title": "do it",
        "prompt": "do it",
        "agent": "demo",
        "runtime": "process",
        "workspace": "worktree",
        "branch": f"feature/{session}",
        "base": "main",
        "repo": "/r",
        "path": "/w",
        **more,
    }
    return Event(e.SessionCreated(**spec), at, "person", f"created:{session}", "app", session)  # type: ignore[arg-type]


@dataclass
class ManualTimer:
    at: float
    call: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class ManualClock:
    """A clock and its timers."""

    now: float = 1000.0
    timers: list[ManualTimer] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(self.now + delay, call)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Advance the time and call the timers that become due."""
        end = self.now + seconds
        while due := sorted(
            (timer for timer in self.timers if not timer.cancelled and timer.at <= end), key=lambda timer: timer.at
        ):
            self.timers = [timer for timer in self.timers if timer is not due[0] and not timer.cancelled]
            self.now = max(self.now, due[0].at)
            due[0].call()
        self.now = end


@dataclass
class SimulatedTerminal:
    """A launched process: whether it runs, and how it ended."""

    alive: bool = True
    end: e.Body | None = None


@dataclass
class EngineWorld:
    """Everything outside of the daemon, which survives its death."""

    time: ManualClock = field(default_factory=ManualClock)
    paste: bool = False
    store: MemoryStore = field(default_factory=MemoryStore)
    terminals: dict[tuple[str, int], SimulatedTerminal] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    accepted: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    keys: int = 0
    deferred_deliveries: int = 0
    flow: Flow = field(init=False)
    runner: EffectRunner = field(init=False)

    # -- the daemon ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start a daemon on the store of the previous one."""
        self.time.timers.clear()
        self.store = self.store.clone()
        self.flow = Flow(self.store, self.time, lambda _project, _profile: DEFAULT_RULES)
        self.runner = self.make_runner()
        self.runner.start(await self.flow.start())

    def make_runner(self) -> EffectRunner:
        """Return what runs this world's effects."""
        return EffectRunner(self.flow, self.effects())

    async def end(self) -> None:
        """Kill the daemon; the store keeps what was committed."""
        self.store.crash()
        await self.runner.drain(0.0)
        await self.flow.stop()

    async def steps(self, count: int) -> None:
        """Run the daemon for some steps of the loop; restart it if it died."""
        for _ in range(count):
            if self.store.is_dead:
                await self.end()
                await self.start()
            await self.observe()
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Advance the time until nothing is pending; a person answers what the agent asks meanwhile."""
        for _ in range(400):
            await self.steps(30)
            facts = self.flow.sessions.get(SESSION)
            if facts and facts.live and facts.activity.state == "blocked":
                active = self.event(e.AgentActivity("active"), generation=facts.generation, source="spool")
                await self.append_or_skip(active)
                continue
            if not self.runner._busy and not self.flow._queued_appends:
                rows = await self.store.pending()
                waiting = [row.due for row in rows if row.lane == row.intent.session]
                if not waiting:
                    return
                self.time.advance(70.0)
        raise AssertionError(f"never at rest: {await self.store.pending()}")

    # -- events of observers -------------------------------------------------------------------------------------------

    def event(self, body: e.Body, key: str = "", generation: int = 0, source: str = "test") -> Event:
        self.keys += 1
        return Event(body, self.time.now, source, key or f"k{self.keys}", "app", SESSION, generation)

    async def append_or_skip(self, *events: Event) -> list[Event] | None:
        """Append events as an observer does, and ignore errors: observers repeat what was not recorded."""
        try:
            return await self.flow.append(*events)
        except AoError:
            return None

    async def observe(self) -> None:
        """Admit a waiting session; append the end of an agent that ended."""
        facts = self.flow.sessions.get(SESSION)
        if facts is None or self.store.is_dead:
            return
        if not facts.admitted and facts.requested_state == "run" and not facts.stopped:
            await self.append_or_skip(
                self.event(e.SessionAdmitted(), f"admitted:{facts.id}:{facts.run}", source="scheduler")
            )
        terminal = self.terminals.get((facts.id, facts.generation))
        if facts.live and terminal and terminal.end:
            await self.append_or_skip(
                self.event(terminal.end, f"ended:{facts.id}:{facts.generation}", facts.generation)
            )

    async def send(self) -> None:
        """Queue a person's message; it is accepted once it is recorded."""
        facts = self.flow.sessions[SESSION]
        if facts.stopped or facts.requested_state == "stop" or (facts.failure and not facts.live):
            return
        self.keys += 1
        name = f"m{self.keys}"
        if await self.append_or_skip(self.event(e.MessageQueued(name, name), f"message:{name}")):
            self.accepted.add(name)

    async def restore(self) -> None:
        """Request a restore where the service would allow it."""
        facts = self.flow.sessions[SESSION]
        starting = not facts.stopped and facts.failure is None and facts.launched_run != facts.run
        if not (facts.live or starting or (facts.requested_state == "stop" and not facts.stopped)):
            await self.append_or_skip(self.event(e.RestoreRequested()))

    def kill_agent(self, end: e.Body) -> None:
        facts = self.flow.sessions.get(SESSION)
        terminal = self.terminals.get((SESSION, facts.generation)) if facts else None
        if terminal and terminal.alive:
            terminal.alive, terminal.end = False, end

    # -- effects -------------------------------------------------------------------------------------------------------

    def effects(self) -> dict[str, Effect]:
        return {
            "prepare": Effect(self.prepare, fatal_step="preparing"),
            "launch": Effect(self.launch, fatal_step="launching"),
            "deliver": Effect(self.deliver, record_attempt_first=True, finish_if_started=True),
            "stop": Effect(self.stop, fatal_step="stopping"),
            "clean-up": Effect(self.clean_up, fatal_step="cleaning up"),
        }

    async def _fault(self, kind: str, *, after: bool = False) -> None:
        await asyncio.sleep(0)
        name = self.faults[kind][0] if self.faults[kind] else ""
        if not name or (name == "after") != after:
            return
        self.faults[kind].pop(0)
        match name:
            case "again":
                raise RetryLater(1.0)
            case "held":
                raise RetryLater(1.0, self.event(e.AgentReport("held")))
            case "fatal":
                raise AoError(f"{kind} cannot be done")
            case "strange":
                raise RuntimeError(f"{kind} went wrong")
        raise Temporary(f"{kind} failed {name}")

    def _facts(self, intent: Intent) -> SessionFacts:
        return self.flow.sessions[intent.session]

    async def prepare(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        await self._fault("prepare")
        body = e.WorkspaceCreated("/w", f"feature/{SESSION}", "main", "c0", "c0", "/g")
        await self._fault("prepare", after=True)
        return [self.event(body, f"{intent.key}:done")]

    async def launch(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        facts = self._facts(intent)
        message = facts.next_message if facts.launch or not facts.spec.prompt else None
        await self._fault("launch")
        if others := [
            key for key, terminal in self.terminals.items() if terminal.alive and key != (SESSION, intent.generation)
        ]:
            self.problems.append(f"launched {intent.generation} beside {others}")
        if (SESSION, intent.generation) not in self.terminals:
            self.terminals[SESSION, intent.generation] = SimulatedTerminal()
            if message and not self.paste:
                self.written[message.id] += 1
        await self._fault("launch", after=True)
        events = [self.event(e.AgentLaunched({"pid": 1}), f"{intent.key}:done", intent.generation)]
        if message and not self.paste:
            events.append(self.event(e.MessageDelivered(message.id), f"delivered:{message.id}", intent.generation))
        elif self.paste and not message:
            name = f"task-{intent.generation}"
            queued = e.MessageQueued(name, "do it", "daemon", task=True)
            events.append(self.event(queued, f"{intent.key}:prompt", intent.generation))
        return events

    async def deliver(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        facts = self._facts(intent)
        message = next((queued for queued in facts.messages if queued.id == intent.args["message"]), None)
        if message is None or not message.pending:
            return []
        if facts.live and facts.generation == intent.generation and facts.activity.state == "blocked":
            self.deferred_deliveries += 1
            raise RetryLater(60.0)
        if facts.generation != intent.generation:
            return [self.event(e.MessageFailed(message.id, "its terminal is gone"), f"undelivered:{message.id}")]
        await self._fault("deliver")
        terminal = self.terminals[SESSION, intent.generation]
        wrote = self.written[message.id]
        if terminal.alive and not wrote:
            self.written[message.id] += 1
            await self._fault("deliver", after=True)
        elif not wrote:
            return []
        return [self.event(e.MessageDelivered(message.id), f"delivered:{message.id}", intent.generation)]

    async def stop(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        await self._fault("stop")
        self.terminals[SESSION, intent.generation].alive = False
        await self._fault("stop", after=True)
        return [self.event(e.AgentStopped(0), f"ended:{SESSION}:{intent.generation}", intent.generation)]

    async def clean_up(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        await self._fault("clean-up")
        for key in [key for key, terminal in self.terminals.items() if terminal.alive]:
            del self.terminals[key]  # started, but the daemon died before it recorded that
        await self._fault("clean-up", after=True)
        return [self.event(e.SessionStopped(), f"{intent.key}:done")]
