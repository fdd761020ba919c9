"""Writes the page `docs/reference/api.md` from the OpenAPI document: `python -m agent_orchestrator.server.schema.reference FILE`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_orchestrator.server.route_table import shared_routes

_HEAD = """\
# HTTP API

<!-- Written by `python -m agent_orchestrator.server.schema.reference docs/reference/api.md`; change the routes, not this page. -->

Default address: `http://127.0.0.1:3000`. The whole of it for programs: `GET /openapi.json`.
"""

_TERMINAL = """\
## Terminal

`WS /api/sessions/{id}/terminal?columns=120&rows=40` is a session's terminal: binary frames carry keystrokes in and output out;
the text frame `{"resize": [columns, rows]}` sets the size. Typing needs the role `operator`; who has less only watches. Who sends
`{"ack": bytes}` whenever so many more bytes have been shown is sent no more than 512 kB ahead of that.
Closing it leaves the session as it is. One caller has 32 open at once; more are refused with 503.
"""


def markdown() -> str:
    """Return the page's text."""
    document = shared_routes().openapi()
    parts = [_HEAD, document["info"]["description"] + "\n"]
    tags: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tags.setdefault(operation["tags"][0], []).append("\n".join(_operation(method, path, operation)))
    for tag, sections in tags.items():
        parts += [f"## Routes: {tag}\n", *sections]
    parts += [_TERMINAL, "## JSON objects\n", "\n".join(_schemas(document["components"]["schemas"]))]
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    """Yield the lines about one operation."""
    yield f"### `{method.upper()} {path}`\n"
    yield operation["summary"] + ".\n"
    if "description" in operation:
        yield operation["description"] + "\n"
    for parameter in operation.get("parameters", ()):
        required = ", required" if parameter.get("required") else ""
        about = parameter.get("description") or parameter["schema"].get("description", "")
        line = f"- `{parameter['name']}` ({parameter['in']}{required}): {_type(parameter['schema'])}"
        yield f"{line}. {about}".rstrip(". ") + "."
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        yield f"- body: {_type(body['schema'])}."
    for status, response in operation["responses"].items():
        if status != "default":
            types = [
                _type(content["schema"]) if media_type == "application/json" else f"`{media_type}`"
                for media_type, content in response.get("content", {}).items()
            ]
            yield f"- answers {status}: {' or '.join(types) or 'nothing'}."
    yield ""


def _schemas(schemas: dict[str, Any]) -> Iterator[str]:
    """Yield the lines about each model."""
    for name, schema in sorted(schemas.items()):
        yield f"### {name}\n"
        yield f"{schema.get('description', '').splitlines()[0]}\n"
        required = schema.get("required", ())
        for key, field in schema.get("properties", {}).items():
            optional = "" if key in required else ", optional"
            about = f". {field['description']}" if "description" in field else ""
            yield f"- `{key}`: {_type(field)}{optional}{about}".rstrip(".") + "."
        yield ""


def _type(schema: dict[str, Any]) -> str:
    """Return a schema's type in words, with links to models."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(option) for option in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object":
            return "object"
        case None:
            return "any JSON"
        case kind:
            return str(kind)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown())
