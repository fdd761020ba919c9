"""Detects what blocks the daemon's event loop: nothing in the daemon may delay everything else.

The loop is busy from the moment its selector returns until it waits again. Iterations that take longer than `STALL_SECONDS`
are counted, and a second thread notes meanwhile what is running. An iteration wakes that thread, which then checks
every `STALL_SECONDS`; once the loop has waited for that long, so does the thread: an idle daemon wakes up no timer.

Work of the loop's own thread (its CPU time) is counted separately from waiting: for a core, for another thread, for
the disk.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from agent_orchestrator.base import log_setup
from agent_orchestrator.protocols.records import record

STALL_SECONDS = 0.05
"""Seconds that an iteration of the loop may take."""
LOG_INTERVAL_SECONDS = 60.0
"""Seconds in which stalls at one place in the code are logged once."""
CPU_TIME_READ_SECONDS = 0.01
"""Seconds after which the CPU time at an iteration's beginning is read again: reading it takes longer than most iterations."""
MAX_STACK_DEPTH = 12
"""How many functions of the stack are named, the innermost first."""
MAX_KEPT_STALLS = 20

log = log_setup.get_logger()


@record
class Stall:
    """One iteration of the loop that took too long."""

    seconds: float
    own_seconds: float
    """Seconds of it that the loop's thread was computing, to a hundredth; for the rest it waited."""
    stack: tuple[str, ...] = ()
    """What was running, the innermost function first; empty if the interpreter lock was held, so that the other thread could not run."""

    @property
    def is_own_work(self) -> bool:
        """Whether the loop's own work took too long, regardless of the machine's load."""
        return self.own_seconds > STALL_SECONDS


class StallStatistics:
    """The stalls since the start."""

    def __init__(self) -> None:
        self.work_count = 0
        """Iterations whose own work took too long."""
        self.wait_count = 0
        """Iterations that took too long because they waited."""
        self.seconds = 0.0
        self.own_seconds = 0.0
        self.longest = 0.0
        self.recent: deque[Stall] = deque(maxlen=MAX_KEPT_STALLS)

    def add(self, stall: Stall) -> None:
        """Count a stall."""
        self.work_count += stall.is_own_work
        self.wait_count += not stall.is_own_work
        self.seconds += stall.seconds
        self.own_seconds += stall.own_seconds
        self.longest = max(self.longest, stall.seconds)
        self.recent.append(stall)

    def summary_line(self) -> str:
        """Return a summary in one line."""
        if not self.work_count + self.wait_count:
            return f"never held up for more than {STALL_SECONDS * 1000:.0f} ms"
        return (
            f"held up for more than {STALL_SECONDS * 1000:.0f} ms {self.work_count}× by its own work and {self.wait_count}× by waiting"
            f" for the machine; at most {self.longest:.2f} s: `stall` in daemon.log"
        )


class Watchdog:
    """Watches one event loop, which it creates."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, computed: Callable[[], float] = time.thread_time
    ) -> None:
        self.stalls = StallStatistics()
        self.checks = 0
        """How often the thread has checked."""
        self.is_logging = False
        """Whether stalls are logged, earlier ones included. Not until the daemon serves requests: nothing waits for it before, and a
        daemon that cannot start logs only the reason."""
        self._clock, self._read_cpu_time = clock, computed
        self._iteration, self._began_at = 0, 0.0
        self._cpu_read_at, self._cpu_time_before = -CPU_TIME_READ_SECONDS, 0.0
        self._loop_thread = threading.get_ident()
        self._stalled_stack: tuple[int, tuple[str, ...]] = (0, ())
        self._unlogged: deque[Stall] = deque(maxlen=MAX_KEPT_STALLS)
        self._last_logged: dict[str, tuple[float, int]] = {}
        self._is_parked, self._is_closing = False, False
        self._wake = threading.Event()

    def create_loop(self) -> asyncio.AbstractEventLoop:
        """Start the watching thread and return the event loop, which the calling thread must run."""
        self._loop_thread = threading.get_ident()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return _Loop(_Selector(self))

    def close(self) -> None:
        """Stop watching."""
        self._is_closing = True
        self._wake.set()

    # -- called in the loop's thread -----------------------------------------------------------------------------------

    def begin_iteration(self) -> None:
        """Note that an iteration begins."""
        self._iteration += 1
        self._began_at = now = self._clock()
        if now - self._cpu_read_at > CPU_TIME_READ_SECONDS:
            self._cpu_read_at, self._cpu_time_before = now, self._read_cpu_time()
        if self._is_parked:
            self._wake.set()

    def end_iteration(self) -> None:
        """Note that the iteration is over, and count a stall if it took too long."""
        if not self._began_at:
            return
        duration = self._clock() - self._began_at
        self._began_at = 0.0
        if duration > STALL_SECONDS:
            iteration, stack = self._stalled_stack
            own_seconds = min(duration, self._read_cpu_time() - self._cpu_time_before)
            stall = Stall(duration, own_seconds, stack if iteration == self._iteration else ())
            self.stalls.add(stall)
            self._unlogged.append(stall)

    # -- called in the watching thread ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Note what is running if the current iteration has taken too long, and log the stalls counted so far."""
        self.checks += 1
        iteration, began_at = self._iteration, self._began_at
        if began_at and self._clock() - began_at > STALL_SECONDS and self._stalled_stack[0] != iteration:
            self._stalled_stack = iteration, _function_names(sys._current_frames().get(self._loop_thread))
        while self.is_logging and self._unlogged:
            self._log_stall(self._unlogged.popleft())

    def _watch(self) -> None:
        """Check every `LIMIT` while the loop is busy, until the watchdog is closed."""
        last_iteration = 0
        while not self._is_closing:
            iteration = self._iteration
            self.check()
            if began_at := self._began_at:
                remaining = STALL_SECONDS - (self._clock() - began_at)
                time.sleep((remaining if remaining > 0 else STALL_SECONDS) + 0.001)
            elif iteration != last_iteration:  # it was busy since the last check, and may be so again
                time.sleep(STALL_SECONDS)
            else:
                self._park(iteration)
            last_iteration = iteration

    def _park(self, iteration: int) -> None:
        """Wait for the next iteration."""
        self._wake.clear()
        self._is_parked = True
        # An iteration that begins from here on sees `_is_parked` and sets `_wake`.
        if iteration == self._iteration and not self._is_closing:
            self._wake.wait()
        self._is_parked = False

    def _log_stall(self, stall: Stall) -> None:
        """Log a stall, at most once per `LOG_INTERVAL_SECONDS` for one place in the code."""
        location = stall.stack[0] if stall.stack else ""
        logged_at, suppressed = self._last_logged.get(location, (-LOG_INTERVAL_SECONDS, 0))
        now = self._clock()
        if now - logged_at < LOG_INTERVAL_SECONDS:
            self._last_logged[location] = logged_at, suppressed + 1
            return
        if len(self._last_logged) > 1000:
            self._last_logged.clear()
        self._last_logged[location] = now, 0
        fields: dict[str, Any] = {"ms": round(stall.seconds * 1000), "own_ms": round(stall.own_seconds * 1000)}
        if suppressed:
            fields["unsaid"] = suppressed
        write_log = log.warning if stall.is_own_work else log.info
        write_log("stall", **fields, at=" < ".join(stall.stack) or "unknown: nothing else could run")


class _Selector(selectors.DefaultSelector):
    """Reports to the watchdog when the loop waits, which happens only in `select`."""

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__()
        self._watchdog = watchdog

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._watchdog.end_iteration()
        ready = super().select(timeout)
        self._watchdog.begin_iteration()
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that can be discarded if creating it failed for lack of descriptors: asyncio's own would print an error then."""

    _is_initialized = False

    def __init__(self, selector: selectors.BaseSelector) -> None:
        try:
            super().__init__(selector)
        except OSError:
            selector.close()
            raise
        self._is_initialized = True

    def __del__(self) -> None:
        if self._is_initialized:
            super().__del__()


def _function_names(frame: FrameType | None) -> tuple[str, ...]:
    """Return the functions that run in a frame, the innermost first, down to the loop's own."""
    functions: list[str] = []
    while frame is not None and len(functions) < MAX_STACK_DEPTH and frame.f_code.co_qualname != "Handle._run":
        code, line = frame.f_code, frame.f_lineno
        frame = frame.f_back
        if not code.co_filename.startswith("<frozen importlib"):
            functions.append(f"{'/'.join(code.co_filename.rsplit('/', 2)[-2:])}:{line} {code.co_qualname}")
    return tuple(functions)
