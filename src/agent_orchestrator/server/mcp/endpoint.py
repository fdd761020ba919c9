"""`/mcp` as the daemon serves it, on the Unix socket and on TCP: takes a request whole, sees who asks, and hands it to the protocol.

The protocol's library takes time and memory, so it is loaded with the first request, beside everything else that goes on.
"""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from types import ModuleType
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from agent_orchestrator.config.tokens import Identity
from agent_orchestrator.core.actor import current
from agent_orchestrator.server.access.auth import actor_of
from agent_orchestrator.server.access.gate import BODY_LIMIT
from agent_orchestrator.server.mcp.scopes import Caller
from agent_orchestrator.server.schema import problems
from agent_orchestrator.server.services import Services

PATH = "/mcp"
_PROTOCOL = "agent_orchestrator.server.mcp.protocol"
_LONGEST_ID = 200
_LARGEST_ID = 2**53


class Endpoint:
    """An ASGI app."""

    def __init__(self) -> None:
        self._protocol: ModuleType | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "POST":
            document = problems.problem(
                405, f"{request.method} is not possible at {PATH}", remedy="use POST", category="usage", exit_code=2
            )
            await problems.response(document, {"Allow": "POST"})(scope, receive, send)
            return
        body = await request.body()
        if fault := _fault(body):
            await JSONResponse(fault, 400)(scope, receive, send)
            return
        caller = _caller(request)
        if self._protocol is None:
            self._protocol = await asyncio.to_thread(import_module, _PROTOCOL)
        await self._protocol.serve(caller, BODY_LIMIT, scope, _replayed(body, receive), send)


def _caller(request: Request) -> Caller:
    """Who asks; whoever opened the Unix socket may ask in the place of a session's agent."""
    services: Services = request.app.state.services
    identity: Identity = request.scope["state"]["identity"]
    wanted = request.headers.get("x-ao-session")
    if wanted and identity.kind == "local":
        facts = services.sessions.find(wanted)
        identity = Identity("session", session=facts.id, generation=facts.generation)
        if behalf := current():
            behalf.actor = actor_of(identity)
    caller = Caller(services, identity, request.scope["state"]["context"])
    _ = caller.session  # refuses the token of a session that is not there
    return caller


def _fault(body: bytes) -> dict[str, Any] | None:
    """The answer to what is no message that can be answered; none: it is one."""
    try:
        message = json.loads(body, parse_constant=_no_number)
        json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return _error(-32700, "this is not JSON")
    if not isinstance(message, dict):
        return _error(-32600, "a request is one JSON object; batches are not taken")
    id_ = message.get("id")
    short = isinstance(id_, str) and len(id_) <= _LONGEST_ID
    small = isinstance(id_, int) and not isinstance(id_, bool) and abs(id_) <= _LARGEST_ID
    if "id" in message and not short and not small:
        return _error(-32600, f"an id is a whole number, or a text of at most {_LONGEST_ID} characters")
    return None


def _no_number(name: str) -> None:
    raise ValueError(name)


def _error(code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body again, for whoever reads it next."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
