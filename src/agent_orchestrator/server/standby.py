"""The application of a daemon in standby: reports that, and which daemon is active. An `SwitchableApp` later switches to the real
application.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_orchestrator import __version__
from agent_orchestrator.errors import AoError, Unreachable
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.schema import problems

GetActive = Callable[[], dict[str, Any] | None]
"""Returns the active daemon: host, pid, since, url; or None if it is not known."""


class SwitchableApp:
    """The entry point for requests; the application behind it may be replaced while connections stay open."""

    def __init__(self, app: Any) -> None:
        self.app = app

    @property
    def state(self) -> Any:
        """The state of the application behind it."""
        return self.app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self.app
        await app(scope, receive, send)


class Standby:
    """Answers health checks and its owner's shutdown request; every other request is refused in favor of the active daemon."""

    def __init__(
        self, active: GetActive, shutdown: Callable[[bool], Awaitable[None]] | None, hosts: Iterable[str] = ()
    ) -> None:
        """`shutdown` is set on the Unix socket, whose callers may do everything. `hosts`: as for the real application."""
        self.state = SimpleNamespace(closing=asyncio.Event())
        self._get_active = active
        self._shutdown = shutdown
        self._host_names = auth.HostNames(hosts) if shutdown is None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1013, "reason": "this daemon stands by"})
            return
        await self._answer(scope)(scope, receive, send)
        if self._is_shutdown(scope) and self._shutdown is not None:
            await self._shutdown(False)

    def _answer(self, scope: Scope) -> Response:
        """Return the answer to a request."""
        try:
            if self._host_names is not None:  # foreign web pages get no information here either
                self._host_names.check(auth.headers_by_name(scope["headers"]), api=True, scheme=scope["scheme"])
        except AoError as error:
            return problems.document_response(problems.error_document(error))
        if (scope["method"], scope["path"]) == ("GET", "/healthz"):
            health = {"status": "standby", "version": __version__, "pid": os.getpid(), "active": self._get_active()}
            return Response(json.dumps(health), 200, {"Cache-Control": "no-store"}, "application/json")
        if self._is_shutdown(scope):
            return Response("{}", 202, None, "application/json")
        return problems.document_response(problems.error_document(self._not_active_error()))

    def _is_shutdown(self, scope: Scope) -> bool:
        """Return whether this is its owner's shutdown request."""
        return self._shutdown is not None and (scope["method"], scope["path"]) == ("POST", "/api/shutdown")

    def _not_active_error(self) -> AoError:
        """Return the error that names the active daemon."""
        active = self._get_active()
        if active is None:
            return Unreachable("this daemon stands by, and is about to take over", "try again in a moment")
        remedy = (
            f"ask that one{' at ' + active['url'] if active['url'] else ''}, or end it: ao shutdown on {active['host']}"
        )
        return Unreachable(
            f"this daemon stands by: {active['host']}'s daemon (pid {active['pid']}, since {active['since']}) is active",
            remedy,
        )
