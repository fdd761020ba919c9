"""What a daemon answers that stands by: that it does, and who is active. An `Entrance` then leads to the real application."""

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

Told = Callable[[], dict[str, Any] | None]
"""Who is active: host, pid, since, url; none if that is not known just now."""


class Entrance:
    """Where requests come in; whatever is behind it may change while connections stay open."""

    def __init__(self, app: Any) -> None:
        self.app = app

    @property
    def state(self) -> Any:
        """What is kept with whatever is behind it."""
        return self.app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self.app
        await app(scope, receive, send)


class Standby:
    """Health, and for its owner the end; whatever else is asked is for the active daemon."""

    def __init__(
        self, active: Told, shutdown: Callable[[bool], Awaitable[None]] | None, hosts: Iterable[str] = ()
    ) -> None:
        """`shutdown`: on the Unix socket, where whoever can connect may do everything. `hosts`: as for the real application."""
        self.state = SimpleNamespace(closing=asyncio.Event())
        self._active = active
        self._shutdown = shutdown
        self._names = auth.Names(hosts) if shutdown is None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1013, "reason": "this daemon stands by"})
            return
        await self._answer(scope)(scope, receive, send)
        if self._ends(scope) and self._shutdown is not None:
            await self._shutdown(False)

    def _answer(self, scope: Scope) -> Response:
        try:
            if self._names is not None:  # a web page is told nothing here either
                self._names.check(auth.single(scope["headers"]), api=True, scheme=scope["scheme"])
        except AoError as error:
            return problems.response(problems.of_error(error))
        if (scope["method"], scope["path"]) == ("GET", "/healthz"):
            health = {"status": "standby", "version": __version__, "pid": os.getpid(), "active": self._active()}
            return Response(json.dumps(health), 200, {"Cache-Control": "no-store"}, "application/json")
        if self._ends(scope):
            return Response("{}", 202, None, "application/json")
        return problems.response(problems.of_error(self._elsewhere()))

    def _ends(self, scope: Scope) -> bool:
        return self._shutdown is not None and (scope["method"], scope["path"]) == ("POST", "/api/shutdown")

    def _elsewhere(self) -> AoError:
        active = self._active()
        if active is None:
            return Unreachable("this daemon stands by, and is about to take over", "try again in a moment")
        there = (
            f"ask that one{' at ' + active['url'] if active['url'] else ''}, or end it: ao shutdown on {active['host']}"
        )
        return Unreachable(
            f"this daemon stands by: {active['host']}'s daemon (pid {active['pid']}, since {active['since']}) is active",
            there,
        )
