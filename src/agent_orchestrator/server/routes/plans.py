"""Routes for plans: create tasks for a goal, change them, create issues for them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query, Response
from fastapi import Path as InPath

from agent_orchestrator.errors import UsageError
from agent_orchestrator.server.access.request_context import resolve_listed_project
from agent_orchestrator.server.dependencies import IdempotencyKey, ProjectName, TheContext, TheIdentity, TheServices
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for

router = router_for("plans", "/api")


async def _plan(
    services: TheServices,
    context: TheContext,
    plan: Annotated[str, InPath(max_length=20, description="The plan's id: `P3`.")],
) -> str:
    """Return the id of the plan that the path names."""
    return services.planner.find(plan, context.only).id


PlanId = Annotated[str, Depends(_plan)]


@router.get("/plans", responses=responds_with("Plans"))
async def list_plans(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    everything: Annotated[bool, Query(alias="all", description="All projects.")] = False,
) -> Response:
    """List the plans that were not discarded, the newest first."""
    scope = await resolve_listed_project(services, context, project, everything)
    return as_json({"plans": services.planner.list(scope)})


@router.post("/plans", status_code=202, responses=responds_with("Plan", 202))
async def make_plan(
    services: TheServices,
    context: TheContext,
    identity: TheIdentity,
    body: requests.NewPlan,
    key: IdempotencyKey = None,
) -> Response:
    """Have a goal made into tasks by an agent that may only look; without a goal, the tracker's open issues.

    It is being planned when this is answered: ask for it until its `state` is another than `planning`; `progress` says what the
    agent does. With `tasks` it is a draft at once."""
    project_id = await services.projects.resolve(context, body.project_id, adopt=True)
    if project_id is None:
        raise UsageError("no project is named", "name one: -p P, or projectId; `ao projects` lists them")
    plan = await services.planner.create(
        project_id,
        body.goal,
        from_issues=body.from_issues,
        agent=body.agent,
        model=body.model,
        tasks=None if body.tasks is None else [task.data() for task in body.tasks],
        key=key,
        by=identity.name or "person",
    )
    return as_json(plan, 202)


@router.get("/plans/{plan}", responses=responds_with("Plan"))
async def get_plan(
    services: TheServices,
    plan: PlanId,
    form: Annotated[Literal["json", "yaml"], Query(alias="as", description="`yaml`: as text, to be edited.")] = "json",
) -> Response:
    """One plan."""
    if form == "yaml":
        return Response(services.planner.text(plan), media_type="text/plain; charset=utf-8")
    return as_json(services.planner.get(plan))


@router.put("/plans/{plan}", responses=responds_with("Plan"))
async def change_plan(
    services: TheServices, identity: TheIdentity, plan: PlanId, body: requests.PlanChange
) -> Response:
    """Put other tasks in the place of a plan's, as long as it is not applied."""
    by = identity.name or "person"
    if body.text is not None:
        return as_json(await services.planner.change_text(plan, body.text, by))
    return as_json(await services.planner.change(plan, [task.data() for task in body.tasks or ()], body.goal, by))


@router.post("/plans/{plan}/apply", responses=responds_with("Plan"))
async def apply_plan(
    services: TheServices, identity: TheIdentity, plan: PlanId, body: requests.PlanApplication
) -> Response:
    """Make issues of a plan's tasks, each once; what is applied already stays as it is.

    At a tracker elsewhere it is `applying` until all of them are made."""
    by = identity.name or "person"
    return as_json(await services.planner.apply(plan, start=body.start, group_limit=body.group_limit, by=by))


@router.delete("/plans/{plan}", responses=responds_with("Plan"))
async def discard_plan(services: TheServices, identity: TheIdentity, plan: PlanId) -> Response:
    """Discard a plan that is not applied; its agent is ended, if it is still being planned."""
    return as_json(await services.planner.discard(plan, identity.name or "person"))
