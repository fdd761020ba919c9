"""Routes for fixing runs: failing tests and lint errors, one agent per cause, verified and merged."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path as InPath
from fastapi import Query, Response

from agent_orchestrator.server.access import auth
from agent_orchestrator.server.access.request_context import resolve_listed_project
from agent_orchestrator.server.dependencies import IdempotencyKey, ProjectName, TheContext, TheIdentity, TheServices
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for

router = router_for("fixes", "/api/fixes")

FixId = Annotated[str, InPath(alias="id", description="The run: `F1`.")]


@router.get("", responses=responds_with("Fixes"))
async def list_fixes(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    everything: Annotated[bool, Query(alias="all", description="All projects.")] = False,
) -> Response:
    """List the fixing runs, the newest first."""
    return as_json({"fixes": services.fixes.list(await resolve_listed_project(services, context, project, everything))})


@router.post("", status_code=202, responses=responds_with("Fix", 202))
async def start_fix(
    services: TheServices,
    context: TheContext,
    identity: TheIdentity,
    body: requests.NewFix,
    project: ProjectName = None,
    key: IdempotencyKey = None,
) -> Response:
    """Measure what fails, and have it fixed: one agent per cause, each fix verified, then merged through the merge queue.

    Commands of one's own are for administrators."""
    if body.commands:
        auth.require_role(identity, "admin")
    return as_json(await services.fixes.create(body.request(), body.project_id or project, key, context), 202)


@router.get("/{id}", responses=responds_with("Fix"))
async def get_fix(services: TheServices, name: FixId) -> Response:
    """One fixing run."""
    return as_json(services.fixes.view(name))


@router.get("/{id}/failures", responses=responds_with("FixFailures"))
async def list_fix_failures(
    services: TheServices,
    name: FixId,
    number: Annotated[int | None, Query(alias="round", ge=1, description="Which measurement; the last.")] = None,
) -> Response:
    """Every failure of one measurement, by likely cause."""
    return as_json(services.fixes.report(name, number))


@router.delete("/{id}", responses=responds_with("Fix"))
async def stop_fix(services: TheServices, name: FixId, key: IdempotencyKey = None) -> Response:
    """End a fixing run; its agents are stopped, their work is saved."""
    return as_json(await services.fixes.stop(name, key))
