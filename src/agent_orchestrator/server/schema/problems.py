"""Errors as people and programs get them: RFC 9457 problem documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from agent_orchestrator.errors import AoError
from agent_orchestrator.server.access.logins import TooMany

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
