"""Routes for the coordinating agent of a project: start it, give it a goal, read its state, stop it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Response

from agent_orchestrator.config.projects.projects import CommandContext
from agent_orchestrator.errors import UsageError
from agent_orchestrator.server.dependencies import IdempotencyKey, ProjectName, TheContext, TheServices
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for
from agent_orchestrator.server.services import Services

router = router_for("orchestrator", "/api/orchestrator")


async def _project(services: TheServices, context: TheContext, project: ProjectName = None) -> str:
    """Return the id of the project that a request is about."""
    return await _resolve_project(services, context, project)


TheProject = Annotated[str, Depends(_project)]


async def _resolve_project(
    services: Services, context: CommandContext, project: str | None, *, adopt: bool = False
) -> str:
    """Return the id of the project that is meant; raise UsageError if none is."""
    project_id = await services.projects.resolve(context, project, adopt=adopt)
    if project_id is None:
        raise UsageError("no project is named", "name one: -p P, or ?project=P; `ao projects` lists them")
    return project_id


@router.get("", responses=responds_with("CoordinatorState"))
async def get_orchestrator(services: TheServices, project: TheProject) -> Response:
    """How a project's coordinating agent stands."""
    return as_json(services.coordinators.view(project))


@router.post("", status_code=202, responses=responds_with("CoordinatorState", 202))
async def start_orchestrator(
    services: TheServices,
    context: TheContext,
    body: requests.NewGoal,
    project: ProjectName = None,
    key: IdempotencyKey = None,
) -> Response:
    """Start a project's coordinating agent, or find the one that runs, and give it a goal.

    One that was stopped goes on with its conversation, unless `coordinator.conversation` says otherwise."""
    project_id = await _resolve_project(services, context, body.project_id or project, adopt=True)
    return as_json(await services.coordinators.start_with_goal(project_id, body.goal, body.agent, body.model, key), 202)


@router.delete("", responses=responds_with("CoordinatorState"))
async def stop_orchestrator(services: TheServices, project: TheProject, key: IdempotencyKey = None) -> Response:
    """Stop a project's coordinating agent; its conversation is kept."""
    return as_json(await services.coordinators.stop(project, key))
