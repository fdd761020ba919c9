"""What forges and trackers tell by themselves. Needs no token: the sender signs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from agent_orchestrator.server import models
from agent_orchestrator.server.context import TheServices
from agent_orchestrator.server.describe import as_json, gives

router = APIRouter(prefix="/api/webhooks", tags=["webhooks"])


@router.post("/{name}", status_code=202, responses=gives(models.Taken, 202))
async def take_webhook(
    services: TheServices,
    request: Request,
    name: Annotated[str, Path(description="github, gitlab, linear or jira.")],
) -> Response:
    """Take a webhook; it is answered before anything is read because of it."""
    headers = {key.lower(): value for key, value in request.headers.items()}
    return as_json({"taken": services.webhooks.receive(name, headers, await request.body())}, 202)
