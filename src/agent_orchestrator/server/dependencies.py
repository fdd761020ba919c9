"""The dependencies of routes: the services, the caller, and the session that a request names."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Query
from fastapi import Path as InPath
from fastapi.requests import HTTPConnection

from agent_orchestrator.base.api_tokens import Identity
from agent_orchestrator.config.projects.projects import CommandContext
from agent_orchestrator.errors import Denied
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.access.request_context import MAX_KEY_LENGTH
from agent_orchestrator.server.services import Services


async def _services(connection: HTTPConnection) -> Services:
    """Return the services."""
    services: Services = connection.app.state.services
    return services


async def _identity(connection: HTTPConnection) -> Identity:
    """Return the caller's identity, as the gate found it."""
    identity: Identity = connection.scope["state"]["identity"]
    return identity


async def _context(connection: HTTPConnection) -> CommandContext:
    """Return the caller's folder and configuration."""
    context: CommandContext = connection.scope["state"]["context"]
    return context


TheServices = Annotated[Services, Depends(_services)]
TheIdentity = Annotated[Identity, Depends(_identity)]
TheContext = Annotated[CommandContext, Depends(_context)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY_LENGTH,
        description="The same key again, of the same caller, is the same request: it is done once and answered alike.",
    ),
]
ProjectName = Annotated[
    str | None, Query(description="A project's id; without it, the project of the caller's folder (Unix socket only).")
]


async def _session(
    connection: HTTPConnection,
    services: TheServices,
    context: TheContext,
    identity: TheIdentity,
    id: Annotated[str, InPath(description="A session: its id, name, `<project>-<name>`, or a unique beginning.")],  # noqa: A002
    project: ProjectName = None,
) -> str:
    """Return the id of the session that the path names; raise Denied if an agent would change its own."""
    session = services.sessions.find(id, await services.projects.resolve(context, project), context.only).id
    is_own = identity.kind == "session" and session == identity.session
    if is_own and connection.scope.get("method", "GET") != "GET":
        raise Denied(f"{session} is your own session", "name another one: ao status lists them")
    return session


SessionId = Annotated[str, Depends(_session)]


def actor_name(identity: Identity) -> str:
    """Return who acts, as events record it: an agent by its session; every other caller is a person."""
    return identity.name if identity.kind == "session" and identity.name else "person"


async def _require_admin(identity: TheIdentity) -> None:
    """Raise Denied unless the caller is an administrator."""
    auth.require_role(identity, "admin")


async def _require_local(identity: TheIdentity) -> None:
    """Raise Denied unless the request came over the Unix socket."""
    if identity.kind != "local":
        raise Denied("this is answered over the Unix socket only", "run `ao` on the daemon's own machine")


admins_only = Depends(_require_admin)
local_only = Depends(_require_local)
