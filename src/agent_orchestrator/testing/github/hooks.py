"""Webhooks: real deliveries, signed, in order; a test may drop, double, hold back and turn them round, or have one sent again."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import queue
import threading
import urllib.parse
import uuid
from collections.abc import Sequence

from .shapes import Json
from .state import Delivery, Hook, Repo, State


class Hooks:
    """One thread that posts what happened, one delivery after the other."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: queue.Queue[Delivery | None] = queue.Queue()
        self._held: list[Delivery] | None = None
        self._drop = self._double = 0
        self.sent: list[Delivery] = []
        """Every delivery that was made or dropped, in the order in which things happened."""
        self.keep_payloads: list[tuple[str, Json]] = []
        """Every event that happened, with or without a hook that wants it."""
        self._thread = threading.Thread(target=self._work, name="github-hooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._waiting.put(None)
        self._thread.join(timeout=10)

    def happened(self, repo: Repo, event: str, payload: Json) -> None:
        self.keep_payloads.append((event, payload))
        for hook in repo.hooks.values():
            if hook.active and ("*" in hook.events or event in hook.events):
                self.deliver(hook, event, payload)

    def deliver(self, hook: Hook, event: str, payload: Json, guid: str | None = None, again: bool = False) -> Delivery:
        number = self._state.base("HD")["id"]
        delivery = Delivery(number, guid or str(uuid.uuid4()), hook, event, payload, redelivery=again)
        hook.deliveries.append(delivery)
        self.sent.append(delivery)
        if self._drop:
            self._drop -= 1
            return delivery
        times = 2 if self._double else 1
        self._double -= times - 1
        for _ in range(times):
            if self._held is not None:
                self._held.append(delivery)
            else:
                self._waiting.put(delivery)
        return delivery

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

    def redeliver(self, delivery: Delivery) -> Delivery:
        """Send one again: the same id and body, as the forge's button does."""
        return self.deliver(delivery.hook, delivery.event, delivery.payload, delivery.guid, again=True)

    def wait(self) -> None:
        """Until every delivery that is not held has been answered."""
        self._waiting.join()

    def _work(self) -> None:
        while True:
            delivery = self._waiting.get()
            try:
                if delivery is None:
                    return
                delivery.status_code = post(delivery)
                delivery.delivered_at = self._state.now()
            finally:
                self._waiting.task_done()


def signature(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def request(delivery: Delivery) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a delivery."""
    hook, body = delivery.hook, json.dumps(delivery.payload).encode()
    kind = "application/json"
    if hook.content_type == "form":
        body, kind = urllib.parse.urlencode({"payload": body.decode()}).encode(), "application/x-www-form-urlencoded"
    headers = {
        "Content-Type": kind, "User-Agent": "GitHub-Hookshot/044aadd", "X-GitHub-Delivery": delivery.guid,
        "X-GitHub-Event": delivery.event, "X-GitHub-Hook-ID": str(hook.id),
        "X-GitHub-Hook-Installation-Target-ID": str(hook.repo.id), "X-GitHub-Hook-Installation-Target-Type": "repository",
    }  # fmt: skip
    if hook.secret:
        headers["X-Hub-Signature-256"] = signature(hook.secret, body)
        headers["X-Hub-Signature"] = "sha1=" + hmac.new(hook.secret.encode(), body, hashlib.sha1).hexdigest()
    return body, headers


def post(delivery: Delivery) -> int:
    """The answer's status; 502 where nobody answered within ten seconds, as the forge records it."""
    url = urllib.parse.urlsplit(delivery.hook.url)
    body, headers = request(delivery)
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
