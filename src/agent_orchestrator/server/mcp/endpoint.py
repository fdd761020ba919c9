"""`/mcp` on the Unix socket and on TCP: reads a request, identifies the caller, and passes both to the protocol.

The protocol's library takes time and memory, so it is loaded in a thread with the first request.
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

from agent_orchestrator.base.api_tokens import Identity
from agent_orchestrator.core.actor import current_actor
from agent_orchestrator.server.access.auth import actor_of
from agent_orchestrator.server.access.caller import Caller
from agent_orchestrator.server.access.gate import MAX_BODY_BYTES
from agent_orchestrator.server.schema import problems
from agent_orchestrator.server.services import Services

PATH = "/mcp"
_PROTOCOL = "agent_orchestrator.server.mcp.protocol"
_MAX_ID_LENGTH = 200
_MAX_ID_NUMBER = 2**53


class McpEndpoint:
    """The ASGI app at `/mcp`."""

    def __init__(self) -> None:
        self._protocol: ModuleType | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "POST":
            document = problems.problem_document(
                405, f"{request.method} is not possible at {PATH}", remedy="use POST", category="usage", exit_code=2
            )
            await problems.document_response(document, {"Allow": "POST"})(scope, receive, send)
            return
        body = await request.body()
        if fault := _invalid_message_answer(body):
            await JSONResponse(fault, 400)(scope, receive, send)
            return
        caller = _caller(request)
        if self._protocol is None:
            self._protocol = await asyncio.to_thread(import_module, _PROTOCOL)
        await self._protocol.answer_request(caller, MAX_BODY_BYTES, scope, _replay_body(body, receive), send)


def _caller(request: Request) -> Caller:
    """Return the caller; on the Unix socket, a request may act for a session's agent."""
    services: Services = request.app.state.services
    identity: Identity = request.scope["state"]["identity"]
    session_name = request.headers.get("x-ao-session")
    if session_name and identity.kind == "local":
        facts = services.sessions.find(session_name)
        identity = Identity("session", session=facts.id, generation=facts.generation)
        if behalf := current_actor():
            behalf.actor = actor_of(identity)
    caller = Caller(services, identity, request.scope["state"]["context"])
    _ = caller.session  # raises for the token of a session that does not exist
    return caller


def _invalid_message_answer(body: bytes) -> dict[str, Any] | None:
    """Return the error answer to a body that is not a valid message, or None if it is one."""
    try:
        message = json.loads(body, parse_constant=_refuse_constant)
        json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return _error(-32700, "this is not JSON")
    if not isinstance(message, dict):
        return _error(-32600, "a request is one JSON object; batches are not taken")
    id_ = message.get("id")
    is_short_text = isinstance(id_, str) and len(id_) <= _MAX_ID_LENGTH
    is_small_number = isinstance(id_, int) and not isinstance(id_, bool) and abs(id_) <= _MAX_ID_NUMBER
    if "id" in message and not is_short_text and not is_small_number:
        return _error(-32600, f"an id is a whole number, or a text of at most {_MAX_ID_LENGTH} characters")
    return None


def _refuse_constant(name: str) -> None:
    """Raise ValueError for NaN and Infinity, which are not JSON."""
    raise ValueError(name)


def _error(code: int, text: str) -> dict[str, Any]:
    """Return a JSON-RPC error."""
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body again, for the next reader."""
    is_sent = False

    async def receive_again() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
