"""Errors as answers: RFC 9457 problem documents, and text for Git."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from agent_orchestrator.errors import AoError
from agent_orchestrator.server.access.logins import TooManyFailures

MEDIA_TYPE = "application/problem+json"


def problem_document(
    status: int, detail: str, *, remedy: str = "", category: str = "failed", exit_code: int = 1, **more: Any
) -> dict[str, Any]:
    """Return one problem document."""
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


def error_document(error: AoError) -> dict[str, Any]:
    """Return the problem document of an error."""
    return problem_document(
        error.http_status, error.text, remedy=error.remedy, category=error.category, exit_code=error.exit_code
    )


def unexpected_error_document() -> dict[str, Any]:
    """Return the problem document of a bug; the details are in the log, not in the answer."""
    return problem_document(
        500,
        "the daemon could not do this because of a fault of its own",
        remedy="its log tells more: $AO_HOME/daemon.log",
    )


def error_headers(error: AoError) -> dict[str, str]:
    """Return the headers that belong to an error's answer."""
    if isinstance(error, TooManyFailures):
        return {"Retry-After": str(error.wait)}
    return {"WWW-Authenticate": 'Bearer realm="agent-orchestrator"'} if error.http_status == 401 else {}


def error_response(error: AoError) -> Response:
    """Return an error as a problem document."""
    return document_response(error_document(error), error_headers(error))


def error_text_response(error: AoError) -> Response:
    """Return an error as a line of text, which Git shows to its user."""
    headers = {"WWW-Authenticate": 'Basic realm="agent-orchestrator"'} if error.http_status == 401 else {}
    return Response(f"{error}\n", error.http_status, headers, "text/plain")


def document_response(document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return a problem document as an answer."""
    extra = dict(headers or {})
    if document["status"] == 503:
        extra.setdefault("Retry-After", "1")
    return Response(json.dumps(document), document["status"], extra, MEDIA_TYPE)
