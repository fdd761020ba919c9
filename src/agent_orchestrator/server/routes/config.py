"""Routes for the configuration: read and change values, check files, describe the format."""

from __future__ import annotations

from fastapi import Response

from agent_orchestrator.core import events as e
from agent_orchestrator.server.dependencies import TheContext, TheServices, admins_only
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, responds_with_text, router_for

router = router_for("configuration", "/api/config")


@router.get("/value", responses=responds_with("Value"), dependencies=[admins_only])
async def get_config_value(services: TheServices, context: TheContext, key: str) -> Response:
    """One value and the file it comes from; administrators only."""
    return as_json(await services.config.get(key, context))


@router.put("/value", responses=responds_with("Value"), dependencies=[admins_only])
async def set_config_value(services: TheServices, context: TheContext, body: requests.Setting) -> Response:
    """Change one value, comments kept; administrators only."""
    changed = await services.config.set(body.key, body.value, context)
    await services.audit.record(e.SettingChanged(body.key, changed["file"]))
    return as_json(changed)


@router.post("/validate", responses=responds_with("Validity"))
async def validate_config(services: TheServices, context: TheContext, body: requests.ConfigText) -> Response:
    """Check a configuration without taking it into force."""
    return as_json(await services.config.validate(body.path, body.text, context))


@router.post("/import", responses=responds_with("Imported"), dependencies=[admins_only])
async def import_config(services: TheServices, context: TheContext, body: requests.ImportRequest) -> Response:
    """Take over another orchestrator's configuration; administrators only.

    One that came with a repository is written only with the digest of what a dry run showed that it would run or open.
    """
    imported = await services.config.import_file(
        body.path,
        body.text,
        context,
        output=body.output,
        replace=body.replace,
        dry_run=body.dry_run,
        shown_digest=body.digest,
    )
    return as_json(imported)


@router.get("/schema")
async def get_config_schema(services: TheServices) -> Response:
    """Return the configuration's JSON Schema."""
    return as_json(services.config.schema())


@router.get("/help", responses=responds_with_text("The configuration explained"))
async def get_config_help(services: TheServices) -> Response:
    """Return an explanation of the configuration, as text."""
    return Response(services.config.help(), media_type="text/plain")
