"""Turns exceptions of routes into problem documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from agent_orchestrator.errors import AoError, resource_shortage
from agent_orchestrator.server.schema.problems import (
    document_response,
    error_response,
    problem_document,
    unexpected_error_document,
)


def install(app: FastAPI) -> None:
    """Make every error of the app a problem document."""
    app.add_exception_handler(AoError, _handle_ao_error)
    app.add_exception_handler(OSError, _handle_os_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(Exception, _handle_unexpected)


async def _handle_ao_error(request: Request, error: Exception) -> Response:
    """Record a refusal and return the error's problem document."""
    assert isinstance(error, AoError)
    request.app.state.refusals.record_error(request.scope, error)
    return error_response(error)


async def _handle_os_error(request: Request, error: Exception) -> Response:
    """Report a shortage of the machine (disk, memory, files) as such; raise other errors again."""
    shortage = resource_shortage(error)
    if shortage is None:
        raise error
    return await _handle_ao_error(request, shortage)


async def _handle_unexpected(_request: Request, _error: Exception) -> Response:
    """Return the problem document of a bug."""
    return document_response(unexpected_error_document())


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """Return the problem document of an error that FastAPI raised, such as an unknown path."""
    assert isinstance(error, HTTPException)
    remedy, category, exit_code = "", "failed", 1
    detail = str(error.detail)
    if error.status_code == 404:
        detail, remedy = f"there is nothing at {request.url.path}", "GET /openapi.json lists every route"
        category, exit_code = "not-found", 3
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        detail = f"{request.method} is not possible at {request.url.path}"
        remedy, category, exit_code = f"use {allowed}" if allowed else "", "usage", 2
    elif error.status_code < 500:
        category, exit_code = "usage", 2
    document = problem_document(error.status_code, detail, remedy=remedy, category=category, exit_code=exit_code)
    return document_response(document, error.headers)


async def _handle_invalid_request(request: Request, error: Exception) -> Response:
    """Return the problem document of a request that does not match its model."""
    assert isinstance(error, RequestValidationError)
    field_errors = [_field_error(error_item, request) for error_item in error.errors()]
    detail = "; ".join(f"{field_error['field']}: {field_error['message']}" for field_error in field_errors[:3])
    remedy = f"GET /openapi.json describes {request.method} {request.url.path}"
    return document_response(
        problem_document(422, detail, remedy=remedy, category="usage", exit_code=2, errors=field_errors)
    )


def _field_error(item: Mapping[str, Any], request: Request) -> dict[str, str]:
    """Describe one validation error: the field, the message and the value."""
    location = [str(part) for part in item["loc"]]
    field = ".".join(location[1:]) or location[0]
    match item["type"]:
        case "json_invalid":
            return {"field": "body", "message": f"is not JSON: {item['ctx']['error']} at character {location[-1]}"}
        case "missing":
            return {"field": field, "message": f"is missing in the {location[0]}"}
        case "value_error":
            return {"field": field, "message": str(item["ctx"]["error"])}
        case "model_attributes_type" if isinstance(item["input"], bytes):
            content_type = request.headers.get("content-type") or "none"
            return {
                "field": "body",
                "message": f"is to be a JSON object sent as application/json, not as {content_type}",
            }
    value = _short_json(item["input"])
    return {"field": field, "message": f"{item['msg'][:1].lower()}{item['msg'][1:]}, not {value}", "value": value}


def _short_json(value: Any) -> str:
    """Return a value as JSON of at most 80 characters."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
