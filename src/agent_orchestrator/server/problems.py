"""Errors as people and programs get them: RFC 9457 problem documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from agent_orchestrator.errors import AoError
from agent_orchestrator.services.logins import TooMany

MEDIA_TYPE = "application/problem+json"


def problem(
    status: int, detail: str, *, remedy: str = "", category: str = "failed", exit_code: int = 1, **more: Any
) -> dict[str, Any]:
    """One problem document."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "remedy": remedy,
        "category": category,
        "exitCode": exit_code,
        **more,
    }


def of_error(error: AoError) -> dict[str, Any]:
    """The problem document of one of our errors."""
    return problem(
        error.http_status, error.text, remedy=error.remedy, category=error.category, exit_code=error.exit_code
    )


def unexpected() -> dict[str, Any]:
    """The problem document of a fault of ours; what happened is in the log, not in the answer."""
    return problem(
        500,
        "the daemon could not do this because of a fault of its own",
        remedy="its log tells more: $AO_HOME/daemon.log",
    )


def headers_of(error: AoError) -> dict[str, str]:
    """What an error says in the head of its answer."""
    if isinstance(error, TooMany):
        return {"Retry-After": str(error.wait)}
    return {"WWW-Authenticate": 'Bearer realm="agent-orchestrator"'} if error.http_status == 401 else {}


def as_document(error: AoError) -> Response:
    """An error as programs get it."""
    return response(of_error(error), headers_of(error))


def in_words(error: AoError) -> Response:
    """An error as Git shows it to whoever runs it: a line of text."""
    headers = {"WWW-Authenticate": 'Basic realm="agent-orchestrator"'} if error.http_status == 401 else {}
    return Response(f"{error}\n", error.http_status, headers, "text/plain")


def response(document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """A problem document as an answer."""
    extra = dict(headers or {})
    if document["status"] == 503:
        extra.setdefault("Retry-After", "1")
    return Response(json.dumps(document), document["status"], extra, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make every error of the app a problem document."""
    app.add_exception_handler(AoError, _ao_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _ao_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AoError)
    request.app.state.refusals.of_error(request.scope, error)
    return as_document(error)


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
