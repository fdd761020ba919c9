"""Routes for the machines of the cluster: list, add and drain them; and the WebSocket of their links."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import structlog
from fastapi import Path, Request, Response, WebSocket

from agent_orchestrator.core import events as e
from agent_orchestrator.errors import AoError, Denied
from agent_orchestrator.protocols.text import one_line
from agent_orchestrator.server.dependencies import TheIdentity, TheServices, admins_only
from agent_orchestrator.server.schema import problems, requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, responds_with_text, router_for
from agent_orchestrator.server.streams import EndlessResponse

router = router_for("cluster", "/api/nodes")
log = structlog.get_logger(__name__)

NodeName = Annotated[str, Path(alias="name", description="The node's name.")]


@router.get("", responses=responds_with("Nodes"))
async def list_nodes(services: TheServices) -> Response:
    """List the machines of the cluster: their state, labels, free resources, and the sessions that live there."""
    return as_json({"nodes": await services.cluster.list_nodes()})


@router.post("", status_code=201, responses=responds_with("MadeNode", 201), dependencies=[admins_only])
async def add_node(services: TheServices, body: requests.NewNode) -> Response:
    """Let a machine join that is started by hand: gives its token, and the command that starts its worker. Administrators only."""
    node = services.cluster.add(body.name)
    await services.audit.record(e.TokenMade(body.name, kind="node"))
    return as_json(node, 201)


@router.post("/{name}/drain", responses=responds_with("Draining"), dependencies=[admins_only])
async def drain_node(services: TheServices, name: NodeName, body: requests.DrainNode) -> Response:
    """Give a node no new sessions, and move those that it has to others; `undo` takes it back. Administrators only."""
    return as_json(await services.cluster.drain(name, undo=body.undo, now=body.now))


@router.get(
    "/{name}/drain",
    responses=responds_with_text("One object of the kind that the POST gives a line", "application/x-ndjson"),
)
async def follow_drain(services: TheServices, request: Request, name: NodeName) -> Response:
    """How far a node is drained, again at each change until no session is left there."""
    lines = _lines(services.cluster.follow_drain(name))
    return EndlessResponse(lines, request.app.state.closing, "application/x-ndjson")


@router.websocket("/link")
async def open_link(websocket: WebSocket, services: TheServices, identity: TheIdentity) -> None:
    """Open a node's link; its frames are the project's own."""
    if identity.kind not in ("node", "local"):
        raise Denied("only a node's own token opens this", "make one: ao nodes add NAME")
    await websocket.accept()
    address = websocket.client.host if websocket.client else ""
    try:
        await services.cluster.serve(websocket, identity, address)
    except AoError as error:
        log.warning("a node is refused", node=identity.name, address=address, error=one_line(str(error)))


async def _lines(items: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yield items as JSON lines; an error becomes a last line with `problem`."""
    try:
        async for item in items:
            yield json.dumps(item, separators=(",", ":")).encode() + b"\n"
    except AoError as error:
        yield json.dumps({"problem": problems.error_document(error)}).encode() + b"\n"
