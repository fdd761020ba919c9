"""What forges and trackers tell by themselves, and Slack of its buttons. Needs no token: the sender signs. The gate answers all but Slack
without this; here it is described.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

from agent_orchestrator.server.context import TheServices
from agent_orchestrator.server.schema.openapi import as_json, gives, part

router = part("webhooks", "/api/webhooks")


@router.post("/{name}", status_code=202, responses=gives("Taken", 202))
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
