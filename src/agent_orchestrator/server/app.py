"""The HTTP application: the routes behind their gate. One instance serves the Unix socket, another one TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_orchestrator import __version__
from agent_orchestrator.server import describe, problems
from agent_orchestrator.server.gate import BODY_LIMIT, Gate
from agent_orchestrator.server.mcp.endpoint import PATH, Endpoint
from agent_orchestrator.server.refusals import Refusals
from agent_orchestrator.server.routes import (
    admin,
    audit,
    config,
    events,
    fixes,
    git,
    issues,
    live,
    login,
    nodes,
    orchestrator,
    plans,
    projects,
    reactions,
    reviews,
    sessions,
    webhooks,
)
from agent_orchestrator.services import Services


class App(FastAPI):
    """FastAPI with a gate in front of everything, its own error handling included."""

    gate: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.gate or super().__call__)(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = describe.polish(super().openapi())
        return self.openapi_schema


def routes_only() -> App:
    """The routes without services behind them: enough to describe them."""
    app = App(
        title="Agent Orchestrator",
        summary="A fleet of coding agents, each in its own Git worktree, on its own branch, its work never lost.",
        description=describe.INTRODUCTION,
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # to wherever a request says that it came to
        responses=describe.PROBLEM_RESPONSES,
        generate_unique_id_function=describe.operation_id,
    )
    problems.install(app)
    for part in (
        sessions,
        reviews,
        reactions,
        issues,
        fixes,
        plans,
        orchestrator,
        events,
        audit,
        live,
        projects,
        config,
        admin,
        nodes,
        login,
        webhooks,
    ):
        app.include_router(part.router)
    app.router.routes.append(Route(PATH, Endpoint(), include_in_schema=False))
    app.router.routes.append(Route(git.PATH, git.Endpoint(), include_in_schema=False))
    return app


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
    app = routes_only()
    app.state.services = services
    app.state.closing = asyncio.Event()
    app.state.refusals = Refusals(services.audit.tell_soon)
    app.state.url = url
    app.gate = Gate(
        partial(FastAPI.__call__, app),
        services,
        app.state.refusals,
        trusted=trusted,
        hosts=hosts,
        body_limit=body_limit,
    )
    return app
