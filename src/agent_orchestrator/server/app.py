"""The HTTP application: a gate, and the routes behind it. One instance serves the Unix socket, another one TCP.

The routes are loaded with the first request that passes the gate, or by `preload_common_routes`: the daemon answers before that, and the
list of sessions and the dashboard's files never need them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from importlib import import_module

from starlette.datastructures import State
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_orchestrator.server.access.gate import MAX_BODY_BYTES, Gate
from agent_orchestrator.server.access.refusals import Refusals
from agent_orchestrator.server.services import Services

_ROUTE_TABLE = "agent_orchestrator.server.route_table"
COMMON_ROUTES = "sessions"
"""The file of routes that every client needs."""


class App:
    """The application served on one socket."""

    def __init__(
        self, services: Services, *, trusted: bool, hosts: Iterable[str], url: str | None, body_limit: int
    ) -> None:
        self.state = State()
        self.state.services = services
        self.state.closing = asyncio.Event()
        self.state.refusals = Refusals(services.audit.record_in_background)
        self.state.url = url
        self.state.terminals = Counter[str]()
        self._routes: ASGIApp | None = None
        self._gate = Gate(
            self._answer, services, self.state.refusals, trusted=trusted, hosts=hosts, body_limit=body_limit
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the routes, loading them at the first one."""
        await (self._routes or await self._load_routes())(scope, receive, send)

    async def _load_routes(self) -> ASGIApp:
        """Load the routes in a thread."""
        route_table = await asyncio.to_thread(import_module, _ROUTE_TABLE)
        if self._routes is None:
            self._routes = route_table.routes_for(self.state)
        return self._routes


async def preload_common_routes() -> None:
    """Load what every client requests, in a thread."""
    route_table = await asyncio.to_thread(import_module, _ROUTE_TABLE)
    await asyncio.to_thread(route_table.load_routes, COMMON_ROUTES)


def create_app(
    services: Services,
    *,
    trusted: bool,
    hosts: Iterable[str] = (),
    url: str | None = None,
    body_limit: int = MAX_BODY_BYTES,
) -> App:
    """Return the application on these services.

    `trusted`: for the Unix socket, where every client that can connect may do everything, and the caller's folder is
    used. `hosts`: names and addresses it is bound to or reached by, besides this machine's loopback. `url`: the address
    shown to people; without it, the one a request was sent to.
    """
    return App(services, trusted=trusted, hosts=hosts, url=url, body_limit=body_limit)
