"""What goes wrong within a route becomes a problem document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from agent_orchestrator.errors import AoError, machine_short
from agent_orchestrator.server.schema.problems import as_document, problem, response, unexpected


def install(app: FastAPI) -> None:
    """Make every error of the app a problem document."""
    app.add_exception_handler(AoError, _ao_error)
    app.add_exception_handler(OSError, _os_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _ao_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AoError)
    request.app.state.refusals.of_error(request.scope, error)
    return as_document(error)


async def _os_error(request: Request, error: Exception) -> Response:
    """What the machine lacks this moment is no fault of the program."""
    short = machine_short(error)
    if short is None:
        raise error
    return await _ao_error(request, short)


async def _unexpected(_request: Request, _error: Exception) -> Response:
    return response(unexpected())


async def _http(request: Request, error: Exception) -> Response:
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
    document = problem(error.status_code, detail, remedy=remedy, category=category, exit_code=exit_code)
    return response(document, error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [_fault(item, request) for item in error.errors()]
    detail = "; ".join(f"{fault['field']}: {fault['message']}" for fault in faults[:3])
    remedy = f"GET /openapi.json describes {request.method} {request.url.path}"
    return response(problem(422, detail, remedy=remedy, category="usage", exit_code=2, errors=faults))


def _fault(item: Mapping[str, Any], request: Request) -> dict[str, str]:
    where = [str(part) for part in item["loc"]]
    field = ".".join(where[1:]) or where[0]
    match item["type"]:
        case "json_invalid":
            return {"field": "body", "message": f"is not JSON: {item['ctx']['error']} at character {where[-1]}"}
        case "missing":
            return {"field": field, "message": f"is missing in the {where[0]}"}
        case "value_error":
            return {"field": field, "message": str(item["ctx"]["error"])}
        case "model_attributes_type" if isinstance(item["input"], bytes):
            sent = request.headers.get("content-type") or "none"
            return {"field": "body", "message": f"is to be a JSON object sent as application/json, not as {sent}"}
    value = _short(item["input"])
    return {"field": field, "message": f"{item['msg'][:1].lower()}{item['msg'][1:]}, not {value}", "value": value}


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
