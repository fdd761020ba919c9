"""Routes for the daemon itself: health, metrics, agents, plugins, doctor, clean-up, tokens, shutdown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Response

from agent_orchestrator.core import events as e
from agent_orchestrator.errors import Denied
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.dependencies import TheContext, TheIdentity, TheServices, admins_only
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, responds_with_text, router_for
from agent_orchestrator.views.metrics import MetricFamily
from agent_orchestrator.views.traffic import Traffic

router = router_for("daemon", "")


@router.get("/healthz", responses=responds_with("Health"))
async def get_health(services: TheServices) -> Response:
    """Whether the daemon runs; needs no token."""
    return as_json({"status": "ok", "version": services.version, "pid": os.getpid()})


@router.get("/metrics", responses=responds_with_text("Prometheus' text format"))
async def get_metrics(services: TheServices) -> Response:
    """Figures for Prometheus and its like: sessions, events, effects, requests, forges, usage, the daemon itself."""
    metrics = services.metrics
    text = await asyncio.to_thread(_render, await metrics.collect(), metrics.traffic)
    return Response(text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def _render(families: Sequence[MetricFamily], traffic: Traffic) -> bytes:
    """Return metrics in Prometheus' text format; runs in a thread, because the library is loaded the first time."""
    from agent_orchestrator.views.prometheus_format import render

    return render(families, traffic)


@router.get("/api/agents", responses=responds_with("Agents"))
async def list_agents(services: TheServices) -> Response:
    """Whom a task may be given to: coding agents and the projects' profiles, and whether their CLIs are on this machine."""
    return as_json({"agents": await services.agents.list()})


@router.get("/api/plugins", responses=responds_with("Plugins"))
async def list_plugins(services: TheServices) -> Response:
    """Every plugin: ours, those of installed packages, the files that configurations name. Lists them without running any."""
    return as_json({"plugins": await asyncio.to_thread(services.plugins.list)})


@router.get("/api/doctor", responses=responds_with("Findings"))
async def run_doctor(
    services: TheServices,
    context: TheContext,
    identity: TheIdentity,
    fix: Annotated[bool, Query(description="Mend what can be mended; administrators only.")] = False,
) -> Response:
    """Look at every prerequisite and integration."""
    if fix:
        auth.require_role(identity, "admin")
        if identity.kind == "login":  # an image on another site can make a browser send a GET
            raise Denied("a page only looks", "mend it by `ao doctor --fix`")
        await services.audit.record(e.ActionTaken("doctor --fix"))
    await services.projects.resolve(context)
    return as_json({"checks": await services.doctor.run(fix)})


@router.post("/api/prune", responses=responds_with("Pruned"))
async def prune(services: TheServices, body: requests.PruneRequest) -> Response:
    """Clean up what is provably safe."""
    return as_json(await services.prune.run(body.dry_run))


@router.get("/api/tokens", responses=responds_with("Tokens"), dependencies=[admins_only])
async def list_tokens(services: TheServices) -> Response:
    """Named tokens; administrators only."""
    return as_json({"tokens": services.tokens.list()})


@router.post("/api/tokens", status_code=201, responses=responds_with("MadeToken", 201), dependencies=[admins_only])
async def create_token(services: TheServices, body: requests.NewToken) -> Response:
    """Make a token; it is shown this once. Administrators only."""
    id_, token = services.tokens.create(body.name, body.role)
    await services.audit.record(e.TokenMade(body.name, body.role, id_))
    created = next(entry for entry in services.tokens.list() if entry["id"] == id_)
    return as_json({**created, "token": token}, 201)


@router.delete("/api/tokens/{id}", dependencies=[admins_only])
async def revoke_token(services: TheServices, id: str) -> Response:  # noqa: A002 - the API's own name
    """Make a token, given by id or name, worthless; administrators only."""
    revoked = services.tokens.revoke(id)
    await services.audit.record(e.TokenRevoked(revoked["id"], revoked["name"], revoked["role"]))
    return as_json(revoked)


@router.post("/api/shutdown", status_code=202, dependencies=[admins_only])
async def shut_down(services: TheServices, body: requests.Shutdown) -> Response:
    """End the daemon; sessions run on unless they are to be stopped too. Administrators only."""
    await services.audit.record(e.ShutdownRequested(body.sessions))
    await services.shutdown(body.sessions)
    return as_json({}, 202)
