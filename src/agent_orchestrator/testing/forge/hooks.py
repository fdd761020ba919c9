"""Webhooks: real deliveries, in order; a test may drop, double, hold back and turn them round, or have one sent again."""

from __future__ import annotations

import http.client
import queue
import threading
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar


class Target(Protocol):
    """Where deliveries go."""

    url: str


class Sent(Protocol):
    """One delivery."""

    status_code: int
    delivered_at: str

    @property
    def hook(self) -> Target: ...


One = TypeVar("One", bound=Sent)


class Outbox(Generic[One]):
    """One thread that posts what happened, one delivery after the other; `request` gives a delivery's body and headers."""

    def __init__(self, now: Callable[[], str], request: Callable[[One], tuple[bytes, dict[str, str]]]) -> None:
        self._now = now
        self._request = request
        self._waiting: queue.Queue[One | None] = queue.Queue()
        self._held: list[One] | None = None
        self._drop = self._double = 0
        self.sent: list[One] = []
        """Every delivery that was made or dropped, in the order in which things happened."""
        self._thread = threading.Thread(target=self._work, name="hooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._waiting.put(None)
        self._thread.join(timeout=10)

    def send(self, delivery: One) -> None:
        """Deliver, as far as no test has ordered otherwise."""
        self.sent.append(delivery)
        if self._drop:
            self._drop -= 1
            return
        times = 2 if self._double else 1
        self._double -= times - 1
        for _ in range(times):
            if self._held is not None:
                self._held.append(delivery)
            else:
                self._waiting.put(delivery)

    def drop(self, next: int = 1) -> None:  # noqa: A002 - reads as "drop the next two"
        """Lose these deliveries, as a network does."""
        self._drop += next

    def duplicate(self, next: int = 1) -> None:  # noqa: A002
        """Make each of these deliveries twice, with one id."""
        self._double += next

    def hold(self) -> None:
        """Keep deliveries back until `release`."""
        self._held = self._held or []

    def release(self, order: Sequence[int] | str = "in order") -> None:
        """Deliver what was held: "in order", "reversed", or by their positions."""
        held, self._held = self._held or [], None
        if order == "reversed":
            held.reverse()
        elif not isinstance(order, str):
            held = [held[position] for position in order]
        for delivery in held:
            self._waiting.put(delivery)

    def wait(self) -> None:
        """Until every delivery that is not held has been answered."""
        self._waiting.join()

    def _work(self) -> None:
        while True:
            delivery = self._waiting.get()
            try:
                if delivery is None:
                    return
                delivery.status_code = post(delivery.hook.url, *self._request(delivery))
                delivery.delivered_at = self._now()
            finally:
                self._waiting.task_done()


def post(address: str, body: bytes, headers: dict[str, str]) -> int:
    """The answer's status; 502 where nobody answered within ten seconds, as a forge records it."""
    url = urllib.parse.urlsplit(address)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=10)
    try:
        connection.request("POST", url.path + (f"?{url.query}" if url.query else ""), body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, ValueError, http.client.HTTPException):
        return 502
    finally:
        connection.close()
