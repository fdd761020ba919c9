"""What OpenAPI says of the routes beyond what their code says by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Response
from fastapi.params import Depends
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from agent_orchestrator.server.schema.models import Shown

INTRODUCTION = """\
Over the Unix socket in `$AO_HOME` no token is needed. Over TCP everything needs one, sent as `Authorization: Bearer TOKEN`,
except `/healthz`, signed webhooks and links, `POST /api/login` and the dashboard's own files; `ao token new NAME` makes one. A browser
signs in by `POST /api/login` and is then known by its cookie; with that, a change must come from a page of this server and be JSON.
The role `viewer` may read and watch, `operator` may also work with sessions, `admin` may do everything. The token that an agent gets
(`AO_TOKEN`) reads its own session, judges the change that it was asked about, and nothing else. A token that is shown over the Unix
socket counts there too.

`POST /mcp` is a server of the Model Context Protocol, for the same tokens and outside of this document: its messages are JSON-RPC.

Errors are problem documents (RFC 9457) that say what is wrong and what to do. Times are RFC 3339 in UTC."""

_SCHEMAS = "#/components/schemas/"

PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What went wrong, and what to do",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


def part(tag: str, prefix: str = "", dependencies: Sequence[Depends] | None = None) -> APIRouter:
    """Routes about one noun."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=dependencies,
        responses=PROBLEM_RESPONSES,
        generate_unique_id_function=operation_id,
    )


def gives(model: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Document an answer by the name of its model. Nothing is checked by it, so it is loaded for the document alone."""
    return {status: {"description": model, "content": {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{model}"}}}}}


def gives_lines(model: str) -> dict[int | str, dict[str, Any]]:
    """Document an answer of JSON objects, one per line, by the name of their model."""
    schema = {"$ref": f"{_SCHEMAS}{model}"}
    return {200: {"description": model, "content": {"application/x-ndjson": {"schema": schema}}}}


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
    models = _models()
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "dashboard": {"type": "apiKey", "in": "cookie", "name": "ao_session_PORT"},
    }
    document["security"] = [{"token": []}, {"dashboard": []}]
    named = {"Problem"}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _summarise(operation)
            for answer in operation["responses"].values():
                _drop_default_content(answer.get("content", {}))
                named |= _describe(answer, models)
            if path in ("/healthz", "/api/login", "/answer/{token}"):
                operation["security"] = []
    schemas = components.get("schemas", {}) | _schemas([models[name] for name in sorted(named)])
    components["schemas"] = dict(sorted(schemas.items()))
    return document


def _models() -> dict[str, type[Shown]]:
    from agent_orchestrator.server.schema import audit_models, board_models, models

    found = {name: one for module in (models, audit_models, board_models) for name, one in vars(module).items()}
    return {name: one for name, one in found.items() if isinstance(one, type) and issubclass(one, models.Shown)}


def _describe(answer: dict[str, Any], models: Mapping[str, type[Shown]]) -> set[str]:
    """Say what an answer is, in the words of its model; returns the models that it names."""
    schemas = [content.get("schema", {}) for content in answer.get("content", {}).values()]
    named = {schema["$ref"].removeprefix(_SCHEMAS) for schema in schemas if "$ref" in schema}
    for name in named & {answer["description"]}:
        answer["description"] = (models[name].__doc__ or "").strip().splitlines()[0]
    return named


def _schemas(models: Sequence[type[Shown]]) -> dict[str, Any]:
    from pydantic.json_schema import models_json_schema

    wanted: list[tuple[Any, Literal["serialization"]]] = [(model, "serialization") for model in models]
    _, found = models_json_schema(wanted, by_alias=True, ref_template=f"{_SCHEMAS}{{model}}")
    definitions: dict[str, Any] = json.loads(json.dumps(found["$defs"]), object_hook=_without_null)
    return definitions


def _without_null(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if value is not None}


def _summarise(operation: dict[str, Any]) -> None:
    summary, _, rest = operation.pop("description", operation["operationId"]).partition("\n")
    operation["summary"] = summary.rstrip(".")
    if rest.strip():
        operation["description"] = rest.strip()


def _drop_default_content(content: dict[str, Any]) -> None:
    """FastAPI declares JSON everywhere; where another type is declared, that one holds."""
    if len(content) > 1 and content.get("application/json", {}).get("schema") == {}:
        del content["application/json"]
