"""Counts recent events per key, to limit attempts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_MAX_PEERS = 1000


class RateLimiter:
    """The times of recent events, per key: an address, for example, or a project."""

    def __init__(self, limit: int, window: float, clock: Callable[[], float]) -> None:
        self._limit, self._window, self._clock = limit, window, clock
        self._times: dict[str, deque[float]] = {}

    def add(self, peer: str) -> None:
        """Count one event."""
        if peer not in self._times and len(self._times) >= _MAX_PEERS:
            self._drop_old_peers()
        self._times.setdefault(peer, deque(maxlen=self._limit)).append(self._clock())

    def seconds_until_allowed(self, peer: str) -> float:
        """Return the seconds until another event is allowed, or 0 if one is allowed now."""
        times = self._times.get(peer)
        if times is None or len(times) < self._limit:
            return 0.0
        return max(0.0, times[0] + self._window - self._clock())

    def _drop_old_peers(self) -> None:
        """Drop the keys without recent events; if there are none, the key whose last event is the oldest."""
        window_start = self._clock() - self._window
        self._times = {peer: times for peer, times in self._times.items() if times[-1] > window_start}
        if len(self._times) >= _MAX_PEERS:
            del self._times[min(self._times, key=lambda peer: self._times[peer][-1])]
