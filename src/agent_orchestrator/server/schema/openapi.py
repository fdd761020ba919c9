"""Helpers that complete the OpenAPI document beyond what the routes' signatures contain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Response
from fastapi.params import Depends
from fastapi.routing import APIRoute
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from agent_orchestrator.server.schema.models.answer import Answer

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


def router_for(tag: str, prefix: str = "", dependencies: Sequence[Depends] | None = None) -> APIRouter:
    """Return a router for the routes about one noun."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=dependencies,
        responses=PROBLEM_RESPONSES,
        generate_unique_id_function=operation_id,
    )


def responds_with(model: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Document an answer by the name of its model. Answers are not validated against it, so the model is loaded for the document only."""
    return {status: {"description": model, "content": {"application/json": {"schema": {"$ref": f"{_SCHEMAS}{model}"}}}}}


def responds_with_lines(model: str) -> dict[int | str, dict[str, Any]]:
    """Document an answer of JSON objects, one per line, by the name of their model."""
    schema = {"$ref": f"{_SCHEMAS}{model}"}
    return {200: {"description": model, "content": {"application/x-ndjson": {"schema": schema}}}}


def responds_with_text(description: str, media_type: str = "text/plain") -> dict[int | str, dict[str, Any]]:
    """Document an answer that is not a JSON object."""
    return {200: {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}}


def as_json(data: Any, status: int = 200) -> Response:
    """Return data as a JSON answer."""
    return Response(
        json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"),
        status,
        media_type="application/json",
    )


def operation_id(route: APIRoute) -> str:
    """Return a route's name for generated clients."""
    return to_camel(route.name)


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """Add summaries, models, error answers and sign-in methods to the document, and return it."""
    components = document.setdefault("components", {})
    models = _models()
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "dashboard": {"type": "apiKey", "in": "cookie", "name": "ao_session_PORT"},
    }
    document["security"] = [{"token": []}, {"dashboard": []}]
    used_models = {"Problem"}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _summarise(operation)
            for answer in operation["responses"].values():
                _remove_default_content(answer.get("content", {}))
                used_models |= _describe_answer(answer, models)
            if path in ("/healthz", "/api/login", "/answer/{token}"):
                operation["security"] = []
    schemas = components.get("schemas", {}) | _schemas_of([models[name] for name in sorted(used_models)])
    components["schemas"] = dict(sorted(schemas.items()))
    return document


def _models() -> dict[str, type[Answer]]:
    """Return the models of answers by name."""
    from agent_orchestrator.server.schema import models
    from agent_orchestrator.server.schema.models.answer import Answer

    return {
        name: candidate
        for module in models.MODULES
        for name, candidate in vars(module).items()
        if isinstance(candidate, type) and issubclass(candidate, Answer)
    }


def _describe_answer(answer: dict[str, Any], models: Mapping[str, type[Answer]]) -> set[str]:
    """Describe an answer with its model's docstring; return the names of the models it uses."""
    schemas = [content.get("schema", {}) for content in answer.get("content", {}).values()]
    used_models = {schema["$ref"].removeprefix(_SCHEMAS) for schema in schemas if "$ref" in schema}
    for name in used_models & {answer["description"]}:
        answer["description"] = (models[name].__doc__ or "").strip().splitlines()[0]
    return used_models


def _schemas_of(models: Sequence[type[Answer]]) -> dict[str, Any]:
    """Return the JSON Schemas of models."""
    from pydantic.json_schema import models_json_schema

    modes: list[tuple[Any, Literal["serialization"]]] = [(model, "serialization") for model in models]
    _, document = models_json_schema(modes, by_alias=True, ref_template=f"{_SCHEMAS}{{model}}")
    definitions: dict[str, Any] = json.loads(json.dumps(document["$defs"]), object_hook=_without_null)
    return definitions


def _without_null(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object without null values."""
    return {key: value for key, value in mapping.items() if value is not None}


def _summarise(operation: dict[str, Any]) -> None:
    """Use the first line of an operation's description as its summary."""
    summary, _, rest = operation.pop("description", operation["operationId"]).partition("\n")
    operation["summary"] = summary.rstrip(".")
    if rest.strip():
        operation["description"] = rest.strip()


def _remove_default_content(content: dict[str, Any]) -> None:
    """Remove the JSON type that FastAPI declares everywhere if another type is declared."""
    if len(content) > 1 and content.get("application/json", {}).get("schema") == {}:
        del content["application/json"]
