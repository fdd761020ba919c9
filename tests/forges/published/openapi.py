"""GitHub's own description of its REST API, as something that answers can be checked against."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema


class Description:
    def __init__(self, path: Path) -> None:
        whole = json.loads(path.read_text())
        self._paths: dict[str, Any] = whole["paths"]
        self._parts: dict[str, Any] = whole["components"]
        self._schemas = {name: plain(schema) for name, schema in self._parts["schemas"].items()}

    def problems(self, method: str, path: str, status: int, body: Any) -> list[str]:
        """What is wrong with this answer; nothing where it is as described."""
        template = self._template(method, path)
        if template is None:
            return [f"{method} {path} is not described"]
        answers = self._paths[template][method.lower()]["responses"]
        if str(status) not in answers:
            return (
                []
                if status in (401, 403, 404, 405, 409, 422, 429)
                else [f"{method} {template}: {status} is not described"]
            )
        content = self._followed(answers[str(status)]).get("content", {}).get("application/json")
        if content is None:
            return (
                []
                if body in (None, b"") or status >= 400
                else [f"{method} {template} {status}: a body where none is described"]
            )
        found = self._validator(json.dumps(plain(content["schema"]))).iter_errors(body)
        return [
            f"{method} {template} {status}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in found
        ]

    def _followed(self, part: Any) -> Any:
        return self._parts["responses"][part["$ref"].split("/")[-1]] if "$ref" in part else part

    def _template(self, method: str, path: str) -> str | None:
        fitting = [one for one in self._paths if method.lower() in self._paths[one] and _fits(one).fullmatch(path)]
        return max(fitting, key=lambda one: len(re.sub(r"\{[^}]*\}", "", one)), default=None)

    @functools.cache  # noqa: B019 - one description lives as long as the tests
    def _validator(self, schema: str) -> Any:
        return jsonschema.Draft202012Validator(
            {"allOf": [json.loads(schema)], "components": {"schemas": self._schemas}}
        )


@functools.cache
def _fits(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", lambda found: ".+" if found[1] in ("ref", "branch") else "[^/]+", template))


def plain(schema: Any) -> Any:
    """OpenAPI's `nullable` as JSON Schema says it."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: plain(value)
        for key, value in schema.items()
        if key not in ("nullable", "example", "examples", "discriminator")
    }
    if schema.get("nullable") is not True:
        return made
    if isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
        if "enum" in made and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        return made
    return {"anyOf": [made, {"type": "null"}]}
