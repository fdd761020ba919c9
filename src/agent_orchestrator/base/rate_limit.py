"""How often something happened lately, per key: for limits on attempts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_PEERS = 1000


class Recent:
    """How often something happened lately: for each address, say, or project."""

    def __init__(self, limit: int, window: float, clock: Callable[[], float]) -> None:
        self._limit, self._window, self._clock = limit, window, clock
        self._times: dict[str, deque[float]] = {}

    def add(self, peer: str) -> None:
        """It happened once more."""
        if peer not in self._times and len(self._times) >= _PEERS:
            self._forget()
        self._times.setdefault(peer, deque(maxlen=self._limit)).append(self._clock())

    def wait(self, peer: str) -> float:
        """Seconds until it may happen again; 0 if it may now."""
        times = self._times.get(peer)
        if times is None or len(times) < self._limit:
            return 0.0
        return max(0.0, times[0] + self._window - self._clock())

    def _forget(self) -> None:
        """Drop the addresses with nothing lately; where there are none, the one that was quiet longest."""
        since = self._clock() - self._window
        self._times = {peer: times for peer, times in self._times.items() if times[-1] > since}
        if len(self._times) >= _PEERS:
            del self._times[min(self._times, key=lambda peer: self._times[peer][-1])]
