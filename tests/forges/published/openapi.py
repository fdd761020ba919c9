"""An OpenAPI description of a REST API, to check answers against."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema


class OpenApiDescription:
    def __init__(self, path: Path) -> None:
        document = json.loads(path.read_text())
        self._paths: dict[str, Any] = document["paths"]
        self._parts: dict[str, Any] = document["components"]
        self._schemas = {name: json_schema(schema) for name, schema in self._parts["schemas"].items()}

    def problems(self, method: str, path: str, status: int, body: Any) -> list[str]:
        """Return what is wrong with this answer; nothing if it is as described."""
        template = self._template(method, path)
        if template is None:
            return [f"{method} {path} is not described"]
        responses = self._paths[template][method.lower()]["responses"]
        if str(status) not in responses:
            return (
                []
                if status in (401, 403, 404, 405, 409, 422, 429)
                else [f"{method} {template}: {status} is not described"]
            )
        content = self._resolve(responses[str(status)]).get("content", {}).get("application/json")
        if content is None:
            return (
                []
                if body in (None, b"") or status >= 400
                else [f"{method} {template} {status}: a body where none is described"]
            )
        errors = self._validator(json.dumps(json_schema(content["schema"]))).iter_errors(body)
        return [
            f"{method} {template} {status}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in errors
        ]

    def _resolve(self, part: Any) -> Any:
        return self._parts["responses"][part["$ref"].split("/")[-1]] if "$ref" in part else part

    def _template(self, method: str, path: str) -> str | None:
        templates = [
            template
            for template in self._paths
            if method.lower() in self._paths[template] and _path_pattern(template).fullmatch(path)
        ]
        return max(templates, key=lambda template: len(re.sub(r"\{[^}]*\}", "", template)), default=None)

    @functools.cache  # noqa: B019 - one description lives as long as the tests
    def _validator(self, schema: str) -> Any:
        return jsonschema.Draft202012Validator(
            {"allOf": [json.loads(schema)], "components": {"schemas": self._schemas}}
        )


@functools.cache
def _path_pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", lambda match: ".+" if match[1] in ("ref", "branch") else "[^/]+", template))


def json_schema(schema: Any) -> Any:
    """Return an OpenAPI schema with `nullable` in the notation of JSON Schema."""
    if isinstance(schema, list):
        return [json_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {
        key: json_schema(value)
        for key, value in schema.items()
        if key not in ("nullable", "example", "examples", "discriminator")
    }
    if schema.get("nullable") is not True:
        return converted
    if isinstance(converted.get("type"), str):
        converted["type"] = [converted["type"], "null"]
        if "enum" in converted and None not in converted["enum"]:
            converted["enum"] = [*converted["enum"], None]
        return converted
    return {"anyOf": [converted, {"type": "null"}]}
