"""Writes the dashboard's types from the OpenAPI document: `python -m agent_orchestrator.server.schema.typescript FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_orchestrator.server.route_table import shared_routes

_HEAD = (
    "// Written by `make reference` (agent_orchestrator.server.schema.typescript); change the models, not this file.\n"
)


def typescript() -> str:
    """Return the file's text."""
    schemas: dict[str, Any] = shared_routes().openapi()["components"]["schemas"]
    return "\n".join([_HEAD, *("\n".join(_declaration(name, schemas[name])) + "\n" for name in sorted(schemas))])


def _declaration(name: str, schema: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that declare one model."""
    yield f"/** {_line(schema.get('description', name))} */"
    if "properties" not in schema:
        yield f"export type {name} = {_type(schema)};"
        return
    required = schema.get("required", ())
    yield f"export interface {name} {{"
    for key, field in schema["properties"].items():
        if text := field.get("description"):
            yield f"  /** {_line(text)} */"
        yield f"  {key}{'' if key in required else '?'}: {_type(field)};"
    yield "}"


def _type(schema: dict[str, Any]) -> str:
    """Return a schema as a TypeScript type."""
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[1])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " | ".join(dict.fromkeys(_type(option) for option in schema[keyword]))
    if schema.get("type") == "array":
        inner = _type(schema.get("items", {}))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'unknown'}>"
    types = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
    return types.get(schema.get("type", ""), "unknown")


def _line(text: str) -> str:
    """Return a text as one line that can stand in a comment."""
    return " ".join(text.split()).replace("*/", "* /")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(typescript())
