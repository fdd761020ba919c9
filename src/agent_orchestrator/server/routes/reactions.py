"""Routes for reaction rules: which apply, and what one would do."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from agent_orchestrator.errors import UsageError
from agent_orchestrator.server.dependencies import ProjectName, SessionId, TheContext, TheServices
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for

router = router_for("reactions", "/api")


@router.get("/reactions", responses=responds_with("Rules"))
async def list_reactions(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    session: Annotated[str | None, Query(description="A session: its own rules, and how far each is.")] = None,
) -> Response:
    """List the reaction rules in force, for a project or for one session."""
    project_id = await services.projects.resolve(context, project)
    if session:
        return as_json(
            {"rules": services.reactions.list(None, services.sessions.find(session, project_id, context.only).id)}
        )
    if project_id is None:
        raise UsageError("no project is named", "give ?project=NAME or ?session=S; `ao projects` lists them")
    return as_json({"rules": services.reactions.list(project_id)})


@router.post("/sessions/{id}/reactions/test", responses=responds_with("TestedRules"))
async def test_reaction(services: TheServices, session: SessionId, body: requests.TestedTrigger) -> Response:
    """Return what the rules of a trigger would do for this session now, without doing it.

    Where facts are missing, sample values are used; `sample` names them.
    """
    return as_json(await services.reactions.test(body.trigger, session))
