"""A plugin per slot that keeps everything in memory, for tests of code that uses the slot; each records its calls.

`MemoryAgent`, `MemoryTracker`, `MemorySCM` and `MemoryNotifier` pass the contract suites of their slots. `MemoryRuntime`,
`MemoryWorkspace` and `MemoryTerminal` start no process and run no Git, so they do only what is possible without.
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
    LineCallback,
    Liveness,
    Notification,
    Notifier,
    NotReady,
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

BOOT_ID = "memory"
NO_COMMIT = "0" * 40
"""A commit id that does not exist."""


class MemoryAgent(Agent):
    """An agent whose program does nothing and ends; `contexts` are the sessions that it was launched for."""

    name = "memory"
    screen = ScreenRules()
    interrupt_keys: tuple[str, ...] = ("C-c",)
    permission_keys: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.contexts: list[AgentContext] = []

    async def detect(self) -> InstalledAgent | None:
        """Return Python, which is always installed."""
        return InstalledAgent(sys.executable)

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return the launch of a program that ends at once."""
        self.contexts.append(context)
        return AgentLaunch((sys.executable, "-c", "pass"), conversation=context.session)


@dataclass(slots=True)
class Launched:
    """A launched process, which does not really exist."""

    spec: LaunchSpec
    handle: Handle
    screen_text: str = ""
    """What its terminal shows; tests set it."""
    held: str = ""
    """Why nothing can be typed now, or ""; tests set it."""
    typed: dict[str, str] = field(default_factory=dict)
    """Message id → text."""
    pressed: list[str] = field(default_factory=list)
    size: tuple[int, int] = (0, 0)
    last_pressed: str = ""
    gone: Gone | None = None
    ended_event: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryRuntime(Runtime):
    """Terminals without processes; `launched` is the newest launch of each session."""

    name = "memory"

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.launched: dict[str, Launched] = {}
        self._all: dict[tuple[str, int], Launched] = {}

    def end(self, session: str, how: Exit | None = None) -> None:
        """End a session's process."""
        launched = self.launched[session]
        launched.gone = launched.gone or Gone(how or Exit(0))
        launched.ended_event.set()

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Record a launch and return its handle; the same one for the same session and generation."""
        key = (spec.session, spec.generation)
        if key not in self._all:
            pid = 100_000 + len(self._all)
            handle = Handle(self.name, spec.session, spec.generation, pid, str(pid), BOOT_ID, {})
            self._all[key] = Launched(spec, handle, size=(spec.columns, spec.rows))
            self.launched[spec.session] = self._all[key]
        return self._all[key].handle

    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """Return the state of each, in order."""
        return [
            Gone(lost=True) if (launched := self._find_launched(handle)) is None else launched.gone or Alive()
            for handle in handles
        ]

    async def ended(self, handle: Handle) -> Gone:
        """Wait until the process is ended, and return how it ended."""
        launched = self._find_launched(handle)
        if launched is None:
            return Gone(lost=True)
        await launched.ended_event.wait()
        assert launched.gone is not None
        return launched.gone

    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Record the message, once per message id."""
        launched = self._find_launched(handle)
        if launched is not None and message in launched.typed:
            return Delivered()
        if launched is None or launched.gone:
            return Undeliverable("its terminal is gone")
        if launched.held:
            return NotReady(launched.held)
        launched.typed[message] = text + ("\r" if enter else "")
        return Delivered()

    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Record the keys."""
        launched = self._require_alive(handle)
        if once and launched.last_pressed == once:
            return
        launched.last_pressed = once
        launched.pressed += keys

    async def screen(self, handle: Handle) -> str:
        """Return the `screen_text` that a test has set."""
        launched = self._find_launched(handle)
        return launched.screen_text if launched else ""

    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Record the size."""
        self._require_alive(handle).size = (columns, rows)

    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """Return a command that prints the current screen."""
        launched = self._find_launched(handle)
        return (
            sys.executable,
            "-c",
            f"print({launched.screen_text if launched else ''!r}, end='')",
            *(["--watch"] if watch else []),
        )

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the process and return how it ended."""
        del grace
        launched = self._find_launched(handle)
        if launched is None:
            return Gone(lost=True)
        launched.gone = launched.gone or Gone(Exit(signal=15))
        launched.ended_event.set()
        return launched.gone

    async def discard(self, handle: Handle) -> None:
        """Forget the launch."""
        self._all.pop((handle.session, handle.generation), None)

    async def orphaned_terminals(self, known_handles: Sequence[Handle]) -> list[Handle]:
        """Return the launches that no known handle names."""
        return [launched.handle for launched in self._all.values() if launched.handle not in known_handles]

    def _find_launched(self, handle: Handle) -> Launched | None:
        return self._all.get((handle.session, handle.generation)) if handle.boot_id == BOOT_ID else None

    def _require_alive(self, handle: Handle) -> Launched:
        launched = self._find_launched(handle)
        if launched is None or launched.gone:
            raise Conflict(f"the terminal of {handle.session} is gone", "restore the session")
        return launched


class MemoryWorkspace(Workspace):
    """Plain folders without Git; `specs` has the specification of each, by session."""

    name = "memory"

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.specs: dict[str, WorkspaceSpec] = {}
        self.published: list[str] = []

    async def create(self, spec: WorkspaceSpec, report: LineCallback) -> WorkspaceInfo:
        """Create the folder."""
        spec.path.mkdir(parents=True, exist_ok=True)
        if spec.session not in self.specs:
            report(f"made {spec.path}")
        self.specs[spec.session] = spec
        return _folder(spec)

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Record the session."""
        self.published.append(spec.session)

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove the folder, which must be empty."""
        self.specs.pop(spec.session, None)
        if spec.path.is_dir():
            spec.path.rmdir()

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Return the workspace, which stays if it was created completely."""
        return _folder(spec) if spec.session in self.specs else None


def _folder(spec: WorkspaceSpec) -> WorkspaceInfo:
    return WorkspaceInfo(spec.path, spec.branch, spec.base, NO_COMMIT, NO_COMMIT, Path(spec.path, ".git"))


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
        self._pulls = [copy.deepcopy(dict(pull)) for pull in pulls]


class MemoryNotifier(Notifier):
    """Records notifications in `sent`; raises `failing` instead while it is set."""

    name = "memory"
    keyed = False

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.sent: list[Notification] = []
        self.failing: AoError | None = None

    async def notify(self, notification: Notification) -> None:
        """Record the notification with its text cleaned for display."""
        if self.failing is not None:
            raise self.failing
        plain = replace(
            notification, title=one_line(notification.title), message=clean_text(notification.message).strip()
        )
        self.sent.append(plain)


class MemoryTerminal(Terminal):
    """Opens nothing; records the requested windows in `opened`."""

    name = "memory"

    def __init__(self, config: Mapping[str, Any] | None = None, host: Host | None = None) -> None:
        del host
        self.config = config or {}
        self.opened: list[Window] = []

    async def open(self, window: Window) -> None:
        """Record the window."""
        self.opened.append(window)
