"""Routes for projects: the registered repositories, their proofs and their trust."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request, Response

from agent_orchestrator.core import events as e
from agent_orchestrator.errors import AoError
from agent_orchestrator.server.dependencies import TheContext, TheServices, admins_only
from agent_orchestrator.server.schema import problems, requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, responds_with_lines, router_for
from agent_orchestrator.server.streams import EndlessResponse

router = router_for("projects", "/api/projects")


@router.get("", responses=responds_with("Projects"))
async def list_projects(services: TheServices, context: TheContext) -> Response:
    """All projects, and which of them the caller's folder belongs to."""
    here = await services.projects.resolve(context)
    projects = await services.projects.list()
    return as_json(
        {"projects": [project for project in projects if context.only in (None, project["id"])], "here": here}
    )


@router.post("", status_code=201, responses=responds_with("AddedProject", 201), dependencies=[admins_only])
async def add_project(services: TheServices, context: TheContext, body: requests.NewProject) -> Response:
    """Register a repository, or clone one; administrators only.

    With `init`, `created` names the configuration that was written, and `proposal` has the set-up and test commands that were detected.
    They do not run before `POST /api/projects/{id}/prove` with the proposal's digest, or `POST /api/projects/trust`."""
    added = await services.projects.add(body.path, body.url, context, init=body.init)
    proposal = await services.proofs.proposal(added["id"]) if body.init else None
    return as_json({**added, "proposal": proposal}, 201)


@router.post(
    "/{id}/prove",
    responses=responds_with_lines("ProofLine"),
    dependencies=[admins_only],
)
async def prove_project(
    request: Request,
    services: TheServices,
    id: str,  # noqa: A002 - the API's own name
    body: requests.Proving,
) -> Response:
    """Run a project's set-up and checks in a clean checkout of its base branch; administrators only.

    With `detected`, the digest of a proposal, each way that was detected is tried until one works; that one is written into the
    configuration and trusted. Each second a line says what is `running`; the last one holds the `proof`. An error on the way is a last
    line with `problem`. Closing the connection cancels what runs."""
    await services.audit.record(e.ActionTaken(f"prove {id}"))
    lines = _lines(services.proofs.prove(id, body.detected, run=body.run))
    return EndlessResponse(lines, request.app.state.closing, "application/x-ndjson")


@router.get("/trust", responses=responds_with("Trust"), dependencies=[admins_only])
async def preview_trust(services: TheServices, context: TheContext, path: str | None = None) -> Response:
    """Return the commands that `POST` would trust; administrators only."""
    return as_json(await services.projects.trust(path, context, preview=True))


@router.post("/trust", responses=responds_with("Trust"), dependencies=[admins_only])
async def trust_project(services: TheServices, context: TheContext, body: requests.Trusted) -> Response:
    """Let the commands that came with a repository run, as they are now; administrators only."""
    digest = body.digest or ""
    return as_json(await services.projects.trust(body.path, context, preview=False, shown_digest=digest))


@router.delete("/{id}", dependencies=[admins_only])
async def remove_project(services: TheServices, id: str) -> Response:  # noqa: A002 - the API's own name
    """Forget a project without live sessions; its repository stays as it is. Administrators only."""
    return as_json(await services.projects.remove(id))


async def _lines(items: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yield items as JSON lines; an error becomes a last line with `problem`. Close the source at the end."""
    try:
        async for item in items:
            yield json.dumps(item, separators=(",", ":")).encode() + b"\n"
    except AoError as error:
        yield json.dumps({"problem": problems.error_document(error)}).encode() + b"\n"
    finally:
        if (close := getattr(items, "aclose", None)) is not None:
            await close()
