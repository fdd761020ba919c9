"""Linear's responses: errors and rate limits."""

from __future__ import annotations

from typing import Any

import pytest

from agent_orchestrator.errors import AoError, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.linear.host import LinearBudget, _query_error
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient, ForgeResponse
from agent_orchestrator.plugins.forges.shared.response_errors import HostText

NOW = 1_700_000_000.0


def http() -> ForgeHttpClient:
    return ForgeHttpClient(
        "http://x.example", HostText("Linear", "the token", "sign in"), {}, budget=LinearBudget(lambda: NOW)
    )


def error(message: str = "no", **extensions: Any) -> dict[str, Any]:
    return {"message": message, "extensions": extensions}


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (error(code="AUTHENTICATION_ERROR"), Denied),
        (error(type="authentication error"), Denied),
        (error(code="FORBIDDEN"), Denied),
        (error(type="feature not accessible"), Denied),
        (error("Entity not found: Issue", code="INPUT_ERROR", userPresentableMessage="Could not find it."), NotFound),
        (error(code="INPUT_ERROR"), UsageError),
        (error(type="invalid input"), UsageError),
        (error("Query too complex"), UsageError),
        (error(code="RATELIMITED"), Temporary),
        (error(code="INTERNAL_SERVER_ERROR"), Temporary),
        (error(), Temporary),
    ],
)
def test_an_error_is_of_the_kind_that_linear_names(wrong: dict[str, Any], kind: type[AoError]) -> None:
    assert type(_query_error(http(), ForgeResponse(400, {}, None), [wrong])) is kind


def test_an_answer_without_a_reason_may_be_asked_for_again() -> None:
    assert "status 400" in str(_query_error(http(), ForgeResponse(400, {}, None), []))


def test_a_rate_limit_ends_when_the_exhausted_kind_resets() -> None:
    headers = {
        "x-ratelimit-requests-remaining": "7",
        "x-ratelimit-requests-reset": str(int((NOW + 60) * 1000)),
        "x-ratelimit-complexity-remaining": "0",
        "x-ratelimit-complexity-reset": str(int((NOW + 600) * 1000)),
    }
    failure = _query_error(http(), ForgeResponse(400, headers, None), [error(code="RATELIMITED")])
    assert isinstance(failure, Temporary)
    assert failure.until == NOW + 600
    over = {**headers, "x-ratelimit-complexity-reset": str(int((NOW - 5) * 1000))}
    failure = _query_error(http(), ForgeResponse(400, over, None), [error(code="RATELIMITED")])
    assert isinstance(failure, Temporary)
    assert failure.until == NOW + 60


@pytest.mark.parametrize("value", ["", "x", "²", "-1", "1" * 30])
def test_headers_that_are_no_numbers_do_no_harm(value: str) -> None:
    budget = LinearBudget(lambda: NOW)
    kinds = [
        f"x-ratelimit-{kind}-{name}" for kind in ("requests", "complexity") for name in ("limit", "remaining", "reset")
    ]
    budget.record({**dict.fromkeys(kinds, value), "x-complexity": value})
    assert budget.blocked_until() is None
    assert budget.request_count == 1
