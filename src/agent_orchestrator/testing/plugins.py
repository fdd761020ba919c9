"""A plugin for each slot that keeps all in memory, for tests of whatever uses the slot; each says what was asked of it.

`MemoryAgent`, `MemoryTracker`, `MemorySCM` and `MemoryNotifier` keep their slots' contracts. `MemoryRuntime`, `MemoryWorkspace` and
`MemoryTerminal` start no process and run no Git: they do what the daemon asks for as far as that can be done without.
"""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_orchestrator.cli.scaffold.slots import scm, tracker
from agent_orchestrator.errors import AoError, Conflict
from agent_orchestrator.protocols import (
    Agent,
    AgentContext,
    AgentLaunch,
    Alive,
    Delivered,
    Delivery,
    Exit,
    Gone,
    Handle,
    InstalledAgent,
    LaunchSpec,
    Liveness,
    Notification,
    Notifier,
    NotReady,
    Report,
    Runtime,
    ScreenRules,
    Terminal,
    Undeliverable,
    Window,
    Workspace,
    WorkspaceInfo,
    WorkspaceSpec,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import clean_text, one_line

BOOT = "memory"
NOTHING = "0" * 40
"""A commit that there is not."""


class MemoryAgent(Agent):
    """An agent whose program does nothing and ends; `asked` are the sessions that it was to start in."""

    name = "memory"
    screen = ScreenRules()
    interrupt_keys: tuple[str, ...] = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.asked: list[AgentContext] = []

    async def detect(self) -> InstalledAgent | None:
        """Python is always here."""
        return InstalledAgent(sys.executable)

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """A program that ends at once."""
        self.asked.append(context)
        return AgentLaunch((sys.executable, "-c", "pass"), conversation=context.session)


@dataclass(slots=True)
class Launched:
    """A process that is only told of."""

    spec: LaunchSpec
    handle: Handle
    shown: str = ""
    """What its terminal shows: for a test to say."""
    held: str = ""
    """Why nothing can be typed just now: for a test to say."""
    typed: dict[str, str] = field(default_factory=dict)
    """Message id → text."""
    pressed: list[str] = field(default_factory=list)
    size: tuple[int, int] = (0, 0)
    last_pressed: str = ""
    gone: Gone | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryRuntime(Runtime):
    """Terminals without processes; `launched` has them by session, the newest launch of each."""

    name = "memory"

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.launched: dict[str, Launched] = {}
        self._all: dict[tuple[str, int], Launched] = {}

    def end(self, session: str, how: Exit | None = None) -> None:
        """Have a session's process end."""
        one = self.launched[session]
        one.gone = one.gone or Gone(how or Exit(0))
        one.over.set()

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Remember it, or find the one of this session and generation."""
        key = (spec.session, spec.generation)
        if key not in self._all:
            pid = 100_000 + len(self._all)
            handle = Handle(self.name, spec.session, spec.generation, pid, str(pid), BOOT, {})
            self._all[key] = Launched(spec, handle, size=(spec.columns, spec.rows))
            self.launched[spec.session] = self._all[key]
        return self._all[key].handle

    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """How each is."""
        return [Gone(lost=True) if (one := self._of(each)) is None else one.gone or Alive() for each in handles]

    async def ended(self, handle: Handle) -> Gone:
        """Return when a test has ended it."""
        one = self._of(handle)
        if one is None:
            return Gone(lost=True)
        await one.over.wait()
        assert one.gone is not None
        return one.gone

    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Write it down, once for each message id."""
        one = self._of(handle)
        if one is not None and message in one.typed:
            return Delivered()
        if one is None or one.gone:
            return Undeliverable("its terminal is gone")
        if one.held:
            return NotReady(one.held)
        one.typed[message] = text + ("\r" if enter else "")
        return Delivered()

    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Write them down."""
        one = self._alive(handle)
        if once and one.last_pressed == once:
            return
        one.last_pressed = once
        one.pressed += keys

    async def screen(self, handle: Handle) -> str:
        """What a test says that it shows."""
        one = self._of(handle)
        return one.shown if one else ""

    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Write it down."""
        self._alive(handle).size = (columns, rows)

    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """A command that shows what it shows now."""
        one = self._of(handle)
        return (sys.executable, "-c", f"print({one.shown if one else ''!r}, end='')", *(["--watch"] if watch else []))

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End it."""
        del grace
        one = self._of(handle)
        if one is None:
            return Gone(lost=True)
        one.gone = one.gone or Gone(Exit(signal=15))
        one.over.set()
        return one.gone

    async def discard(self, handle: Handle) -> None:
        """Forget it."""
        self._all.pop((handle.session, handle.generation), None)

    async def orphaned_terminals(self, known: Sequence[Handle]) -> list[Handle]:
        """Those that nobody names."""
        return [one.handle for one in self._all.values() if one.handle not in known]

    def _of(self, handle: Handle) -> Launched | None:
        return self._all.get((handle.session, handle.generation)) if handle.boot_id == BOOT else None

    def _alive(self, handle: Handle) -> Launched:
        one = self._of(handle)
        if one is None or one.gone:
            raise Conflict(f"the terminal of {handle.session} is gone", "restore the session")
        return one


class MemoryWorkspace(Workspace):
    """Plain folders without Git; `made` has what they were made for, by session."""

    name = "memory"

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.made: dict[str, WorkspaceSpec] = {}
        self.published: list[str] = []

    async def create(self, spec: WorkspaceSpec, report: Report) -> WorkspaceInfo:
        """Make the folder."""
        spec.path.mkdir(parents=True, exist_ok=True)
        if spec.session not in self.made:
            report(f"made {spec.path}")
        self.made[spec.session] = spec
        return _folder(spec)

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Write it down."""
        self.published.append(spec.session)

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove the folder, if a test left it empty."""
        self.made.pop(spec.session, None)
        if spec.path.is_dir():
            spec.path.rmdir()

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """A finished one stays."""
        return _folder(spec) if spec.session in self.made else None


def _folder(spec: WorkspaceSpec) -> WorkspaceInfo:
    return WorkspaceInfo(spec.path, spec.branch, spec.base, NOTHING, NOTHING, Path(spec.path, ".git"))


class MemoryTracker(tracker.TheClass):
    """Issues in a list."""

    name = "memory"

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del config, host
        self._issues: tracker.Issues = []
        self._file = Path("memory")

    def _load(self) -> tracker.Issues:
        return copy.deepcopy(self._issues)

    def _save(self, issues: tracker.Issues) -> None:
        self._issues = copy.deepcopy(issues)


class MemorySCM(scm.TheClass):
    """Pull requests in a list; their commits are in the bare Git repository `repository`."""

    name = "memory"

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        super().__init__(config, host)
        self._pulls: list[dict[str, Any]] = []

    def _load(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self._pulls)

    def _save(self, pulls: Sequence[Mapping[str, Any]]) -> None:
        self._pulls = [copy.deepcopy(dict(one)) for one in pulls]


class MemoryNotifier(Notifier):
    """Tells nobody; `sent` are the notifications, and `failing` is raised instead while there is one."""

    name = "memory"
    keyed = False

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.sent: list[Notification] = []
        self.failing: AoError | None = None

    async def notify(self, notification: Notification) -> None:
        """Write it down, as text that anybody may show."""
        if self.failing is not None:
            raise self.failing
        plain = replace(
            notification, title=one_line(notification.title), message=clean_text(notification.message).strip()
        )
        self.sent.append(plain)


class MemoryTerminal(Terminal):
    """Opens nothing; `opened` are the windows that were asked for."""

    name = "memory"

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.opened: list[Window] = []

    async def open(self, window: Window) -> None:
        """Write it down."""
        self.opened.append(window)
