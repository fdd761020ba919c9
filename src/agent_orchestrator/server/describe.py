"""What OpenAPI says of the routes beyond what their code says by itself."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from agent_orchestrator.server.models import Problem

INTRODUCTION = """\
Over the Unix socket in `$AO_HOME` no token is needed. Over TCP everything needs one, sent as `Authorization: Bearer TOKEN`,
except `/healthz`, signed webhooks, `POST /api/login` and the dashboard's own files; `ao token new NAME` makes one. A browser signs
in by `POST /api/login` and is then known by its cookie; with that, a change must come from a page of this server and be JSON.
The role `viewer` may read and watch, `operator` may also work with sessions, `admin` may do everything. The token that an agent gets
(`AO_TOKEN`) reads its own session, judges the change that it was asked about, and nothing else. A token that is shown over the Unix
socket counts there too.

`POST /mcp` is a server of the Model Context Protocol, for the same tokens and outside of this document: its messages are JSON-RPC.

Errors are problem documents (RFC 9457) that say what is wrong and what to do. Times are RFC 3339 in UTC."""

PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What went wrong, and what to do",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


def gives(model: type[BaseModel], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Document an answer without having it checked again."""
    return {status: {"model": model, "description": (model.__doc__ or "").strip().splitlines()[0]}}


def gives_text(description: str, media_type: str = "text/plain") -> dict[int | str, dict[str, Any]]:
    """Document an answer that is no JSON object."""
    return {200: {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}}


def as_json(data: Any, status: int = 200) -> Response:
    """Data that is JSON already, as an answer."""
    return Response(
        json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"),
        status,
        media_type="application/json",
    )


def operation_id(route: APIRoute) -> str:
    """A route's name for generated clients."""
    return to_camel(route.name)


def polish(document: dict[str, Any]) -> dict[str, Any]:
    """Give each operation its first sentence as summary, and the document its problem and its ways to sign in."""
    components = document.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = Problem.model_json_schema(by_alias=True)
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "dashboard": {"type": "apiKey", "in": "cookie", "name": "ao_session_PORT"},
    }
    document["security"] = [{"token": []}, {"dashboard": []}]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _summarise(operation)
            for answer in operation["responses"].values():
                _drop_default_content(answer.get("content", {}))
            if path in ("/healthz", "/api/login"):
                operation["security"] = []
    return document


def _summarise(operation: dict[str, Any]) -> None:
    summary, _, rest = operation.pop("description", operation["operationId"]).partition("\n")
    operation["summary"] = summary.rstrip(".")
    if rest.strip():
        operation["description"] = rest.strip()


def _drop_default_content(content: dict[str, Any]) -> None:
    """FastAPI declares JSON everywhere; where another type is declared, that one holds."""
    if len(content) > 1 and content.get("application/json", {}).get("schema") == {}:
        del content["application/json"]
