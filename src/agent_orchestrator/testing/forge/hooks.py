"""Webhooks: real deliveries in order, which a test may drop, duplicate, hold back, reorder or send again."""

from __future__ import annotations

import http.client
import queue
import threading
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar


class HookReceiver(Protocol):
    """The receiver of deliveries."""

    url: str


class SentDelivery(Protocol):
    """A delivery."""

    status_code: int
    delivered_at: str

    @property
    def hook(self) -> HookReceiver: ...


DeliveryType = TypeVar("DeliveryType", bound=SentDelivery)


class WebhookQueue(Generic[DeliveryType]):
    """A thread that posts deliveries one after the other; `request` returns the body and headers of a delivery."""

    def __init__(self, now: Callable[[], str], request: Callable[[DeliveryType], tuple[bytes, dict[str, str]]]) -> None:
        self._now = now
        self._request = request
        self._waiting: queue.Queue[DeliveryType | None] = queue.Queue()
        self._held_back: list[DeliveryType] | None = None
        self._drop_count = self._duplicate_count = 0
        self.sent: list[DeliveryType] = []
        """Every delivery, dropped ones too, in the order of their events."""
        self._thread = threading.Thread(target=self._deliver_all, name="hooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._waiting.put(None)
        self._thread.join(timeout=10)

    def send(self, delivery: DeliveryType) -> None:
        """Deliver, drop, duplicate or hold back a delivery, as the test has ordered."""
        self.sent.append(delivery)
        if self._drop_count:
            self._drop_count -= 1
            return
        times = 2 if self._duplicate_count else 1
        self._duplicate_count -= times - 1
        for _ in range(times):
            if self._held_back is not None:
                self._held_back.append(delivery)
            else:
                self._waiting.put(delivery)

    def drop(self, next: int = 1) -> None:  # noqa: A002 - reads as "drop the next two"
        """Drop the next deliveries, as a broken network would."""
        self._drop_count += next

    def duplicate(self, next: int = 1) -> None:  # noqa: A002
        """Send each of the next deliveries twice, with the same id."""
        self._duplicate_count += next

    def hold(self) -> None:
        """Hold deliveries back until `release`."""
        self._held_back = self._held_back or []

    def release(self, order: Sequence[int] | str = "in order") -> None:
        """Deliver what was held back: "in order", "reversed", or in the order of these positions."""
        held, self._held_back = self._held_back or [], None
        if order == "reversed":
            held.reverse()
        elif not isinstance(order, str):
            held = [held[position] for position in order]
        for delivery in held:
            self._waiting.put(delivery)

    def wait(self) -> None:
        """Wait until every delivery that is not held back was answered."""
        self._waiting.join()

    def _deliver_all(self) -> None:
        while True:
            delivery = self._waiting.get()
            try:
                if delivery is None:
                    return
                delivery.status_code = post_delivery(delivery.hook.url, *self._request(delivery))
                delivery.delivered_at = self._now()
            finally:
                self._waiting.task_done()


def post_delivery(address: str, body: bytes, headers: dict[str, str]) -> int:
    """Post a delivery and return the status of the answer; 502 if there is none within ten seconds, as a forge records it."""
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
