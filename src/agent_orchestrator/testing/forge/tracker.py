"""The common base of the test trackers on loopback: serving, sign-in, rate limits, faults, webhooks."""

from __future__ import annotations

import threading
import time
import urllib.parse
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from agent_orchestrator.testing.forge.hooks import WebhookQueue
from agent_orchestrator.testing.forge.http import ConnectionCut, ForgeAnswer, ForgeListener, ForgeRequestHandler
from agent_orchestrator.testing.forge.ledger import Ledger, LoggedRequest, OrderedFault


@dataclass
class TrackerWebhook:
    """A registered webhook."""

    url: str
    secret: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass
class TrackerDelivery:
    """A webhook delivery."""

    hook: TrackerWebhook
    event: str
    payload: dict[str, Any]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    status_code: int = 0
    delivered_at: str = ""


@dataclass
class TrackerRequest:
    """A request and the user who sent it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    login: str
    """The user; empty if not signed in."""


@dataclass
class TrackerRateLimit:
    """The rate limit of one token."""

    limit: int
    used: int = 0
    reset: float = 0.0

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)

    def renew(self, now: float, period: float = 3600.0) -> None:
        if now >= self.reset:
            self.used, self.reset = 0, now + period


class _TrackerHandler(ForgeRequestHandler):
    server: _TrackerListener

    def serve(self) -> None:
        self.server.tracker.serve(self)

    def read(self) -> bytes:
        return self._read()

    def send(self, answer: ForgeAnswer, cut: bool = False) -> None:
        self._send_whole(answer, dict(answer.headers), cut)

    def disconnect(self) -> None:
        self._disconnect()


class _TrackerListener(ForgeListener):
    def __init__(self, address: tuple[str, int], tracker: TrackerServer) -> None:
        self.tracker = tracker
        super().__init__(address, _TrackerHandler, tracker.clock)


class TrackerServer(ABC):
    """Start it with `with … as tracker:`."""

    kind = "rest"

    def __init__(self, clock: Callable[[], float] = time.time, port: int = 0) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.ledger = Ledger()
        self.errors: list[Exception] = []
        """Exceptions inside the test server."""
        self.tokens: dict[str, str] = {}
        """Token → login."""
        self.webhooks: list[TrackerWebhook] = []
        self.hooks: WebhookQueue[TrackerDelivery] = WebhookQueue(self.now, self.sign_delivery)
        self._listeners = [_TrackerListener(("127.0.0.1", port), self)]
        self.port = int(self._listeners[0].server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    @abstractmethod
    def answer(self, request: TrackerRequest) -> ForgeAnswer:
        """Return the answer to a request."""

    @abstractmethod
    def login_of(self, headers: dict[str, str]) -> str:
        """Return the login that these headers sign in, or an empty string."""

    @abstractmethod
    def refusal_answer(self, status: int) -> ForgeAnswer:
        """Return this tracker's error answer for a status."""

    @abstractmethod
    def rate_limit_answer(self, request: TrackerRequest) -> ForgeAnswer:
        """Return this tracker's answer to a request over the rate limit."""

    @abstractmethod
    def sign_delivery(self, delivery: TrackerDelivery) -> tuple[bytes, dict[str, str]]:
        """Return the body and headers of a delivery."""

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def __enter__(self) -> Self:
        self.hooks.start()
        self._listen(self._listeners[0])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()
        self.hooks.stop()
        if error is None and self.errors:
            raise self.errors[0]

    def _listen(self, port: _TrackerListener) -> None:
        threading.Thread(target=port.serve_forever, args=(0.05,), name="tracker", daemon=True).start()

    def down(self) -> None:
        """Stop listening; the state is kept."""
        for port in self._listeners:
            port.end()
        self._listeners.clear()

    def up(self) -> None:
        """Listen again at the same address."""
        self._listeners.append(_TrackerListener(("127.0.0.1", self.port), self))
        self._listen(self._listeners[-1])

    def hook(self, url: str, secret: str) -> TrackerWebhook:
        self.webhooks.append(TrackerWebhook(url, secret))
        return self.webhooks[-1]

    def deliver(self, event: str, payload: Callable[[TrackerWebhook], dict[str, Any]]) -> None:
        """Deliver an event to all webhooks."""
        for target in self.webhooks:
            self.hooks.send(TrackerDelivery(target, event, payload(target)))

    def fail(
        self, what: int | str, *, next: int = 1, path: str = "", method: str = "",  # noqa: A002
        retry_after: int | None = None, seconds: float = 0.0,
    ) -> OrderedFault:  # fmt: skip
        """Make the next requests fail.

        `what` is a status, or: `rate` (rate limit exceeded), `cut` (the connection ends in the middle of the answer), `lost` (the
        request is done, but the connection ends without an answer), `drop` (the connection ends before anything is done), `slow`
        (answered after `seconds`), `html` (a proxy's page with 502).
        """
        fault = OrderedFault(what, next, path, method, retry_after, seconds)
        self.ledger.faults.append(fault)
        return fault

    def serve(self, wire: _TrackerHandler) -> None:
        """Answer one request, or fail as the test has ordered."""
        body = wire.read()
        url = urllib.parse.urlsplit(wire.path)
        headers = {name.lower(): value for name, value in wire.headers.items()}
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        request = TrackerRequest(wire.command, url.path, query, headers, body, self.login_of(headers))
        fault = self.ledger.use_fault(wire.command, f"{url.path} {body[:300].decode(errors='replace')}", request.login)
        what = fault.failure if fault else ""
        try:
            if fault and what == "slow":
                time.sleep(fault.seconds)
            if what == "drop":
                self._log_request(request, 0)
                wire.disconnect()
                raise ConnectionCut
            answer = self._fault_answer(request, fault) if fault else None
            if answer is None:
                with self.lock:
                    answer = self.answer(request)
            self._log_request(request, answer.status)
            if what == "lost":
                wire.disconnect()
                raise ConnectionCut
            wire.send(answer, cut=what == "cut")
        except ConnectionCut:
            wire.close_connection = True
        except OSError:
            raise
        except Exception as error:
            self.errors.append(error)
            wire.send(ForgeAnswer(500, {"message": f"the test server broke: {error!r}"}))

    def _fault_answer(self, request: TrackerRequest, fault: OrderedFault) -> ForgeAnswer | None:
        answer: ForgeAnswer | None = None
        if fault.failure == "rate":
            answer = self.rate_limit_answer(request)
        elif fault.failure == "html":
            answer = ForgeAnswer(502, stream=iter([b"<html>Bad gateway</html>"]), headers={"Content-Type": "text/html"})
        elif isinstance(fault.failure, int):
            answer = self.refusal_answer(fault.failure)
        if answer is not None and fault.retry_after is not None:
            answer.headers["Retry-After"] = str(fault.retry_after)
        return answer

    def _log_request(self, request: TrackerRequest, status: int) -> None:
        self.ledger.requests.append(
            LoggedRequest(self.clock(), self.kind, request.method, request.path, "", status, request.login, False, 1)
        )
