"""Audit entries: every request has an actor, and every change has an entry in the log.

If a request changes something and no event records it, `action-taken` does. `UNRECORDED_ROUTES` names the few requests that change nothing
by themselves, each with its reason.
"""

from __future__ import annotations

import structlog
from starlette.types import Message, Scope, Send

from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import Actor
from agent_orchestrator.errors import AoError
from agent_orchestrator.server.access.auth import is_git
from agent_orchestrator.server.services import Services

UNRECORDED_ROUTES = {
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
"""Method and path of a route → why it has no entry."""
_READING_METHODS = ("GET", "HEAD", "OPTIONS")

log = structlog.get_logger(__name__)


def recording_send(services: Services, behalf: Actor, scope: Scope, send: Send) -> Send:
    """Return a `send` that records a change before its answer is sent."""
    if scope.get("method", "GET") in _READING_METHODS:
        return send

    async def send_recorded(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400 and not behalf.recorded_event_count:
            await _record_action(services, scope)
        await send(message)

    return send_recorded


async def _record_action(services: Services, scope: Scope) -> None:
    """Record `action-taken` for a request that has recorded nothing else."""
    route = "/git" if is_git(scope["path"]) else getattr(scope.get("route"), "path", scope["path"])
    if (scope["method"], route) in UNRECORDED_ROUTES:
        return
    path_params = scope.get("path_params") or {}
    body = e.ActionTaken(
        f"{scope['method']} {route}", ", ".join(f"{name}: {value}" for name, value in path_params.items())
    )
    try:
        await services.audit.record(body, path_params.get("id"))
    except AoError as error:  # the change itself has been made
        log.warning("an entry of the audit log could not be written", action=body.action, error=error.text)
