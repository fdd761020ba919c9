"""Prevent idle sleep of the machine while agents are in a turn (`power.preventIdleSleep`), and allow it when they are idle.

This uses wakepy, which supports macOS's `caffeinate`, Windows and Linux desktops; on Linux without a desktop it uses systemd's inhibitor.
Closing the lid, or a person's command to sleep, still works.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.finding import finding
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.signals import ConfigurationReloaded
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.errors import AoError, Missing, resource_shortage
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.part import Core, Part

log = structlog.get_logger()

REST_SECONDS = 30.0
"""Seconds without a turn after which the machine may sleep: often the next turn follows at once."""
RETRY_SECONDS = 600.0
"""Seconds after which a failed attempt is repeated: an attempt starts programs, and it fails again on most machines."""
_REMEDY = "set power.preventIdleSleep to false, or keep it awake by other means"
_INHIBIT_COMMAND = (
    "systemd-inhibit",
    "--what=idle",
    "--mode=block",
    "--who=Agent Orchestrator",
    "--why=agents are at work",
)

HoldAwake = Callable[[], contextlib.AbstractAsyncContextManager[str]]
"""Keeps the machine awake within the block, and yields the name of what does so. Raises `Missing` if nothing can."""


class SleepPrevention(Part):
    """Keeps the machine awake while agents work."""

    def __init__(self, core: Core, hold: HoldAwake, rest: float = REST_SECONDS) -> None:
        super().__init__(core)
        self._hold = hold
        self._rest = rest
        self._change_event = asyncio.Event()
        self.holder = ""
        """The name of what keeps the machine awake; "" if it may sleep."""
        self.problem: AoError | None = None
        """Why it cannot be kept awake."""
        self._retry_at = 0.0
        self.on_signal(ConfigurationReloaded, self._check_again)

    def start(self) -> None:
        """Start watching the agents."""
        self.on(self._check_changed)
        self._change_event.set()
        self.spawn(self._watch())

    def _check_again(self, _signal: ConfigurationReloaded) -> None:
        """Check again, because the configuration may have changed."""
        self._retry_at = 0.0
        self._change_event.set()

    async def checkup(self) -> list[dict[str, Any]]:
        """Return the finding for `ao doctor`."""
        if not self.core.config.daemon.power.prevent_idle_sleep:
            return [finding("power", "ok", "may sleep: power.preventIdleSleep is false")]
        if self.problem:
            text = f"idle sleep is not held off: {self.problem.text}"
            return [finding("power", "warning", text, self.problem.remedy)]
        status_text = f"kept awake by {self.holder}" if self.holder else "may sleep: no agent is in a turn"
        return [finding("power", "ok", status_text)]

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        """Wake the watching task if a turn began or ended."""
        if any(_changes_turn(change) for change in changes):
            self._change_event.set()

    def _is_needed(self) -> bool:
        """Return whether idle sleep is to be prevented: the setting is on, and an agent on this machine is in a turn."""
        return self.core.config.daemon.power.prevent_idle_sleep and any(
            facts.live and facts.activity.state in IN_TURN_ACTIVITIES and not self.flow.owner_home(facts.id)
            for facts in self.flow.sessions.values()
        )

    async def _watch(self) -> None:
        """Keep the machine awake whenever that is needed."""
        while True:
            await self._change_event.wait()
            self._change_event.clear()
            if self._is_needed() and self.clock() >= self._retry_at:
                await self._keep_awake()

    async def _keep_awake(self) -> None:
        """Keep the machine awake until no agent has been in a turn for a while; after a failure, note when to retry."""
        try:
            async with self._hold() as holder:
                self.holder, self.problem = holder, None
                while self._is_needed() or not await self._has_rested():
                    await self._change_event.wait()
                    self._change_event.clear()
        except (AoError, OSError) as error:
            problem = error if isinstance(error, AoError) else resource_shortage(error) or Missing(str(error), _REMEDY)
            if self.problem is None or self.problem.text != problem.text:
                log.warning("the machine is not kept awake while agents work", error=str(problem))
            self.problem, self._retry_at = problem, self.clock() + RETRY_SECONDS
        finally:
            self.holder = ""

    async def _has_rested(self) -> bool:
        """Return whether nothing changed for `REST_SECONDS`, or the setting is off. A change stays set, so that the caller sees it."""
        if not self.core.config.daemon.power.prevent_idle_sleep:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rest):
                await self._change_event.wait()
                return False
        return True


def _changes_turn(change: FactsChange) -> bool:
    """Return whether an agent's turn begins or ends with a change."""
    before, after = (
        bool(facts and facts.live and facts.activity.state in IN_TURN_ACTIVITIES)
        for facts in (change.before, change.after)
    )
    return before != after


class SleepInhibitor:
    """Keeps this machine awake, by the first way that works."""

    def __init__(self, host: Host, platform: str = sys.platform, bus: str | None = None) -> None:
        """`bus`: the address of a desktop's message bus; "" if there is none, None to find it."""
        self._host = host
        self._platform = platform
        self._bus = _session_bus() if bus is None else bus

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[str]:
        """Keep the machine awake by the first method that works; raise `Missing` if none does."""
        errors = []
        for method in (self._by_wakepy, self._by_systemd):
            async with contextlib.AsyncExitStack() as stack:
                try:
                    holder = await stack.enter_async_context(method())
                except Missing as error:
                    errors.append(error.text)
                    continue
                yield holder
                return
        raise Missing("; ".join(errors), _REMEDY)

    @contextlib.asynccontextmanager
    async def _by_wakepy(self) -> AsyncIterator[str]:
        """Keep the machine awake by wakepy."""
        if self._platform == "linux" and not self._bus:
            raise Missing("there is no desktop")
        loop = asyncio.get_running_loop()
        # wakepy must be left in the thread that entered it.
        executor = ThreadPoolExecutor(1, "power")
        try:
            mode, holder = await loop.run_in_executor(executor, _start_wakepy)
            try:
                yield holder
            finally:
                await asyncio.shield(loop.run_in_executor(executor, _stop_wakepy, mode))
        finally:
            executor.shutdown(wait=False)  # do not wait for a message bus that does not answer

    @contextlib.asynccontextmanager
    async def _by_systemd(self) -> AsyncIterator[str]:
        """Keep the machine awake by systemd's inhibitor. Its program ends with its input, so it ends with the daemon in any case."""
        if self._platform != "linux" or not self._host.which(_INHIBIT_COMMAND[0]):
            raise Missing("there is no systemd-inhibit")
        argv = [*_INHIBIT_COMMAND, "sh", "-c", "echo held; exec cat"]
        async with self._host.pipe(argv, log=Path(os.devnull)) as process:
            assert process.stdout is not None
            answer = b""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    answer = await process.stdout.readline()
            if answer.strip() != b"held":
                raise Missing("systemd-inhibit was refused")
            yield _INHIBIT_COMMAND[0]


def _start_wakepy() -> tuple[Any, str]:
    """Enter wakepy's mode, and return it with its name. Raises `Missing` if that fails."""
    try:
        from wakepy import keep
    except ImportError:
        raise Missing("wakepy is not installed") from None
    mode = keep.running(on_fail="pass")
    try:
        mode.__enter__()
    except Exception as error:  # a desktop's message bus may raise any error
        raise Missing(f"wakepy failed ({_shorten(str(error) or type(error).__name__)})") from error
    if not mode.active:
        _stop_wakepy(mode)
        raise Missing(f"wakepy found no way ({_shorten(mode.result.get_failure_text(style='inline'))})")
    return mode, f"wakepy ({mode.method.name})" if mode.method else "wakepy"


def _stop_wakepy(mode: Any) -> None:
    """Leave wakepy's mode."""
    mode.__exit__(None, None, None)


def _shorten(text: str) -> str:
    """Return a text on one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= 160 else f"{line[:159]}…"


def _session_bus() -> str:
    """Return the address of the desktop's message bus, or "" if there is none."""
    configured_address = os.environ.get("DBUS_SESSION_BUS_ADDRESS", "")
    socket = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere") / "bus"
    return configured_address or (str(socket) if socket.exists() else "")
