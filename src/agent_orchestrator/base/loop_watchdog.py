"""Who holds up the event loop: nothing in the daemon may keep everybody else waiting.

The loop is busy from the moment its selector returns until it waits again. Turns that take longer than `LIMIT` are counted, and a
thread that looks on meanwhile notes what was running. The thread is woken by a turn and looks again every `LIMIT`; when the loop has
waited for that long, so does the thread: in an idle daemon nothing ticks.

A turn's own work (CPU time of its thread) is told apart from its waiting: for a core, for another thread, for the disk.
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

LIMIT = 0.05
"""Seconds that a turn of the loop may take."""
QUIET = 60.0
"""Seconds in which stalls at one place are told once."""
READ_EVERY = 0.01
"""Seconds after which the CPU time at a turn's beginning is read anew: most turns are shorter than that takes."""
DEPTH = 12
"""Functions that are named, the innermost first."""
KEPT = 20

log = log_setup.get_logger()


@record
class Stall:
    """One turn that took too long."""

    seconds: float
    own: float
    """Seconds of it that the loop's thread computed, to a hundredth; in the others it waited."""
    stack: tuple[str, ...] = ()
    """What was running, the innermost first; empty: it held the interpreter itself, and nobody could look."""

    @property
    def by_work(self) -> bool:
        """The loop's own work was too much, whatever the machine."""
        return self.own > LIMIT


class Stalls:
    """What there was since the start."""

    def __init__(self) -> None:
        self.work = 0
        """Turns whose own work took too long."""
        self.waits = 0
        """Turns that took too long because they waited."""
        self.seconds = 0.0
        self.own_seconds = 0.0
        self.longest = 0.0
        self.recent: deque[Stall] = deque(maxlen=KEPT)

    def add(self, stall: Stall) -> None:
        """Count one."""
        self.work += stall.by_work
        self.waits += not stall.by_work
        self.seconds += stall.seconds
        self.own_seconds += stall.own
        self.longest = max(self.longest, stall.seconds)
        self.recent.append(stall)

    def told(self) -> str:
        """All of it in a line."""
        if not self.work + self.waits:
            return f"never held up for more than {LIMIT * 1000:.0f} ms"
        return (
            f"held up for more than {LIMIT * 1000:.0f} ms {self.work}× by its own work and {self.waits}× by waiting"
            f" for the machine; at most {self.longest:.2f} s: `stall` in daemon.log"
        )


class Watchdog:
    """Watches one event loop, the one that it makes."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, computed: Callable[[], float] = time.thread_time
    ) -> None:
        self.stalls = Stalls()
        self.looks = 0
        """How often the thread looked."""
        self.telling = False
        """Stalls are logged, those before too: nobody waits for a daemon that does not serve yet, and one that cannot says only why."""
        self._clock, self._computed = clock, computed
        self._turn, self._began = 0, 0.0
        self._read_at, self._computed_before = -READ_EVERY, 0.0
        self._loops_thread = threading.get_ident()
        self._seen: tuple[int, tuple[str, ...]] = (0, ())
        self._untold: deque[Stall] = deque(maxlen=KEPT)
        self._told: dict[str, tuple[float, int]] = {}
        self._parked, self._ending = False, False
        self._wake = threading.Event()

    def loop(self) -> asyncio.AbstractEventLoop:
        """A loop that is watched, to be run by this thread."""
        self._loops_thread = threading.get_ident()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return _Loop(_Selector(self))

    def close(self) -> None:
        """Look no more."""
        self._ending = True
        self._wake.set()

    # -- in the loop's thread ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A turn begins."""
        self._turn += 1
        self._began = now = self._clock()
        if now - self._read_at > READ_EVERY:
            self._read_at, self._computed_before = now, self._computed()
        if self._parked:
            self._wake.set()

    def rest(self) -> None:
        """The turn is over."""
        if not self._began:
            return
        took = self._clock() - self._began
        self._began = 0.0
        if took > LIMIT:
            turn, stack = self._seen
            own = min(took, self._computed() - self._computed_before)
            stall = Stall(took, own, stack if turn == self._turn else ())
            self.stalls.add(stall)
            self._untold.append(stall)

    # -- in the thread that looks on -----------------------------------------------------------------------------------

    def look(self) -> None:
        """See what runs if it has taken too long, and tell of what did."""
        self.looks += 1
        turn, began = self._turn, self._began
        if began and self._clock() - began > LIMIT and self._seen[0] != turn:
            self._seen = turn, _stack(sys._current_frames().get(self._loops_thread))
        while self.telling and self._untold:
            self._tell(self._untold.popleft())

    def _watch(self) -> None:
        seen = 0
        while not self._ending:
            turn = self._turn
            self.look()
            if began := self._began:
                left = LIMIT - (self._clock() - began)
                time.sleep((left if left > 0 else LIMIT) + 0.001)
            elif turn != seen:  # it was busy since the last look, and may be so again
                time.sleep(LIMIT)
            else:
                self._park(turn)
            seen = turn

    def _park(self, turn: int) -> None:
        """Wait for the next turn."""
        self._wake.clear()
        self._parked = True
        if turn == self._turn and not self._ending:  # who begins one now sees that it must wake us
            self._wake.wait()
        self._parked = False

    def _tell(self, stall: Stall) -> None:
        place = stall.stack[0] if stall.stack else ""
        before, unsaid = self._told.get(place, (-QUIET, 0))
        now = self._clock()
        if now - before < QUIET:
            self._told[place] = before, unsaid + 1
            return
        if len(self._told) > 1000:
            self._told.clear()
        self._told[place] = now, 0
        fields: dict[str, Any] = {"ms": round(stall.seconds * 1000), "own_ms": round(stall.own * 1000)}
        if unsaid:
            fields["unsaid"] = unsaid
        tell = log.warning if stall.by_work else log.info
        tell("stall", **fields, at=" < ".join(stall.stack) or "unknown: nothing else could run")


class _Selector(selectors.DefaultSelector):
    """Says when the loop waits, which it does here alone."""

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__()
        self._watchdog = watchdog

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._watchdog.rest()
        found = super().select(timeout)
        self._watchdog.begin()
        return found


class _Loop(asyncio.SelectorEventLoop):
    """One for which there were too few descriptors has nothing to close but its selector: asyncio's own would complain about that."""

    _made = False

    def __init__(self, selector: selectors.BaseSelector) -> None:
        try:
            super().__init__(selector)
        except OSError:
            selector.close()
            raise
        self._made = True

    def __del__(self) -> None:
        if self._made:
            super().__del__()


def _stack(frame: FrameType | None) -> tuple[str, ...]:
    """The functions that run, the innermost first, down to the loop's own."""
    found: list[str] = []
    while frame is not None and len(found) < DEPTH and frame.f_code.co_qualname != "Handle._run":
        code, line = frame.f_code, frame.f_lineno
        frame = frame.f_back
        if not code.co_filename.startswith("<frozen importlib"):
            found.append(f"{'/'.join(code.co_filename.rsplit('/', 2)[-2:])}:{line} {code.co_qualname}")
    return tuple(found)
