"""Every changing route leaves an audit entry with its actor, even if it records no other event."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from fastapi import APIRouter, Response
from fastapi.routing import APIRoute
from starlette.routing import Route

from agent_orchestrator.core import events as e
from agent_orchestrator.server import routes
from agent_orchestrator.server.access.audit import UNRECORDED_ROUTES
from agent_orchestrator.server.route_table import Routes, shared_routes
from tests.integration.server.conftest import ServerWorld

pytestmark = pytest.mark.anyio


def changing_routes() -> Iterator[tuple[str, str]]:
    """Yield method and path of every changing route of the API."""
    for path, operations in shared_routes().openapi()["paths"].items():
        yield from ((method.upper(), path) for method in operations if method not in ("get", "head", "options"))


@pytest.fixture
def inactive_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every route by one that answers 204 and records nothing."""

    async def done(_scope: Any) -> Response:
        return Response(status_code=204)

    async def handle(self: APIRoute, scope: Any, receive: Any, send: Any) -> None:
        await (await done(scope))(scope, receive, send)

    monkeypatch.setattr(APIRoute, "handle", handle)


@pytest.mark.parametrize(("method", "path"), sorted(changing_routes()))
async def test_every_changing_route_leaves_an_audit_entry(
    inactive_routes: None, world: ServerWorld, method: str, path: str
) -> None:
    concrete_path = re.sub(r"\{\w+\}", "app-fix", path)
    answer = await world.tcp("admin").ask(method, concrete_path, {} if method in ("POST", "PUT", "PATCH") else None)
    assert answer.status == (202 if path == "/api/webhooks/{name}" else 204)
    if (method, path) in UNRECORDED_ROUTES:
        assert world.services.audit.entries == []
        return
    ((actor, body),) = world.services.audit.entries
    assert isinstance(body, e.ActionTaken)
    assert body.action.replace(":path}", "}") == f"{method} {path}"
    assert body.detail == (
        "" if "{" not in path else ", ".join(f"{name}: app-fix" for name in re.findall(r"\{(\w+)", path))
    )
    assert actor == ("anonymous 127.0.0.1" if path in ("/api/login", "/answer/{token}") else "token admin")


def test_exempt_routes_are_listed_with_a_reason() -> None:
    """Additions to this list must change nothing."""
    assert {path for _, path in UNRECORDED_ROUTES} == {
        "/api/events/replay",
        "/api/config/validate",
        "/api/sessions/{id}/reactions/test",
        "/api/webhooks/{name}",
        "/mcp",
        "/git",
    }
    assert all(UNRECORDED_ROUTES.values())
    described = {*changing_routes()}
    assert all(route in described or route[1] in ("/mcp", "/git") for route in UNRECORDED_ROUTES)


def test_undocumented_routes_are_listed() -> None:
    """Routes that are not in the OpenAPI document are not covered by the test above."""
    app: Routes = shared_routes()
    plain = {route.path for route in app.routes if isinstance(route, Route) and not isinstance(route, APIRoute)}
    assert plain == {"/openapi.json", "/mcp", "/git/{project}.git/{rest:path}"}
    parts = [import_module(f"{routes.__name__}.{part.name}") for part in iter_modules(routes.__path__)]
    all_routes = [route for part in parts for route in getattr(part, "router", APIRouter()).routes]
    assert len(all_routes) > 60
    assert not [route for route in all_routes if isinstance(route, APIRoute) and not route.include_in_schema]


@pytest.mark.parametrize("caller", ["unix", "cli", "viewer", "browser", "agent", "nobody"])
async def test_an_audit_entry_names_the_caller(world: ServerWorld, caller: str) -> None:
    message = ("POST", "/api/sessions/app-fix/message", {"content": "hello"})
    link: tuple[str, str, dict[str, str]] = ("POST", "/api/login-links", {})
    if caller == "unix":
        await world.unix.ask(*link)
        expected: tuple[str, type[e.Body]] = (f"local {getpass.getuser()}", e.LoginLinkMade)
    elif caller == "cli":
        await world.tcp("cli").ask(*message)
        expected = ("cli", e.ActionTaken)
    elif caller == "viewer":
        assert (await world.tcp("viewer").ask(*message)).status == 403
        expected = ("token viewer", e.AccessRefused)
    elif caller == "browser":
        token = world.services.tokens.create("laptop", "operator")[1]
        assert (await world.tcp().ask("POST", "/api/login", {"token": token})).status == 200
        expected = ("browser laptop", e.SignedIn)
    elif caller == "agent":
        agent = world.tcp(token=world.services.tokens.for_session("app-fix", 1))
        assert (await agent.ask(*message)).status == 403
        expected = ("agent app-fix", e.AccessRefused)
    else:
        assert (await world.tcp().ask("POST", "/api/login", {"token": "aot_wrong"})).status == 401
        expected = ("anonymous 127.0.0.1", e.SignInRefused)
    ((actor, body),) = world.services.audit.entries
    assert (actor, type(body)) == expected


async def test_reads_leave_no_entry_except_of_secrets_and_terminals(world: ServerWorld) -> None:
    for path in ("/api/sessions", "/api/sessions/app-fix", "/api/tokens", "/healthz"):
        assert (await world.unix.get(path)).status == 200
    assert world.services.audit.entries == []
    assert (await world.unix.get("/api/sessions/app-fix/environment")).status == 200
    assert (await world.unix.get("/api/sessions/app-fix/attach")).status == 200
    assert [body for _, body in world.services.audit.entries] == [e.EnvironmentRead(), e.TerminalTaken("attached")]


async def test_repeated_refusals_do_not_fill_the_audit_log(world: ServerWorld) -> None:
    for _ in range(70):
        assert (await world.tcp(token="aot_wrong").get("/api/sessions")).status == 401
    assert len(world.services.audit.entries) == 60
