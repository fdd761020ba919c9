"""The HTTP application: a gate, and the routes behind it. One instance serves the Unix socket, another one TCP.

What is behind the gate is loaded with the first request that passes it, or by `warm`: the daemon answers before, and the list of
sessions and the dashboard's files never need it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from importlib import import_module

from starlette.datastructures import State
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_orchestrator.server.access.gate import BODY_LIMIT, Gate
from agent_orchestrator.server.access.refusals import Refusals
from agent_orchestrator.server.services import Services

_ROUTING = "agent_orchestrator.server.route_table"
EVERYBODYS = "sessions"
"""The file of routes that everybody needs."""


class App:
    """What is served on one socket."""

    def __init__(
        self, services: Services, *, trusted: bool, hosts: Iterable[str], url: str | None, body_limit: int
    ) -> None:
        self.state = State()
        self.state.services = services
        self.state.closing = asyncio.Event()
        self.state.refusals = Refusals(services.audit.tell_soon)
        self.state.url = url
        self.state.terminals = Counter[str]()
        self._routes: ASGIApp | None = None
        self._gate = Gate(
            self._answer, services, self.state.refusals, trusted=trusted, hosts=hosts, body_limit=body_limit
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._routes or await self._load())(scope, receive, send)

    async def _load(self) -> ASGIApp:
        routing = await asyncio.to_thread(import_module, _ROUTING)
        if self._routes is None:
            self._routes = routing.routes_on(self.state)
        return self._routes


async def warm() -> None:
    """Load what everybody asks for, beside everything else that goes on."""
    routing = await asyncio.to_thread(import_module, _ROUTING)
    await asyncio.to_thread(routing.load, EVERYBODYS)


def create_app(
    services: Services,
    *,
    trusted: bool,
    hosts: Iterable[str] = (),
    url: str | None = None,
    body_limit: int = BODY_LIMIT,
) -> App:
    """The application on these services.

    `trusted`: for the Unix socket, where whoever can connect may do everything, and the caller's folder counts.
    `hosts`: names and addresses it is bound to or reached by, besides this machine's loopback.
    `url`: the address to tell people; without it, the one a request came to.
    """
    return App(services, trusted=trusted, hosts=hosts, url=url, body_limit=body_limit)
