"""Every request is made on somebody's behalf, and no change goes without an entry in the log.

Where a request changes something and no event tells of it, `action-taken` does. The few ways to ask that change nothing by
themselves are named here, each with its reason.
"""

from __future__ import annotations

import structlog
from starlette.types import Message, Scope, Send

from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import Behalf
from agent_orchestrator.errors import AoError
from agent_orchestrator.server.access.auth import is_git
from agent_orchestrator.server.services import Services

EXEMPT = {
    ("POST", "/api/events/replay"): "it only tells what would be done",
    ("POST", "/api/config/validate"): "it only reads",
    ("POST", "/api/sessions/{id}/reactions/test"): "it only tells what would be done",
    (
        "POST",
        "/api/webhooks/{name}",
    ): "it only makes the forge be read sooner; what is read there is recorded as the forge's",
    ("POST", "/mcp"): "most tools only read; the others make the same events as the routes do",
    ("POST", "/git"): "Git also reads by POST; what it pushed is told by the session's own events",
}
"""Method and path of a route → why it leaves no entry of its own."""
_LOOKING = ("GET", "HEAD", "OPTIONS")

log = structlog.get_logger(__name__)


def accounting(services: Services, behalf: Behalf, scope: Scope, send: Send) -> Send:
    """Sends the answer once the change that it tells of is in the log."""
    if scope.get("method", "GET") in _LOOKING:
        return send

    async def accounted(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400 and not behalf.told:
            await _enter(services, scope)
        await send(message)

    return accounted


async def _enter(services: Services, scope: Scope) -> None:
    route = "/git" if is_git(scope["path"]) else getattr(scope.get("route"), "path", scope["path"])
    if (scope["method"], route) in EXEMPT:
        return
    given = scope.get("path_params") or {}
    body = e.ActionTaken(f"{scope['method']} {route}", ", ".join(f"{name}: {value}" for name, value in given.items()))
    try:
        await services.audit.tell(body, given.get("id"))
    except AoError as error:  # it was done all the same
        log.warning("an entry of the audit log could not be written", action=body.action, error=error.text)
