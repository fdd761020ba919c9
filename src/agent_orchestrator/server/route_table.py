"""The routes: which file serves which part of the API, each loaded with the first request for it.

FastAPI inspects every signature and builds its validators, which takes time and memory; most daemons never get requests for most
parts.
"""

from __future__ import annotations

import asyncio
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.datastructures import State
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agent_orchestrator import __version__
from agent_orchestrator.server import error_handlers, routes
from agent_orchestrator.server.mcp.endpoint import PATH, McpEndpoint
from agent_orchestrator.server.schema import openapi as describe

ROOTS_BY_FILE = {
    "sessions": "sessions questions usage accounts permissions tasks completion",
    "reviews": "queue conflicts notifications",
    "reactions": "reactions",
    "issues": "issues backlog",
    "fixes": "fixes",
    "plans": "plans",
    "orchestrator": "orchestrator",
    "events": "events",
    "audit": "audit",
    "live": "live overview stats recap",
    "projects": "projects",
    "config": "config",
    "admin": "healthz metrics agents plugins doctor prune tokens shutdown",
    "nodes": "nodes",
    "login": "me login logout login-links",
    "webhooks": "webhooks",
    "answers": "answer",
}
"""The file for each first word after `/api/`; OpenAPI lists the files in this order."""
SESSION_PATHS_BY_FILE = {
    "reviews": "review reviewers request-review resolve merge ready close undo checks",
    "reactions": "reactions",
    "events": "events",
    "live": "timeline work",
}
"""The file for each word after a session's id, if it is not the file of the session itself."""

_FILE_BY_ROOT = {word: file for file, words in ROOTS_BY_FILE.items() for word in words.split()}
_FILE_BY_SESSION_PATH = {word: file for file, words in SESSION_PATHS_BY_FILE.items() for word in words.split()}


def find_file(path: str) -> str | None:
    """Return the file that serves a path, or None."""
    first, _, rest = path.removeprefix("/").removeprefix("api/").partition("/")
    if first == "sessions" and "/" in rest:
        return _FILE_BY_SESSION_PATH.get(rest.split("/")[1], first)
    return _FILE_BY_ROOT.get(first)


class Routes(FastAPI):
    """FastAPI whose routes are loaded when they are requested."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            for file in ROOTS_BY_FILE:
                load_routes(file)
            order = [*ROOTS_BY_FILE, None]
            with _load_lock:  # replaced at once: a list is empty to other threads while it is sorted in place
                routes = self.router.routes
                routes[:] = sorted(routes, key=lambda route: order.index(find_file(getattr(route, "path", ""))))
            self.openapi_schema = describe.complete_document(super().openapi())
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        file = find_file(path)
        if file is not None and file not in _loaded_files:
            await asyncio.to_thread(load_routes, file)
        elif path == "/openapi.json":
            await asyncio.to_thread(shared_routes().openapi)
        await super().__call__(scope, receive, send)


_loaded_files: set[str] = set()
_load_lock = Lock()
_build_lock = Lock()


def load_routes(file: str) -> None:
    """Load the routes of one file, if they are not loaded yet."""
    router: APIRouter = import_module(f"{routes.__name__}.{file}").router
    with _load_lock:
        if file not in _loaded_files:
            shared_routes().router.routes.extend(router.routes)
            _loaded_files.add(file)


def shared_routes() -> Routes:
    """Return the routes without services, which is enough to describe them; one shared object, thread-safe."""
    with _build_lock:
        return _build_routes()


@cache
def _build_routes() -> Routes:
    """Create the application that holds the routes."""
    app = Routes(
        title="Agent Orchestrator",
        summary="A fleet of coding agents, each in its own Git worktree, on its own branch, its work never lost.",
        description=describe.INTRODUCTION,
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would go to the host that the request names
    )
    error_handlers.install(app)
    app.router.routes.append(Route(PATH, McpEndpoint(), include_in_schema=False))
    if find_spec("agent_orchestrator.cluster"):  # only nodes fetch and push
        from agent_orchestrator.server.routes import git

        app.router.routes.append(Route(git.PATH, git.GitEndpoint(), include_in_schema=False))
    return app


def routes_for(state: State) -> Routes:
    """Return an application with the same routes on the services in `state`."""
    app = Routes(openapi_url=None, docs_url=None, redoc_url=None)
    error_handlers.install(app)
    app.router, app.state = shared_routes().router, state
    return app
