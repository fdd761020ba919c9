"""Idle sleep of the machine is held off while agents are in a turn (`power.preventIdleSleep`), and let come again when they rest.

By wakepy, which knows macOS's `caffeinate`, Windows and the desktops of Linux; on a Linux without a desktop by systemd's inhibitor. A
lid that is closed, or a person who says sleep, is obeyed.
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

from agent_orchestrator.base.health import finding
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.status import IN_TURN
from agent_orchestrator.errors import AoError, Missing, machine_short
from agent_orchestrator.protocols.host import Host

log = structlog.get_logger()

REST = 30.0
"""Seconds without a turn after which the machine may sleep: often the next one follows at once."""
AGAIN = 600.0
"""Seconds after which what did not work is tried again: it costs programs, and most machines that cannot never can."""
_REMEDY = "set power.preventIdleSleep to false, or keep it awake by other means"
_INHIBIT = ("systemd-inhibit", "--what=idle", "--mode=block", "--who=Agent Orchestrator", "--why=agents are at work")

Hold = Callable[[], contextlib.AbstractAsyncContextManager[str]]
"""Keeps the machine awake within the block; gives what does it. Raises `Missing` where nothing can."""


class Power:
    """Keeps the machine awake while there is work."""

    def __init__(self, flow: Flow, wanted: Callable[[], bool], hold: Hold, rest: float = REST) -> None:
        self.flow = flow
        self.wanted = wanted
        self._hold = hold
        self._rest = rest
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.held = ""
        """By what the machine is kept awake just now; nothing: it is not."""
        self.problem: AoError | None = None
        """Why it cannot be kept awake."""
        self._not_before = 0.0

    def start(self) -> None:
        """Follow what agents do."""
        self.flow.on_change.append(self._on_change)
        self._news.set()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Let it sleep."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look(self) -> None:
        """The configuration may say otherwise now."""
        self._not_before = 0.0
        self._news.set()

    async def checkup(self) -> list[dict[str, Any]]:
        """For `ao doctor`."""
        if not self.wanted():
            return [finding("power", "ok", "may sleep: power.preventIdleSleep is false")]
        if self.problem:
            text = f"idle sleep is not held off: {self.problem.text}"
            return [finding("power", "warning", text, self.problem.remedy)]
        said = f"kept awake by {self.held}" if self.held else "may sleep: no agent is in a turn"
        return [finding("power", "ok", said)]

    def _on_change(self, changes: Sequence[Change]) -> None:
        if any(_turning(change) for change in changes):
            self._news.set()

    def _needed(self) -> bool:
        return self.wanted() and any(
            facts.live and facts.activity.state in IN_TURN and not self.flow.elsewhere(facts.id)
            for facts in self.flow.sessions.values()
        )

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if self._needed() and self.flow.clock() >= self._not_before:
                await self._while_needed()

    async def _while_needed(self) -> None:
        try:
            async with self._hold() as by:
                self.held, self.problem = by, None
                while self._needed() or not await self._rested():
                    await self._news.wait()
                    self._news.clear()
        except (AoError, OSError) as error:
            problem = error if isinstance(error, AoError) else machine_short(error) or Missing(str(error), _REMEDY)
            if self.problem is None or self.problem.text != problem.text:
                log.warning("the machine is not kept awake while agents work", error=str(problem))
            self.problem, self._not_before = problem, self.flow.clock() + AGAIN
        finally:
            self.held = ""

    async def _rested(self) -> bool:
        """Has nothing come for a while? What comes is left to be looked at."""
        if not self.wanted():
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rest):
                await self._news.wait()
                return False
        return True


def _turning(change: Change) -> bool:
    """Does somebody's turn begin or end by it?"""
    before, after = (
        bool(facts and facts.live and facts.activity.state in IN_TURN) for facts in (change.before, change.after)
    )
    return before != after


class Machine:
    """This machine's own means."""

    def __init__(self, host: Host, platform: str = sys.platform, bus: str | None = None) -> None:
        """`bus`: the address of a desktop's message bus; nothing: there is none."""
        self._host = host
        self._platform = platform
        self._bus = _session_bus() if bus is None else bus

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[str]:
        """The first of them that works."""
        said = []
        for means in (self._by_wakepy, self._by_systemd):
            async with contextlib.AsyncExitStack() as stack:
                try:
                    by = await stack.enter_async_context(means())
                except Missing as error:
                    said.append(error.text)
                    continue
                yield by
                return
        raise Missing("; ".join(said), _REMEDY)

    @contextlib.asynccontextmanager
    async def _by_wakepy(self) -> AsyncIterator[str]:
        if self._platform == "linux" and not self._bus:
            raise Missing("there is no desktop")
        loop = asyncio.get_running_loop()
        # It wants to be let go by the thread that took it.
        thread = ThreadPoolExecutor(1, "power")
        try:
            mode, by = await loop.run_in_executor(thread, _enter)
            try:
                yield by
            finally:
                await asyncio.shield(loop.run_in_executor(thread, _leave, mode))
        finally:
            thread.shutdown(wait=False)  # a bus that does not answer holds up nobody

    @contextlib.asynccontextmanager
    async def _by_systemd(self) -> AsyncIterator[str]:
        """The inhibitor's program ends with its input, so with us, however we end."""
        if self._platform != "linux" or not self._host.which(_INHIBIT[0]):
            raise Missing("there is no systemd-inhibit")
        argv = [*_INHIBIT, "sh", "-c", "echo held; exec cat"]
        async with self._host.talk(argv, log=Path(os.devnull)) as process:
            assert process.stdout is not None
            said = b""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    said = await process.stdout.readline()
            if said.strip() != b"held":
                raise Missing("systemd-inhibit was refused")
            yield _INHIBIT[0]


def _enter() -> tuple[Any, str]:
    try:
        from wakepy import keep
    except ImportError:
        raise Missing("wakepy is not installed") from None
    mode = keep.running(on_fail="pass")
    try:
        mode.__enter__()
    except Exception as error:  # whatever a desktop's bus answers
        raise Missing(f"wakepy failed ({_short(str(error) or type(error).__name__)})") from error
    if not mode.active:
        _leave(mode)
        raise Missing(f"wakepy found no way ({_short(mode.result.get_failure_text(style='inline'))})")
    return mode, f"wakepy ({mode.method.name})" if mode.method else "wakepy"


def _leave(mode: Any) -> None:
    mode.__exit__(None, None, None)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 160 else f"{line[:159]}…"


def _session_bus() -> str:
    named = os.environ.get("DBUS_SESSION_BUS_ADDRESS", "")
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere") / "bus"
    return named or (str(own) if own.exists() else "")
