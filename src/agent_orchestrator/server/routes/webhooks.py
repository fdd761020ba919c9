"""The route for webhooks of forges and trackers, and for Slack's buttons. It needs no token: the sender signs.

The gate answers all webhooks except Slack's without this route; it is defined here to be documented.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from agent_orchestrator.server.dependencies import TheServices
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for

router = router_for("webhooks", "/api/webhooks")


@router.post("/{name}", status_code=202, responses=responds_with("WebhookReceipt", 202))
async def take_webhook(
    services: TheServices,
    request: Request,
    name: Annotated[str, Path(description="github, gitlab, linear, jira or slack.")],
) -> Response:
    """Take a webhook; it is answered before anything is read because of it."""
    headers = {key.lower(): value for key, value in request.headers.items()}
    if name == "slack":
        return as_json({"taken": await services.slack.receive(headers, await request.body())}, 200)
    return as_json({"taken": await services.webhooks.receive(name, headers, await request.body())}, 202)
