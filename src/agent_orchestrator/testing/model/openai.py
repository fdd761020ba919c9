"""Shared parts of OpenAI's two formats: token figures and errors."""

from __future__ import annotations

from agent_orchestrator.testing.model.replies import HttpFailure, ReplyUsage
from agent_orchestrator.testing.model.wire_format import ErrorAnswer, retry_headers

_ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "server_is_overloaded"),
}


def error_answer(failure: HttpFailure, now: float) -> ErrorAnswer:
    """Return the error of both formats; a usage limit as ChatGPT's plans report it."""
    headers = retry_headers(failure, now)
    kind, code = _ERRORS.get(failure.status, ("server_error", None))
    message = failure.message or f"scripted error {failure.status}"
    body: dict[str, object] = {"message": message, "type": kind, "param": None, "code": code}
    if failure.limit_ends is not None:
        body = {
            "type": "usage_limit_reached",
            "message": failure.message or "The usage limit has been reached",
            "plan_type": "plus",
            "resets_at": int(failure.limit_ends),
            "resets_in_seconds": max(0, round(failure.limit_ends - now)),
        }
        headers |= {"x-should-retry": "false"}
    return ErrorAnswer(failure.status, {"error": body}, headers)


def input_tokens(usage: ReplyUsage) -> int:
    """Return all tokens of the request; OpenAI includes the cached ones."""
    return usage.input + usage.cache_read + usage.cache_write
