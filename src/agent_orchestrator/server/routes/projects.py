"""Projects: the repositories that are worked in."""

from __future__ import annotations

from fastapi import Response

from agent_orchestrator.server import requests
from agent_orchestrator.server.context import TheContext, TheServices, admins_only
from agent_orchestrator.server.describe import as_json, gives, part

router = part("projects", "/api/projects")


@router.get("", responses=gives("Projects"))
async def list_projects(services: TheServices, context: TheContext) -> Response:
    """All projects, and which of them the caller's folder belongs to."""
    here = await services.projects.resolve(context)
    found = await services.projects.list()
    return as_json({"projects": [one for one in found if context.only in (None, one["id"])], "here": here})


@router.post("", status_code=201, responses=gives("Project", 201), dependencies=[admins_only])
async def add_project(services: TheServices, context: TheContext, body: requests.NewProject) -> Response:
    """Register a repository, or clone one; administrators only.

    With `init`, `created` in the answer names the configuration that was written, `agent` the agent that it names."""
    return as_json(await services.projects.add(body.path, body.url, context, init=body.init), 201)


@router.get("/trust", responses=gives("Trust"), dependencies=[admins_only])
async def preview_trust(services: TheServices, context: TheContext, path: str | None = None) -> Response:
    """The commands that `POST` would trust; administrators only."""
    return as_json(await services.projects.trust(path, context, preview=True))


@router.post("/trust", responses=gives("Trust"), dependencies=[admins_only])
async def trust_project(services: TheServices, context: TheContext, body: requests.Trusted) -> Response:
    """Let the commands that came with a repository run, as they are now; administrators only."""
    shown = body.digest or ""
    return as_json(await services.projects.trust(body.path, context, preview=False, shown=shown))


@router.delete("/{id}", dependencies=[admins_only])
async def remove_project(services: TheServices, id: str) -> Response:  # noqa: A002 - the API's own name
    """Forget a project without live sessions; its repository stays as it is. Administrators only."""
    return as_json(await services.projects.remove(id))
